//! A slice whose ledger cannot be used refuses memory, and grants it again as soon as the ledger
//! can be used.
//! Touches: the same as the parent module; ledgers, which it damages.

use super::MIB;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: u64 = 8 * GIB;

/// Asserts that a process that starts while nothing can be counted sees no free memory and is
/// refused.
fn is_refused(slice: &Counted, what: &str) {
    let mut worker = slice.idle();
    assert_eq!(worker.code("start 0"), OUT_OF_MEMORY, "{what}");
    assert_eq!(worker.nvml(), [0, LIMIT, LIMIT], "{what}");
    assert_eq!(slice.held(), 0, "{what}");
}

/// Waits until an operation is granted. Processes check a damaged ledger again once a second.
fn is_granted_again(worker: &mut Worker, operation: &str) {
    let start = Instant::now();
    while worker.code(operation) != 0 {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "not granted again within 20 seconds"
        );
        // Each attempt is refused and logged. Twenty attempts for each check of the ledger are
        // enough.
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Replaces the ledger with another file, and keeps the ledger beside it.
fn replaced(ledger: &Path, bytes: &[u8]) {
    let new = ledger.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(ledger, ledger.with_extension("kept")).unwrap();
    fs::rename(new, ledger).unwrap();
}

fn repaired(ledger: &Path) {
    fs::rename(ledger.with_extension("kept"), ledger).unwrap();
}

/// Holds a POSIX lock on each byte of a file, as Python's `fcntl.lockf` takes it. Bytes that
/// another process has locked are left out.
struct Locker(Child);

impl Locker {
    fn of(file: &Path) -> Locker {
        let script = "import fcntl, sys, time\n\
                      file = open(sys.argv[1], 'r+b')\n\
                      for byte in range(4096):\n\
                      \x20   try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)\n\
                      \x20   except OSError: pass\n\
                      print('locked', flush=True)\n\
                      time.sleep(600)"; // Locker kills it.
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let said = child.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        assert_eq!(line, "locked\n");
        Locker(child)
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `truncate -s 0 ledger` lifted the limit: 20,000 MiB of a slice of 8 GiB.
#[test]
fn cutting_or_overwriting_the_ledger_does_not_lift_the_limit() {
    let slice = Counted::new("rtx3090", LIMIT);
    let ledger = slice.ledger();
    let whole = fs::read(ledger).unwrap();
    let mut newer = whole.clone();
    newer[8] = 9;
    let garbled = |from: usize, to: usize| {
        let mut bytes = whole.clone();
        bytes[from..to].fill(0xff);
        bytes
    };
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("half", whole[..whole.len() / 2].to_vec()),
        ("longer", [&whole[..], b"x"].concat()),
        ("all ones", garbled(0, whole.len())),
        ("another magic", garbled(0, 8)),
        ("another version", newer),
        ("a table of devices full of ones", garbled(32, 32 + 64 * 24)),
    ] {
        replaced(ledger, &bytes);
        is_refused(&slice, what);
        assert_eq!(
            fs::read(ledger).unwrap(),
            bytes,
            "{what}: the ledger was written to"
        );
        repaired(ledger);
    }
    fs::rename(ledger, ledger.with_extension("kept")).unwrap();
    is_refused(&slice, "absent");
    symlink(ledger.with_extension("kept"), ledger).unwrap();
    is_refused(&slice, "a link");
    fs::remove_file(ledger).unwrap();
    fs::create_dir(ledger).unwrap();
    is_refused(&slice, "a folder");
    fs::remove_dir(ledger).unwrap();
    repaired(ledger);
    assert!(slice.worker().free() > 0);
}

/// A process that is already in the slice goes on. A new process does so once the ledger is
/// repaired.
#[test]
fn a_ledger_that_is_repaired_is_used_again() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut inside = slice.worker();
    inside.must(&format!("alloc 0 {GIB}"));
    let before = inside.info();
    replaced(slice.ledger(), b"something else");
    let mut late = slice.idle();
    assert_eq!(late.code("start 0"), OUT_OF_MEMORY);
    assert_eq!(inside.info(), before);
    inside.must(&format!("alloc 1 {GIB}"));
    inside.must("free 1");
    assert_eq!(inside.info(), before);
    repaired(slice.ledger());
    is_granted_again(&mut late, "start 0");
    late.must(&format!("alloc 0 {GIB}"));
    assert_eq!(inside.free(), before.free - GIB - super::CONTEXT);
    assert_eq!(late.free(), inside.free());
    assert_eq!(late.code(&format!("alloc 1 {LIMIT}")), OUT_OF_MEMORY);
}

/// One process that locked every byte of the ledger lifted the limit of all others.
#[test]
fn locking_every_byte_of_the_ledger_does_not_lift_the_limit() {
    let slice = Counted::new("rtx3090", LIMIT);
    let locker = Locker::of(slice.ledger());
    let mut worker = slice.idle();
    assert_eq!(worker.code("start 0"), OUT_OF_MEMORY);
    assert_eq!(worker.nvml(), [0, LIMIT, LIMIT]);
    assert_eq!(slice.held(), 0);
    drop(locker);
    is_granted_again(&mut worker, "start 0");
    assert_eq!(worker.free(), LIMIT - super::CONTEXT);
    assert_eq!(slice.worker().free(), LIMIT - 2 * super::CONTEXT);
}

/// One allocation that could not be counted left the slice at FREE 0 for the rest of its life.
#[test]
fn a_process_that_could_not_be_counted_leaves_nothing_behind() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut inside = slice.worker();
    let before = inside.info();
    let locker = Locker::of(slice.ledger());
    let mut other = slice.idle();
    assert_eq!(other.code("start 0"), OUT_OF_MEMORY);
    assert_eq!(inside.info(), before, "while the other process is refused");
    other.kill();
    drop(locker);
    assert_eq!(inside.info(), before, "after the other process has ended");
    inside.must(&format!("alloc 0 {GIB}"));
}

/// With 64 processes on 8 GPUs the table was full, and the 65th got 106 GiB of a slice of 60.
#[test]
fn a_ledger_of_eight_gpus_has_room_for_64_processes_on_each() {
    let slice = Counted::of_devices("8xh200", &json!({"memory": 60 * GIB}), 8);
    let mut crowd: Vec<Worker> = (0..66).map(|_| slice.idle()).collect();
    for device in 0..8 {
        let start = format!("start {device}");
        for worker in &mut crowd {
            worker.must(&start);
        }
    }
    assert_eq!(slice.records().len(), 66 * 8);
    let last = crowd.last_mut().unwrap();
    let refused = last.code(&format!("alloc 0 {}", 60 * GIB));
    assert_eq!(refused, OUT_OF_MEMORY);
}

/// A full table refuses a new process and logs the reason. It admits the next one when one has
/// ended.
#[test]
fn a_full_table_does_not_lift_the_limit() {
    let slice = Counted::new("8xh200", 60 * GIB);
    let mut crowd: Vec<Worker> = (0..64).map(|_| slice.idle()).collect();
    for device in 0..8 {
        for worker in &mut crowd {
            worker.must(&format!("start {device}"));
        }
    }
    let log = slice.machine().folder().join("log");
    let run = slice.run(gpuslice_suite::compile::worker());
    let run = run
        .env("GPUSLICE_LOG", "warn")
        .env("GPUSLICE_LOG_FILE", &log);
    let mut late = Worker::start(run);
    let before = slice.held();
    assert_eq!(late.code("start 0"), OUT_OF_MEMORY);
    assert_eq!(slice.held(), before);
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains("all of its 512 slots are taken"), "{said}");
    assert_eq!(late.nvml()[0], 0, "the refused process sees no free memory");
    assert!(crowd[0].free() > 0, "counted processes go on");
    crowd.remove(0).kill();
    is_granted_again(&mut late, "start 0");
    late.must(&format!("alloc 0 {}", 64 * MIB));
}

/// An allocation that only its process counted, because the table was full, is freed like any other.
#[test]
fn a_slice_that_only_counts_goes_on_without_a_ledger() {
    let slice = Counted::with("rtx3090", &json!({"memory": LIMIT, "enforce": false}));
    let locker = Locker::of(slice.ledger());
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {GIB}"));
    worker.must("free 0");
    worker.must(&format!("alloc 0 {}", 9 * GIB));
    drop(locker);
    // The process's memory moves into its slot once it gets one.
    let start = Instant::now();
    while slice.counted() < 9 * GIB {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "not counted within 20 seconds"
        );
        worker.must(&format!("alloc 1 {}", 2 * MIB));
        worker.must("free 1");
    }
    worker.must("free 0");
    assert_eq!(slice.counted(), super::CONTEXT);
    let header = fs::File::open(slice.ledger()).unwrap();
    let mut magic = [0; 8];
    header.read_exact_at(&mut magic, 0).unwrap();
    assert_eq!(&magic, b"GPUSLICE");
}
