//! Identities of processes.
//! Touches: /proc, child processes.

use super::*;
use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::ForkResult;

#[test]
fn a_process_of_another_pid_namespace_is_not_taken_for_dead() {
    let own = InitProcess::of(i32::try_from(std::process::id()).unwrap()).unwrap();
    let here = here();
    let other = InitProcess {
        pid_namespace: own.pid_namespace.max(1) + 1,
        ..own
    };
    let elsewhere = |pid_namespace| ProcView {
        pid_namespace,
        ..here
    };
    assert_eq!(other.life_from(elsewhere(7)), Life::Unseen);
    assert!(is_populated(own.pid_namespace));
    assert_eq!(own.life_from(here), Life::Lives);
    // A record of an earlier version has only the pid.
    let early = InitProcess {
        pid_namespace: 0,
        boot: 0,
        ..own
    };
    assert_eq!(early.life_from(elsewhere(7)), Life::Lives);
    let before = InitProcess {
        boot: own.boot ^ 1,
        ..own
    };
    assert_eq!(before.life_from(elsewhere(7)), Life::Ended);
}

#[test]
fn a_start_time_is_the_same_in_every_time_namespace() {
    assert_eq!(
        ahead("monotonic           0         0\nboottime       864000         0\n"),
        86_400_000
    );
    assert_eq!(ahead("boottime -1 500000000\n"), -50);
    assert_eq!(ahead(""), 0);
    let own = InitProcess::of(i32::try_from(std::process::id()).unwrap()).unwrap();
    let ahead = ProcView {
        ahead: -5,
        ..here()
    };
    let seen = InitProcess {
        start_time: own.start_time + 5,
        ..own
    };
    assert_eq!(seen.life_from(ahead), Life::Lives);
    assert_eq!(own.life_from(ahead), Life::Ended);
    assert!(
        seen.is(&InitProcess {
            start_time: seen.start_time + 1,
            ..seen
        }) && !seen.is(&own)
    );
}

#[test]
fn the_age_of_a_process_is_the_time_since_its_start() {
    let own = InitProcess::of(i32::try_from(std::process::id()).unwrap()).unwrap();
    let age = own.age().unwrap();
    assert!(age < Duration::from_secs(3600), "{age:?}");
    let first = InitProcess {
        start_time: 0,
        ..own
    };
    assert!(first.age().unwrap() >= age);
    let before = InitProcess {
        boot: own.boot ^ 1,
        ..own
    };
    assert_eq!(before.age(), None);
}

#[test]
fn a_process_name_cannot_forge_the_fields_after_it() {
    let stat = b"17 (a) R 1 2) S 5 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
    let facts = parse(stat).unwrap();
    assert_eq!(
        facts,
        ProcStat {
            state: b'S',
            parent: 5,
            threads: 1,
            start_time: 4711
        }
    );
    let cut = b"17 (\xc3\xa9\xc3) S 5 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
    assert_eq!(parse(cut), Some(facts));
    assert_eq!(parse(b"17 (a"), None);
    assert_eq!(parse(b""), None);
}

#[test]
fn a_number_that_came_again_is_somebody_else() {
    let own = InitProcess::of(i32::try_from(std::process::id()).unwrap()).unwrap();
    assert!(own.lives());
    let earlier = InitProcess {
        start_time: own.start_time - 2,
        ..own
    };
    assert!(!earlier.lives());
    assert!(InitProcess::of(i32::MAX).is_err());
}

#[test]
fn a_process_that_has_ended_holds_nothing_even_before_it_is_waited_for() {
    let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let owner = InitProcess::of(pid).unwrap();
    let ended = || stat_of(pid).is_ok_and(|facts| facts.state == b'Z');
    let start = std::time::Instant::now();
    while !ended() {
        assert!(start.elapsed().as_secs() < 60, "/bin/true has not ended");
        std::thread::yield_now();
    }
    assert!(!owner.lives());
    child.wait().unwrap();
    assert!(!owner.lives());
}

#[test]
fn a_process_lives_after_its_main_thread_while_other_threads_run() {
    // SAFETY: the child starts a thread and ends, by system calls and glibc's own functions, whose
    // locks fork leaves free.
    let child = match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_secs(60));
                std::process::abort();
            });
            // SAFETY: it ends this thread alone, and nothing of the thread is used afterwards.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
            std::process::abort();
        }
    };
    let owner = InitProcess::of(child.as_raw());
    let start = std::time::Instant::now();
    let mut seen = stat_of(child.as_raw()).unwrap();
    while seen.state != b'Z' && start.elapsed().as_secs() < 60 {
        std::thread::yield_now();
        seen = stat_of(child.as_raw()).unwrap();
    }
    let alive = (
        seen.state,
        owner.as_ref().is_ok_and(InitProcess::lives),
        ProcessId::of(child.as_raw()).is_some_and(|process| process.lives()),
    );
    // SAFETY: takes numbers only.
    unsafe { libc::kill(child.as_raw(), libc::SIGKILL) };
    waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    let after = (
        owner.unwrap().lives(),
        ProcessId::of(child.as_raw()).is_some(),
    );
    waitpid(child, None).unwrap();
    assert_eq!((alive, after), ((b'Z', true, true), (false, false)));
}
