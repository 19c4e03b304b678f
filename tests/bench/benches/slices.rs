//! What many processes in one slice cost: a query while they live, and all of them starting at
//! the same moment. Budgets: a query adds 100 ns with 64 of them and 400 ns with 512; 200 starts
//! at once cost at most a tenth more than without the shim.
//! Touches: the built shim, a driver that answers at once, and hundreds of child processes.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]

use gpuslice_bench::stub::{Bench, DEVICE};
use gpuslice_bench::{Variant, compare, target};
use gpuslice_config::ledger::{Claim, Kind};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// What a child is told by its first argument.
const HOLD: &str = "hold";
const STARTS: usize = 200;

/// A child: holds memory in the slice until nobody reads what it could say.
fn hold(bench: &Bench) {
    let ledger = bench.ledger();
    let device: DeviceUuid = DEVICE.parse().expect("a uuid");
    let device = ledger.device(&device).expect("room for a device");
    let claim = ledger.claim(device, Bytes::mib(2), Kind::Linear, Bytes::MAX);
    assert_eq!(claim, Claim::Granted);
    // Close standard output: the parent knows then.
    // SAFETY: nothing uses the descriptor any more.
    unsafe { libc::close(1) };
    let _ = std::io::stdin().read(&mut [0]);
}

fn holders(count: usize) -> Vec<Child> {
    let this = std::env::current_exe().expect("this program has a path");
    let start = |_| {
        let mut command = Command::new(&this);
        let command = command
            .arg(HOLD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.spawn().expect("a child starts")
    };
    let mut children: Vec<Child> = (0..count).map(start).collect();
    for child in &mut children {
        let mut said = Vec::new();
        let mut stdout = child.stdout.take().expect("a pipe was asked for");
        stdout.read_to_end(&mut said).expect("the pipe is read");
    }
    children
}

fn start_all(bench: &Bench, with_shim: bool) {
    let start = |_| {
        let mut command = Command::new(bench.start());
        command.env_clear().env("LD_LIBRARY_PATH", bench.folder());
        if with_shim {
            command.env("GPUSLICE_CONFIG", bench.slice());
            command.env("LD_PRELOAD", target().join("release/libgpuslice.so"));
        }
        command.spawn().expect("a program starts")
    };
    let programs: Vec<Child> = (0..STARTS).map(start).collect();
    for mut program in programs {
        let status = program.wait().expect("a program ends");
        assert!(status.success(), "{status}");
    }
}

fn main() {
    let bench = Bench::begin();
    if std::env::args().nth(1).as_deref() == Some(HOLD) {
        return hold(&bench);
    }
    let [bare, counted] = bench.functions();
    let kept = counted.take(2 << 20);
    for (processes, budget) in [(1usize, 60), (64, 100), (512, 400)] {
        let children = holders(processes.saturating_sub(1));
        let held = (1usize << 39).saturating_sub(counted.free());
        assert_eq!(
            held,
            processes.saturating_mul(2 << 20),
            "all of them are counted"
        );
        compare(
            &format!(
                "cuMemGetInfo_v2 with {processes} processes in the slice (budget: {budget} ns added)"
            ),
            200,
            2000,
            &mut [
                Variant::new("driver", || _ = bare.free()),
                Variant::new("in the slice", || _ = counted.free()),
            ],
        );
        for mut child in children {
            drop(child.stdin.take());
            child.wait().expect("a child ends");
        }
    }
    counted.give_back(kept);
    compare(
        &format!("{STARTS} programs that start at once (budget: ratio 1.10)"),
        20,
        1,
        &mut [
            Variant::new("without the shim", || start_all(&bench, false)),
            Variant::new("in a slice", || start_all(&bench, true)),
        ],
    );
    bench.end();
}
