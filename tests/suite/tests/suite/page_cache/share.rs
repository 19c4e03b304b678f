//! Two loaders of one file tell each other which parts they still need. The disk is not read twice,
//! and no part of the file stays cached at the end.
//! Touches: `tests/clients/c/cuda_loader.c` on a simulated card, a model file of 512 MiB.

use gpuslice_suite::cache::{Models, length, resident, slice_file};
use gpuslice_suite::compile::{c, linked};
use gpuslice_suite::run::{Machine, Run};
use std::time::Duration;

/// Loads a file twice, the second time `lag` after the first. Returns the bytes that both loads
/// read from the disk, as a share of the file's length.
fn two(models: &Models, keys: &str, lag: Duration) -> f64 {
    let machine = Machine::new("rtx3090");
    let slice = slice_file(machine.folder(), keys);
    let program = linked("cuda_loader", "libcuda.so.1");
    let file = models.cold("model.bin");
    let load = || {
        // The simulated device takes 0.2 seconds for a tensor of 32 MiB, so it is slow on any
        // machine.
        let words = ["quiet-pass".as_ref(), file.as_os_str(), "0.2".as_ref()];
        let run = machine.place(Run::new(&program).args(words));
        run.with_shim().slice(&slice)
    };
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| load().answer().clean());
        // This lag is the subject of the test, and not a wait for the first load.
        std::thread::sleep(lag);
        (load().answer().clean(), first.join().unwrap())
    });
    let read = |said: &str| {
        let after = said.split_once("disk ").map(|(_, rest)| rest.trim());
        after.and_then(|bytes| bytes.parse::<u64>().ok()).unwrap()
    };
    assert_eq!(
        first.split_once('\n').map(|(sum, _)| sum.to_owned()),
        second.split_once('\n').map(|(sum, _)| sum.to_owned()),
        "both loads print the same checksum"
    );
    assert_eq!(resident(&file), 0, "bytes left in the page cache");
    (read(&first) + read(&second)) as f64 / length(&file) as f64
}

const SHARED: &str = "\"page_cache\":\"drop-behind\",\"page_cache_share\":true";

#[test]
fn a_second_loader_soon_after_reads_what_the_first_has_left_it() {
    let models = Models::of(512);
    let share = two(&models, SHARED, Duration::from_millis(300));
    assert!(
        (0.9..=1.5).contains(&share),
        "{share} of the file read from disk"
    );
}

#[test]
fn a_second_loader_later_reads_again_only_what_was_dropped_before_it_came() {
    let models = Models::of(512);
    let share = two(&models, SHARED, Duration::from_millis(1200));
    assert!(
        (0.9..=1.5).contains(&share),
        "{share} of the file read from disk"
    );
}

#[test]
fn a_program_that_locks_its_own_model_is_not_kept_waiting() {
    let models = Models::of(256);
    let locked = models.copy("locked.bin", "model.bin");
    let folder = tempfile::tempdir().unwrap();
    let model = models.cold("model.bin");
    let run = |how: &str| {
        let words = [how.as_ref(), model.as_os_str(), locked.as_os_str()];
        Run::new(c("loader")).args(words)
    };
    for how in ["locks", "lockf"] {
        let bare = run(how).answer().clean();
        for mode in ["drop", "drop-behind"] {
            let keys = format!("\"page_cache\":\"{mode}\",\"page_cache_share\":true");
            let slice = slice_file(folder.path(), &keys);
            let sliced = run(how).with_shim().slice(&slice).answer().clean();
            assert_eq!(sliced, bare, "{how}, {mode}");
        }
    }
}
