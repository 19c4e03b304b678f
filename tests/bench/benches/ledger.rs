//! What the ledger costs: a claim and its release, and a sum over 1, 64 and 512 live processes.
//! Budgets: the pair 60 ns with one process; a sum 100 ns with 64 live slots, 400 ns with 512.
//! Touches: ledgers on tmpfs, and processes that hold a slot each.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]

use gpuslice_bench::{Variant, compare};
use gpuslice_config::ledger::{Claim, Device, Kind, Ledger, Open};
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};
use gpuslice_config::words::units::Bytes;
use std::ffi::{CString, OsString};
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const UUID: DeviceUuid = DeviceUuid {
    kind: DeviceKind::Gpu,
    bytes: [7; 16],
};
const HOLD: &str = "GPUSLICE_BENCH_HOLD";
const LIMIT: Bytes = Bytes::gib(8);

fn open(path: &Path) -> (Ledger, Device) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path has no NUL");
    let ledger = Ledger::open(
        &path,
        Open::Create {
            mode: 0o600,
            devices: 1,
        },
    )
    .expect("the ledger opens");
    let device = ledger.device(&UUID).expect("there is room for a device");
    (ledger, device)
}

/// A process that claims a mebibyte and holds it until it is killed.
struct Holder(Child);

impl Holder {
    fn start(path: &Path) -> Holder {
        let this = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(this)
            .env(HOLD, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let mut said = String::new();
        let voice = child.stdout.take().expect("its output is ours");
        let read = BufReader::new(voice).read_line(&mut said);
        assert!(read.is_ok_and(|length| length > 0), "it holds a slot");
        Holder(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(
    clippy::print_stdout,
    reason = "tells the parent that the slot is held"
)]
fn hold(path: &OsString) {
    let (ledger, device) = open(Path::new(path));
    assert_eq!(
        ledger.claim(device, Bytes::mib(1), Kind::Linear, LIMIT),
        Claim::Granted
    );
    println!("held");
    let mut nothing = String::new();
    let _ = std::io::stdin().read_line(&mut nothing);
}

fn main() {
    if let Some(path) = std::env::var_os(HOLD) {
        return hold(&path);
    }
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder on tmpfs");
    let counts = [0usize, 1, 64, 511];
    let crowds: Vec<_> = counts
        .iter()
        .map(|count| {
            let path = folder.path().join(count.to_string());
            let ledger = open(&path);
            let holders: Vec<_> = (0..*count).map(|_| Holder::start(&path)).collect();
            (ledger, holders)
        })
        .collect();
    let pair = |ledger: &Ledger, device| {
        let claimed = ledger.claim(device, Bytes::mib(2), Kind::Linear, LIMIT);
        assert_eq!(black_box(claimed), Claim::Granted);
        ledger.release(device, Bytes::mib(2), Kind::Linear);
    };
    let names = [
        ("sum, nobody else", "claim + release, nobody else"),
        ("sum, 1 other", "claim + release, 1 other"),
        ("sum, 64 others", "claim + release, 64 others"),
        ("sum, 511 others", "claim + release, 511 others"),
    ];
    for refuse in [false, true] {
        let mut variants = vec![Variant::new("nothing (the loop)", || {
            black_box(());
        })];
        for (((ledger, device), _), (sum, claim)) in crowds.iter().zip(names) {
            if !refuse {
                variants.push(Variant::new(sum, || {
                    black_box(ledger.sum(*device));
                }));
                variants.push(Variant::new(claim, || pair(ledger, *device)));
            } else {
                variants.push(Variant::new(claim, || {
                    let more = Bytes::gib(9);
                    let refused = ledger.claim(*device, more, Kind::Linear, LIMIT);
                    assert!(matches!(black_box(refused), Claim::Refused { .. }));
                }));
            }
        }
        match refuse {
            false => compare("the ledger", 300, 1000, &mut variants),
            true => compare("a refusal, after asking the kernel", 50, 20, &mut variants),
        }
    }
}
