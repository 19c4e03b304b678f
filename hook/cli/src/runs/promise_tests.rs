//! The promises of a machine: made one at a time, and removed with their makers.

use super::*;
use gpuslice_config::promises::SIZE;
use gpuslice_host::machine::process::ProcessId;
use nix::unistd::Pid;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

fn host(available: u64) -> HostMemory {
    HostMemory {
        total: Bytes::gib(121),
        free: Bytes::gib(40),
        available: Bytes::gib(available),
    }
}

fn machine() -> (tempfile::TempDir, Promises) {
    let state = tempfile::tempdir().unwrap();
    // The test's process represents many processes, so no promise counts as one of its former
    // slices.
    let promises = Promises::in_folder(&state.path().join(FOLDER));
    (state, promises)
}

fn make(promises: &Promises, name: &str, budget: u64) -> Result<OwnPromise, PromiseError> {
    promises.make(
        name,
        Bytes::gib(budget),
        || Ok(host(60)),
        Bytes::gib(8),
        false,
    )
}

#[test]
fn promises_are_made_until_the_host_has_no_more_and_come_back() {
    let (_state, promises) = machine();
    let first = make(&promises, "first", 40).unwrap();
    let facts = fs::metadata(first.file.as_ref().unwrap()).unwrap();
    assert_eq!(facts.len(), SIZE as u64);
    // Slices of other users must be able to read how much of the promise is used.
    let mode = if nix::unistd::geteuid().is_root() {
        0o666
    } else {
        0o644
    };
    assert_eq!(facts.permissions().mode() & 0o777, mode);
    let refused = make(&promises, "second", 13).unwrap_err().to_string();
    assert!(refused.contains("can promise 12.00 GiB"), "{refused}");
    let holder = format!(
        "\n  first (pid {})  40.00 GiB, 40.00 GiB of it not used",
        Pid::this()
    );
    assert!(refused.contains(&holder), "{refused}");
    let second = make(&promises, "second", 12).unwrap();
    assert!(make(&promises, "third", 1).is_err());
    drop(first);
    assert!(make(&promises, "third", 40).is_ok());
    drop(second);
    assert_eq!(promises.standing(), []);
}

#[test]
fn memory_that_a_neighbour_takes_while_a_slice_is_admitted_is_not_promised_again() {
    let (_state, promises) = machine();
    let first = make(&promises, "first", 40).unwrap();
    let file = first.file.clone().unwrap();
    // The neighbour spends its promise in the moment in which the host's memory is read.
    let host = || {
        fs::write(&file, (40u64 << 30).to_le_bytes()).unwrap();
        Ok(host(20))
    };
    let refused = promises.make("second", Bytes::gib(13), host, Bytes::gib(8), false);
    assert!(refused.is_err());
    assert!(
        promises
            .make("third", Bytes::gib(12), host, Bytes::gib(8), false)
            .is_ok()
    );
}

#[test]
fn memory_that_a_neighbour_frees_while_a_slice_is_admitted_is_still_promised_to_it() {
    let (_state, promises) = machine();
    let first = make(&promises, "first", 40).unwrap();
    let file = first.file.clone().unwrap();
    let spent = |gib: u64| fs::write(&file, (gib << 30).to_le_bytes()).unwrap();
    let host = || {
        spent(0);
        Ok(host(60))
    };
    spent(40);
    let refused = promises.make("second", Bytes::gib(13), host, Bytes::gib(8), false);
    assert!(refused.is_err());
    spent(40);
    assert!(
        promises
            .make("third", Bytes::gib(12), host, Bytes::gib(8), false)
            .is_ok()
    );
}

#[test]
fn what_is_started_all_the_same_is_promised_only_what_is_left() {
    let (_state, promises) = machine();
    let _first = make(&promises, "first", 40).unwrap();
    let over = promises.make("over", Bytes::gib(40), || Ok(host(60)), Bytes::gib(8), true);
    let over = over.unwrap();
    assert_eq!(over.overcommitted.as_ref().unwrap().budget, Bytes::gib(40));
    let budgets: Vec<Bytes> = promises.standing().iter().map(|one| one.budget).collect();
    assert_eq!(budgets, [Bytes::gib(40), Bytes::gib(12)]);
    let none = promises.make("none", Bytes::gib(1), || Ok(host(60)), Bytes::gib(8), true);
    assert_eq!(none.unwrap().file, None);
}

#[test]
fn what_the_dead_have_left_is_removed_and_what_containers_have_is_not() {
    let (_state, promises) = machine();
    drop(make(&promises, "first", 1).unwrap());
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let process = ProcessId::of(pid.as_raw()).unwrap();
    let write = |id: &str| {
        let name = promises::file_name(Bytes::gib(1), id).unwrap();
        promise_maker::write(&promises.folder.join(name)).unwrap();
    };
    write(&tenants::promise_id(&process, "lives"));
    let earlier = ProcessId {
        start_time: process.start_time - 1,
        ..process
    };
    write(&tenants::promise_id(&earlier, "another-of-that-number"));
    write("run@1.0.another");
    // A container with that name is not a run.
    write("run.1.5.x");
    // The end of a pod's uid looks like two numbers.
    write("8d7f0e5c-4444-4555-8666-777788880000");
    let names = || -> Vec<String> {
        let standing = promises.standing();
        standing.into_iter().map(|one| one.name).collect()
    };
    let containers = ["8d7f0e5c-4444-4555-8666-777788880000", "run.1.5.x"].map(str::to_owned);
    let living = [&containers[..], &[format!("lives (pid {pid})")]].concat();
    assert_eq!(names(), living);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(names(), containers);
    assert_eq!(fs::read_dir(&promises.folder).unwrap().count(), 2);
}

#[test]
fn a_private_folder_takes_only_a_runs_promise_with_it() {
    let (state, promises) = machine();
    let private = tempfile::tempdir().unwrap();
    let own = make(&promises, "first", 1).unwrap();
    remember(private.path(), &own).unwrap();
    forget(private.path());
    assert_eq!(promises.standing(), []);
    let precious = state.path().join("precious");
    fs::write(&precious, "x").unwrap();
    fs::remove_file(private.path().join(run_dir::PROMISE)).unwrap();
    symlink(&precious, private.path().join(run_dir::PROMISE)).unwrap();
    forget(private.path());
    assert!(precious.exists());
}
