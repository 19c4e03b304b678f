//! A hook is killed, a container is never deleted, a pid is reused: no resource is left behind, and
//! no memory is promised twice.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{CARD, Container, Host, hook, is_root, patience};
use gpuslice_config::ledger::{Kind, Ledger, Open};
use gpuslice_config::words::units::Bytes;
use gpuslice_hook::base::crash_points::CRASH_POINTS;
use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

#[test]
fn killed_at_any_step_it_leaves_nothing_once_the_container_is_gone() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    for step in CRASH_POINTS {
        let mut container = host.container(&format!("at-{step}"));
        let said = container.hook(&["--die-at", step, "createRuntime"]);
        assert_eq!(said.status.signal(), Some(9), "{step}: {said:?}");
        // The runtime abandons the container.
        container.dies();
        host.collect();
        assert_eq!(host.left(), Vec::<String>::new(), "{step}");
    }
}

#[test]
fn killed_at_any_step_it_costs_the_next_container_nothing() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let all = [("gpuslice.io/memory", "24GiB")];
    for step in CRASH_POINTS {
        let mut killed = host.asking("killed", &all);
        let said = killed.hook(&["--die-at", step, "createRuntime"]);
        assert_eq!(said.status.signal(), Some(9), "{step}: {said:?}");
        killed.dies();
        // No collector has run, so the next hook collects.
        let next = host.asking("next", &all);
        next.is_given_its_slice();
        assert!(next.hook(&["poststop"]).status.success());
        assert_eq!(host.left(), Vec::<String>::new(), "{step}");
    }
}

#[test]
fn killed_at_any_step_the_same_container_can_be_tried_again() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    for step in CRASH_POINTS {
        let container = host.container("again");
        let said = container.hook(&["--die-at", step, "createRuntime"]);
        assert_eq!(said.status.signal(), Some(9), "{step}: {said:?}");
        container.is_given_its_slice();
        assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n", "{step}");
        assert!(
            container.inside(".gpuslice/ledger/ledger").exists(),
            "{step}"
        );
        assert!(container.hook(&["poststop"]).status.success());
        assert_eq!(host.left(), Vec::<String>::new(), "{step}");
    }
}

#[test]
fn a_container_that_no_runtime_deletes_holds_nothing_when_it_is_dead() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let all = [("gpuslice.io/memory", "24GiB")];
    let mut first = host.asking("first", &all);
    first.is_given_its_slice();
    let second = host.asking("second", &all);
    let said = second.is_refused();
    assert!(
        said.contains("no room for second: GPU 0 (Card, 24.00 GiB) has 0 B left")
            && said.contains("held by first 24.00 GiB"),
        "{said}"
    );
    first.dies();
    second.is_given_its_slice();
}

#[test]
fn a_process_number_that_came_again_keeps_no_slice_alive() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    container.is_given_its_slice();
    let record = host.run("slices/c1.json");
    let text = fs::read_to_string(&record).unwrap();
    let (before, after) = text.split_once("\"starttime\":").unwrap();
    let end = after.find([',', '}']).unwrap();
    fs::write(&record, format!("{before}\"starttime\":1{}", &after[end..])).unwrap();
    host.collect();
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_container_of_the_same_id_that_lives_is_not_robbed() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let first = host.container("same");
    first.is_given_its_slice();
    let second = host.container("same");
    let said = second.is_refused();
    let expected = format!(
        "a container same is running already (process {}",
        first.pid()
    );
    assert!(said.contains(&expected), "{said}");
    // The poststop of another runtime does not remove the slice either.
    let state = r#"{"ociVersion":"1.0","id":"same","status":"stopped","bundle":"/elsewhere"}"#;
    assert!(hook(&host, &["poststop"], state).status.success());
    assert!(host.run("slices/same.json").exists());
    assert!(first.hook(&["poststop"]).status.success());
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn two_hundred_containers_at_once_never_exceed_the_budget() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    // Twenty containers of 1.2 GiB fit into 24 GiB.
    let ask = [("gpuslice.io/memory", "1228MiB")];
    let containers: Vec<Container<'_>> = (0..200)
        .map(|n| host.asking(&format!("c{n}"), &ask))
        .collect();
    let outcome = |container: &Container<'_>| {
        let said = container.hook(&["createRuntime"]);
        let told = String::from_utf8(said.stderr).unwrap();
        match said.status.code() {
            Some(0) => true,
            Some(1) if told.contains("no room for") => false,
            _ => panic!("{told}"),
        }
    };
    let admitted: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = containers
            .chunks(10)
            .map(|some| scope.spawn(move || some.iter().filter(|one| outcome(one)).count()))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum()
    });
    assert_eq!(admitted, 20);
    assert_eq!(fs::read_dir(host.run("slices")).unwrap().count(), 20);
    drop(containers);
    host.collect();
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_removed_is_named_and_keeps_nobody_else_from_starting() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut first = host.container("first");
    first.is_given_its_slice();
    let stuck = host.run("containers/first/root").display().to_string();
    let mount = |arguments: &[&str]| {
        let mut command = std::process::Command::new(arguments[0]);
        assert!(
            patience::output(command.args(&arguments[1..]))
                .status
                .success()
        );
    };
    mount(&["mount", "-t", "tmpfs", "t", &stuck]);
    first.dies();
    let second = host.container("second");
    let said = second.hook(&["createRuntime"]);
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.success(), "{told}");
    assert!(
        told.contains("cannot remove") && told.lines().count() == 1,
        "{told}"
    );
    // The slice counts until it is removed.
    let third = host.asking("third", &[("gpuslice.io/memory", "9GiB")]);
    assert!(
        third
            .is_refused()
            .contains("held by first 8.00 GiB, second 8.00 GiB")
    );
    mount(&["umount", &stuck]);
    third.is_given_its_slice();
}

/// A process that ends 300 ms after it has claimed memory of a slice, as one that was killed on a
/// machine whose processors are busy.
fn a_process_that_ends_late(host: &Host, slice: &str) -> libc::pid_t {
    let path = host.run("ledgers").join(slice).join("ledger");
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let (mut claimed, claims) = std::io::pipe().unwrap();
    // SAFETY: the child makes system calls only, and does not return.
    match unsafe { libc::fork() } {
        0 => {
            if let Ok(ledger) = Ledger::open(&path, Open::Existing)
                && let Some(device) = CARD.parse().ok().and_then(|card| ledger.device(&card))
            {
                ledger.claim(device, Bytes::mib(1), Kind::Linear, Bytes::MAX);
                let _ = (&claims).write_all(b"x");
                std::thread::sleep(Duration::from_millis(300));
            }
            // SAFETY: no pointers.
            unsafe { libc::_exit(0) }
        }
        child => {
            drop(claims);
            claimed.read_exact(&mut [0]).unwrap();
            child
        }
    }
}

#[test]
fn a_slice_is_released_though_its_last_process_needs_a_while_to_die() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.container("late");
    container.is_given_its_slice();
    let child = a_process_that_ends_late(&host, "late");
    container.dies();
    let said = container.hook(&["poststop"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    assert_eq!(host.left(), Vec::<String>::new());
    // SAFETY: no pointers.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}
