//! A run whose folder is removed while the run goes on, as the last logout removes a user's files
//! in /dev/shm. Programs that start later are still counted and refused.
//! Touches: `gpuslice run`, on a simulated card with a context of 254 MiB.

use super::started_run::{CONTEXT, StartedRun};
use gpuslice_config::ledger::{Ledger, Open};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::OUT_OF_MEMORY;
use std::ffi::CString;

#[test]
fn what_is_started_after_the_folder_was_removed_is_counted_and_refused() {
    let mut run = StartedRun::holding_5_gib();
    run.wait_for_the_watcher();
    let slice_file = run.environment.slice_file();
    std::fs::remove_dir_all(slice_file.parent().unwrap()).unwrap();

    let mut second = run.environment.worker_with_context();
    assert_eq!(second.free(), 3 * GIB - 2 * CONTEXT);
    assert_eq!(second.code(&format!("alloc 0 {}", 3 * GIB)), OUT_OF_MEMORY);
    second.must(&format!("alloc 0 {}", 2 * GIB));
    assert_eq!(run.first.free(), GIB - 2 * CONTEXT);
    // The first process sees that the second has ended.
    second.kill();
    assert_eq!(run.first.free(), 3 * GIB - CONTEXT);
    run.first.kill();
    let mut third = run.environment.worker_with_context();
    assert_eq!(third.free(), 8 * GIB - CONTEXT);
}

/// A launcher that passes on only some variables must not lift the limit.
#[test]
fn a_program_that_lost_the_name_of_the_slice_file_keeps_its_limit() {
    let mut run = StartedRun::new();
    run.environment.0.remove("GPUSLICE_CONFIG").unwrap();
    let mut second = run.environment.worker_with_context();
    assert_eq!(second.free(), 8 * GIB - 2 * CONTEXT);
    assert_eq!(second.code(&format!("alloc 0 {}", 8 * GIB)), OUT_OF_MEMORY);
}

/// An empty ledger in place of the run's own gave programs that started later a second budget.
#[test]
fn another_ledger_in_the_place_of_the_runs_own_is_no_second_budget() {
    let mut run = StartedRun::holding_5_gib();
    let ledger = run.path("ledger");
    let empty = run.machine.folder().join("empty");
    let path = CString::new(empty.as_os_str().as_encoded_bytes()).unwrap();
    let (mode, devices) = (0o666, 1);
    Ledger::open(&path, Open::Create { mode, devices }).unwrap();
    std::fs::remove_file(&ledger).unwrap();
    std::fs::copy(&empty, &ledger).unwrap();
    run.has_no_second_budget();
}
