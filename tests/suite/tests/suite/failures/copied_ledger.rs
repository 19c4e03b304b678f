//! A copy of a run's ledger at the ledger's path: programs that start later are refused.
//! Touches: `gpuslice run`, on a simulated card with a context of 254 MiB.

use super::started_run::{CONTEXT, StartedRun};
use gpuslice_suite::slice::GIB;
use std::path::Path;

/// A run whose first process holds 5 GiB, and whose watcher has the ledger open.
fn started() -> StartedRun {
    let started = StartedRun::holding_5_gib();
    started.wait_for_the_watcher();
    started
}

/// `cp ledger copy; mv copy ledger`
fn copy_and_rename(ledger: &Path) {
    let copy = ledger.with_file_name("copy");
    std::fs::copy(ledger, &copy).unwrap();
    std::fs::rename(&copy, ledger).unwrap();
}

/// `mv ledger old; cp old ledger`
fn rename_and_copy(ledger: &Path) {
    let old = ledger.with_file_name("old");
    std::fs::rename(ledger, &old).unwrap();
    std::fs::copy(&old, ledger).unwrap();
}

#[test]
fn a_copy_renamed_over_the_ledger_is_no_second_budget() {
    let mut started = started();
    copy_and_rename(&started.path("ledger"));
    started.has_no_second_budget();
}

#[test]
fn a_copy_of_the_renamed_ledger_is_no_second_budget() {
    let mut started = started();
    rename_and_copy(&started.path("ledger"));
    started.has_no_second_budget();
}

/// The descriptor of a watcher that has ended names nothing, or another process's file.
#[test]
fn a_ledger_whose_watcher_has_ended_is_still_used() {
    let mut started = started();
    let descriptor = started.path("ledger_descriptor");
    let pid = descriptor.iter().nth(2).unwrap().to_str().unwrap();
    // SAFETY: kill takes two numbers; the process is the run's watcher.
    let killed = unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
    assert_eq!(killed, 0);
    let mut second = started.environment.worker();
    second.must("start 0");
    assert_eq!(second.free(), 3 * GIB - 2 * CONTEXT);

    // A process with another file in the watcher's place.
    let other = started.path("ledger").with_file_name("other");
    std::fs::write(&other, "no ledger").unwrap();
    let input = std::fs::File::open(&other).unwrap();
    let mut sleeps = std::process::Command::new("sleep");
    let mut stranger = sleeps.arg("1000").stdin(input).spawn().unwrap();
    started.slice["ledger_descriptor"] = format!("/proc/{}/fd/0", stranger.id()).into();
    let slice = serde_json::to_vec(&started.slice).unwrap();
    std::fs::write(started.environment.slice_file(), slice).unwrap();
    let mut third = started.environment.worker();
    third.must("start 0");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(third.free(), 3 * GIB - 3 * CONTEXT);
}
