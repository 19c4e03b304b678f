//! Several slices of one unified-memory machine. Each has what it was promised, whatever the other
//! slices do. Use of the host from outside lowers free memory once, and a false promise wins
//! nothing.
//! Touches: workers in slices of a simulated GB10, and the files of their promises.

use gpuslice_suite::compile;
use gpuslice_suite::slice::{GIB, write};
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use serde_json::json;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

const RESERVE: u64 = 8 * GIB;
const CONTEXT: u64 = 256 << 20;
const STEP: u64 = 2 << 20;

/// A slice among others, whose promises are files in one folder.
struct Promised {
    slice: Counted,
    folder: tempfile::TempDir,
    own: PathBuf,
}

impl Promised {
    /// A slice that was admitted for a budget.
    fn new(budget: u64) -> Promised {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join(format!("{budget}.own"));
        write(&own, &[0; 4096]);
        let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
        let slice = Counted::with(
            "gb10",
            &json!({
                "devices": [{"uuid": uuid, "memory": budget, "integrated": true}],
                "reserve": RESERVE,
                "promises": folder.path().display().to_string(),
                "promise": own.display().to_string(),
            }),
        );
        Promised { slice, folder, own }
    }

    /// Adds another slice, whose promise file has these contents.
    fn neighbour(&self, name: &str, contents: &[u8]) {
        write(&self.folder.path().join(name), contents);
    }

    /// Renames this slice's own promise, as a resize does.
    fn is_renamed(&mut self, budget: u64) {
        let new = self.folder.path().join(format!("{budget}.own"));
        std::fs::rename(&self.own, &new).unwrap();
        self.own = new;
    }

    /// The bytes that this slice's own promise file reports as spent.
    fn spent(&self) -> u64 {
        let contents = std::fs::read(&self.own).unwrap();
        u64::from_le_bytes(contents[..8].try_into().unwrap())
    }

    /// The memory that the host can give and still keep its reserve.
    fn spare(&self) -> u64 {
        self.slice.truth().host.unwrap().mem_available - RESERVE
    }
}

fn spent(bytes: u64) -> Vec<u8> {
    let mut contents = vec![0; 4096];
    contents[..8].copy_from_slice(&bytes.to_le_bytes());
    contents
}

/// Asserts that free memory is `expected`, to within one step of the driver.
fn is_free(worker: &mut Worker, expected: u64) {
    let free = worker.free();
    assert!(
        free <= expected && free + STEP > expected,
        "{free} of {expected}"
    );
}

#[test]
fn a_slice_says_what_it_has_spent_and_what_it_has_given_back() {
    let promised = Promised::new(40 * GIB);
    let mut worker = promised.slice.worker();
    assert_eq!(promised.spent(), CONTEXT);
    worker.must(&format!("alloc 0 {GIB}"));
    worker.must(&format!("create 1 {}", 2 * GIB));
    assert_eq!(promised.spent(), 3 * GIB + CONTEXT);
    worker.must("free 1");
    assert_eq!(promised.spent(), GIB + CONTEXT);
    worker.must("free 0");
    assert_eq!(promised.spent(), CONTEXT);
    // When another process of the slice dies with memory, the next query updates the promise file.
    let mut second = promised.slice.worker();
    second.must(&format!("alloc 0 {GIB}"));
    assert_eq!(promised.spent(), GIB + 2 * CONTEXT);
    second.kill();
    promised.slice.buried(1);
    worker.free();
    assert_eq!(promised.spent(), CONTEXT);
}

#[test]
fn a_slice_finds_its_promise_after_a_resize_has_renamed_it() {
    let mut promised = Promised::new(40 * GIB);
    let mut worker = promised.slice.worker();
    for limit in [60 * GIB, 30 * GIB] {
        // A larger limit is promised before it is in force, and a smaller one afterwards.
        let larger = worker.info().total < limit;
        if larger {
            promised.is_renamed(limit);
        }
        assert!(promised.slice.resize(limit));
        if !larger {
            promised.is_renamed(limit);
        }
        worker.must(&format!("alloc 0 {}", 20 * GIB));
        assert_eq!(promised.spent(), 20 * GIB + CONTEXT);
        let said = worker.info();
        assert_eq!((said.total, said.free), (limit, limit - 20 * GIB - CONTEXT));
        // Its own promise takes no memory from it: only the host's memory limits it here.
        let more = promised.spare().saturating_sub(limit - 20 * GIB - CONTEXT);
        promised
            .slice
            .simulator(&["host", &format!("+{}", more + GIB)]);
        is_free(&mut worker, limit - 21 * GIB - CONTEXT);
        promised
            .slice
            .simulator(&["host", &format!("-{}", more + GIB)]);
        worker.must("free 0");
        assert_eq!(promised.spent(), CONTEXT);
    }
}

#[test]
fn a_neighbours_promise_counts_at_every_moment_of_its_resizes() {
    let promised = Promised::new(60 * GIB);
    // The kernel lists so many promises in several parts.
    for number in 0..100 {
        promised.neighbour(&format!("{}.a-long-name-{number}", 1 << 20), &spent(0));
    }
    let sizes = [20 * GIB, 30 * GIB];
    let place = |size: u64| promised.folder.path().join(format!("{size}.other"));
    write(&place(sizes[0]), &spent(0));
    let mut worker = promised.slice.worker();
    promised.slice.simulator(&["host", "+60GiB"]);
    let others = 100 << 20;
    let [most, least] = sizes.map(|size| promised.spare() - others - size);
    std::thread::scope(|scope| {
        let resizing = scope.spawn(|| {
            for turn in 0..200 {
                let [from, to] = [sizes[turn % 2], sizes[(turn + 1) % 2]];
                std::fs::rename(place(from), place(to)).unwrap();
                // A listing in which this happens is made again, up to three times.
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let mut answers = 0;
        while !resizing.is_finished() {
            let free = worker.free();
            assert!(
                free <= most && free + STEP > least,
                "{free} of {least} to {most}"
            );
            answers += 1;
        }
        assert!(answers > 100, "{answers}");
    });
}

#[test]
fn a_neighbour_that_spends_what_it_was_promised_moves_nothing() {
    let promised = Promised::new(60 * GIB);
    let other = 40 * GIB;
    promised.neighbour(&format!("{other}.other"), &spent(0));
    let mut worker = promised.slice.worker();
    let free = 60 * GIB - CONTEXT;
    is_free(&mut worker, free);
    let mut taken = 0;
    let mut neighbour = promised.slice.neighbour();
    let before = promised.slice.truth().host.unwrap().mem_available;
    for number in 0..4 {
        taken += 10 * GIB;
        promised.neighbour(&format!("{other}.other"), &spent(taken));
        neighbour.must(&format!("alloc {number} {}", 10 * GIB - CONTEXT / 4));
        is_free(&mut worker, free);
    }
    assert!(before - promised.slice.truth().host.unwrap().mem_available > 39 * GIB);
}

#[test]
fn a_rogue_process_is_felt_by_what_is_over_the_slack() {
    let promised = Promised::new(60 * GIB);
    promised.neighbour(&format!("{}.other", 40 * GIB), &spent(0));
    let mut worker = promised.slice.worker();
    let unspent = 60 * GIB - CONTEXT;
    let slack = promised.spare() - 40 * GIB - unspent;
    is_free(&mut worker, unspent);
    promised.slice.simulator(&["host", &format!("+{slack}")]);
    is_free(&mut worker, unspent);
    promised.slice.simulator(&["host", "+6GiB"]);
    is_free(&mut worker, unspent - 6 * GIB);
    // The rest can be allocated, to the last step. After that the host keeps its reserve.
    let free = worker.free() / STEP * STEP;
    let more = worker.code(&format!("alloc 0 {}", free + STEP));
    assert_eq!(more, OUT_OF_MEMORY);
    worker.must(&format!("alloc 0 {free}"));
    assert!(
        promised.spare() >= 40 * GIB,
        "the neighbour's promise still stands"
    );
    promised.slice.simulator(&["host", "-6GiB"]);
    is_free(&mut worker, 6 * GIB);
}

#[test]
fn a_liar_takes_no_more_from_others_than_it_was_admitted_for() {
    let promised = Promised::new(60 * GIB);
    let mut worker = promised.slice.worker();
    // With this use of the host, the host's memory limits the slice, and not the budget.
    promised.slice.simulator(&["host", "+80GiB"]);
    let spare = promised.spare();
    is_free(&mut worker, spare);
    let other = 10 * GIB;
    let name = format!("{other}.liar");
    for (contents, unused) in [
        (spent(0), other),
        (spent(other), 0),
        (spent(u64::MAX), 0),
        (spent(4 * GIB), 6 * GIB),
        (vec![], other),
        (vec![255; 7], other),
        (vec![255; 1 << 20], 0),
    ] {
        promised.neighbour(&name, &contents);
        std::thread::sleep(std::time::Duration::from_millis(2)); // a reading is used for 1 ms
        is_free(&mut worker, spare - unused);
    }
}

#[test]
fn what_is_no_promise_promises_nothing() {
    let promised = Promised::new(60 * GIB);
    let mut worker = promised.slice.worker();
    promised.slice.simulator(&["host", "+80GiB"]);
    let spare = promised.spare();
    let place = |name: &str| promised.folder.path().join(name);
    for name in [
        "notes",
        "10",
        "10.",
        ".x",
        "-1.x",
        "99999999999999999999999.x",
    ] {
        promised.neighbour(name, &spent(0));
    }
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    symlink(elsewhere.path(), place("10737418240.link")).unwrap();
    std::fs::create_dir(place("10737418240.folder")).unwrap();
    let fifo = std::ffi::CString::new(place("10737418240.fifo").to_str().unwrap()).unwrap();
    // SAFETY: mkfifo's contract: a C string.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    is_free(&mut worker, spare);
    // The folder may also hold hundreds of real promises.
    for number in 0..300 {
        promised.neighbour(
            &format!("{}.slice-with-a-long-name-{number}", 1 << 20),
            &spent(0),
        );
    }
    std::thread::sleep(std::time::Duration::from_millis(2)); // a reading is used for 1 ms
    is_free(&mut worker, spare - (300 << 20));
}

#[test]
fn a_promise_of_its_own_that_cannot_be_written_breaks_nothing() {
    let promised = Promised::new(40 * GIB);
    std::fs::remove_file(&promised.own).unwrap();
    let target = promised.folder.path().join("target");
    write(&target, b"untouched");
    symlink(&target, &promised.own).unwrap();
    let mut worker = promised.slice.worker();
    worker.must(&format!("alloc 0 {GIB}"));
    is_free(&mut worker, 39 * GIB - CONTEXT);
    assert_eq!(std::fs::read(&target).unwrap(), b"untouched");
    std::fs::remove_file(&promised.own).unwrap();
    std::fs::create_dir(&promised.own).unwrap();
    worker.must("free 0");
    is_free(&mut worker, 40 * GIB - CONTEXT);
}

#[test]
fn the_folder_may_be_gone() {
    let promised = Promised::new(40 * GIB);
    let mut worker = promised.slice.worker();
    std::fs::remove_dir_all(promised.folder.path()).unwrap();
    worker.must(&format!("alloc 0 {GIB}"));
    is_free(&mut worker, 39 * GIB - CONTEXT);
}

/// Allocates and frees 200 times.
fn pile(worker: &mut Worker) {
    worker.must(&format!("pile 200 {STEP} 0"));
}

/// The library writes its promise at every allocation. The lowest free number was standard error's,
/// and a message of the program could get into the file.
#[test]
fn a_promise_is_never_written_by_the_number_of_a_standard_stream() {
    let mut promised = Promised::new(40 * GIB);
    let filtered = compile::compile("cc", "c/filtered.c", "filtered", &[]);
    let run = promised.slice.run(filtered);
    let pwrite = format!("{}<3", libc::SYS_pwrite64);
    let run = run.args([pwrite.as_str(), "kill"]);
    let mut worker = Worker::start(run.arg(compile::worker()));
    worker.must("start 0");
    worker.must("close 2");
    // After a resize, the file is opened by the name that it has in its folder.
    for (number, budget) in [(1, 40 * GIB), (2, 50 * GIB)] {
        promised.is_renamed(budget);
        worker.must(&format!("alloc {number} {GIB}"));
        pile(&mut worker);
        assert_eq!(promised.spent(), number * GIB + CONTEXT);
        let descriptor = format!("/proc/{}/fd/2", worker.pid());
        let is_open = std::fs::symlink_metadata(descriptor).is_ok();
        assert!(!is_open, "the number stays free");
    }
}

/// Messages of the program got into the ledger, and the slice refused all memory from then on.
#[test]
fn messages_for_a_closed_standard_error_get_into_no_file_of_the_slice() {
    let promised = Promised::new(40 * GIB);
    let mut worker = promised.slice.worker();
    worker.must("close 2");
    worker.must("shout");
    for _ in 0..10 {
        pile(&mut worker);
        assert_eq!(promised.spent(), CONTEXT);
    }
    let [0, tried, written] = worker.ask("hush")[..] else {
        panic!("the thread does not end");
    };
    assert_eq!(written, 0, "of {tried}");
    let file = std::fs::read(&promised.own).unwrap();
    assert_eq!(file[8..], [0; 4088], "the rest of the promise");
    assert_eq!(promised.slice.counted(), CONTEXT);
}
