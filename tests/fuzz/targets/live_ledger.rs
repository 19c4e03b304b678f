//! Fuzzes a ledger in use, which other processes of its slice overwrite. Claims that are granted
//! never exceed the limit, and a sum is never less than this process holds.
//! Touches: its input; a file below TMPDIR.
#![no_main]

use gpuslice_config::ledger::{
    Claim, Device, Kind, Ledger, MAX_SIZE, Open, Private, SIZE, SetLimit, Snapshot,
};
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};
use gpuslice_config::words::units::Bytes;
use nix::sys::mman::munmap;
use std::ffi::{CString, c_void};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

static PRIVATE: Private = Private::empty();

const LIMIT: Bytes = Bytes::gib(1);

const GPU: DeviceUuid = DeviceUuid {
    kind: DeviceKind::Gpu,
    bytes: [7; 16],
};

/// The parts of a ledger: its header, the columns of its slots, and the rows of shared memory.
const PARTS: [u64; 6] = [0, 4096, 8192, 12_288, 32_768, 65_536];

/// One step: what is done, where, and with which number.
#[derive(Clone, Copy)]
struct Step {
    what: u8,
    place: u8,
    number: u64,
}

impl Step {
    fn overwrites(self) -> bool {
        self.what & 4 != 0
    }

    /// Overwrites a word of the file: one of a part's first words, or any.
    fn overwrite(self, file: &File) {
        let word = match self.what & 8 {
            0 => PARTS[usize::from(self.what >> 4) % PARTS.len()] + u64::from(self.place) * 8,
            _ => u64::from(self.place) << 8 | u64::from(self.what),
        };
        let last = SIZE as u64 - 8;
        let written = file.write_at(&self.number.to_le_bytes(), word.min(last));
        written.expect("the ledger is written");
    }
}

// The first byte of the input says whether another thread overwrites the ledger meanwhile. A step
// has ten bytes.
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    let (steps, _) = rest.as_chunks::<10>();
    let steps: Vec<Step> = steps
        .iter()
        .take(100)
        .map(|[what, place, number @ ..]| Step {
            what: *what,
            place: *place,
            number: u64::from_le_bytes(*number),
        })
        .collect();
    let path = std::env::temp_dir().join(format!("live_ledger-{}", std::process::id()));
    fs::write(&path, []).expect("the ledger is made");
    let file = File::options()
        .write(true)
        .open(&path)
        .expect("the ledger exists");
    let is_racing = first & 1 != 0;
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        // Ends before the file is unmapped, because the kernel then looks at its slot.
        let used = scope.spawn(|| {
            use_ledger(&path, &file, &steps, is_racing);
            has_ended.store(true, Ordering::SeqCst);
        });
        while is_racing && !used.is_finished() && !has_ended.load(Ordering::SeqCst) {
            steps
                .iter()
                .filter(|step| step.overwrites())
                .for_each(|step| step.overwrite(&file));
        }
    });
    unmap(&path);
    // SAFETY: the thread that used it has ended.
    unsafe {
        std::ptr::from_ref(&PRIVATE)
            .cast_mut()
            .write(Private::empty())
    };
});

fn use_ledger(path: &Path, file: &File, steps: &[Step], is_racing: bool) {
    let name = CString::new(path.as_os_str().as_bytes()).expect("a path without nul");
    let made = Open::Create {
        mode: 0o600,
        devices: 1,
    };
    // A ledger that is overwritten while it is opened may be refused.
    let Ok(ledger) = Ledger::open_with(&name, c"", made, &PRIVATE) else {
        assert!(is_racing, "a new ledger is refused");
        return;
    };
    let Some(device) = ledger.device(&GPU) else {
        assert!(is_racing, "a new ledger has no room");
        return;
    };
    let mut held = [0; Kind::ALL.len()];
    for step in steps {
        match step.what & 7 {
            0 | 1 => claim(&ledger, device, step, &mut held, is_racing),
            2 => release(&ledger, device, step, &mut held),
            3 => look(&ledger, &name, device),
            _ if !is_racing => step.overwrite(file),
            _ => {}
        }
        let (sum, own) = (ledger.sum(device), Bytes::new(held.iter().sum()));
        assert!(is_racing || sum >= own, "a sum of {sum} is less than {own}");
        let free = LIMIT.minus(sum);
        assert!(
            is_racing || free <= LIMIT.minus(own),
            "{free} is free beside {own}"
        );
    }
}

fn claim(ledger: &Ledger, device: Device, step: &Step, held: &mut [u64], is_racing: bool) {
    let place = usize::from(step.place) % held.len();
    let bytes = step.number % (LIMIT.get() + 2);
    let claim = ledger.claim(device, Bytes::new(bytes), Kind::ALL[place], LIMIT);
    if claim == Claim::Granted {
        held[place] += bytes;
        let all: u64 = held.iter().sum();
        assert!(is_racing || all <= LIMIT.get(), "{all} bytes are granted");
    }
}

/// Releases at most what is held: a program has no more.
fn release(ledger: &Ledger, device: Device, step: &Step, held: &mut [u64]) {
    let place = usize::from(step.place) % held.len();
    let bytes = step.number % (held[place] + 1);
    held[place] -= bytes;
    ledger.release(device, Bytes::new(bytes), Kind::ALL[place]);
}

/// Reads the ledger as another process does, and as this one.
fn look(ledger: &Ledger, path: &CString, device: Device) {
    let whole = |record: gpuslice_config::ledger::Record| {
        let kinds = record.by_kind.iter().map(|(_, held)| *held);
        assert_eq!(kinds.fold(0, u64::saturating_add), record.used);
    };
    let mut bytes = vec![0; MAX_SIZE];
    if let Ok(snapshot) = Snapshot::read(path, &mut bytes) {
        snapshot.slots().for_each(whole);
        let _ = (
            snapshot.refusals().count(),
            snapshot.limits().count(),
            snapshot.uncounted(),
        );
    }
    ledger.slots().for_each(whole);
    let _ = (
        ledger.refusals(device),
        ledger.context(device),
        ledger.limit(device),
    );
    let _ = ledger.set_limit(device, SetLimit::of(LIMIT).expect("a limit"));
}

/// Unmaps the file, which a ledger keeps mapped until its process ends.
fn unmap(path: &Path) {
    let maps = fs::read_to_string("/proc/self/maps").expect("the mappings are listed");
    let path = path.to_str().expect("a path in UTF-8");
    for line in maps.lines().filter(|line| line.ends_with(path)) {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let address = |text| usize::from_str_radix(text, 16).expect("an address");
        let (start, end) = range
            .map(|(start, end)| (address(start), address(end)))
            .expect("a range");
        let place = NonNull::new(std::ptr::with_exposed_provenance_mut::<c_void>(start));
        // SAFETY: the ledger, which the mapping belongs to, is not used any more.
        unsafe { munmap(place.expect("a mapping"), end - start) }.expect("a mapping is unmapped");
    }
}
