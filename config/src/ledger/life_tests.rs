//! Tests that a process is counted as long as it lives. It may fork, exec, close all its files, or
//! belong to another namespace or user.
//! Touches: real processes.

use super::processes::{
    Child, End, LIMIT, TestLedger, become_user, claim, exec_sleep, is_root, kill, sleep, unshare,
};
use super::{Claim, NoSlot};
use crate::ledger::{Kind, SLOTS};
use crate::words::units::Bytes;
use std::os::unix::fs::MetadataExt;
use std::vec::Vec;

#[test]
fn a_forked_child_does_not_keep_what_its_killed_parent_held() {
    for fork in [Child::fork as fn(fn(_)) -> Child, Child::clone] {
        let place = TestLedger::new();
        let parent = Child::fork(|voice| {
            assert_eq!(place.claim(5), Claim::Granted);
            let child = fork(|_| sleep());
            voice.say(child.pid);
            sleep();
        });
        let child = parent.hear();
        assert_eq!(place.sum(), 5);
        parent.kill();
        assert_eq!(place.sum(), 0);
        kill(child);
    }
}

#[test]
fn a_forked_child_owns_nothing_and_gets_a_slot_of_its_own() {
    let place = TestLedger::new();
    assert_eq!(place.claim(5), Claim::Granted);
    let child = Child::fork(|voice| {
        assert_eq!(place.ledger.own(place.gpu), Bytes::ZERO);
        // A child cannot release memory that was granted to its parent.
        place.ledger.release(place.gpu, Bytes::new(5), Kind::Linear);
        assert_eq!(place.sum(), 5);
        assert_eq!(place.claim(7), Claim::Granted);
        assert_eq!(place.ledger.own(place.gpu), Bytes::new(7));
        voice.say(1);
        sleep();
    });
    assert_eq!(child.hear(), 1);
    assert_eq!(place.sum(), 12);
    child.kill();
    assert_eq!(place.sum(), 5);
}

#[test]
fn a_child_forked_while_a_slot_is_taken_closes_what_it_inherited() {
    let place = TestLedger::new();
    let parent = Child::fork(|voice| {
        // As if another thread had forked between two steps of taking a slot.
        let session = place.ledger.session();
        let lock = super::protocol::kernel::Kernel::lock_slot(&session, 0).unwrap();
        assert!(super::protocol::kernel::Kernel::own(&session, &lock, 0));
        let child = Child::fork(|voice| {
            let _ = place.sum();
            voice.say(1);
            sleep();
        });
        assert_eq!(child.hear(), 1);
        voice.say(child.pid);
        sleep();
    });
    let child = parent.hear();
    let session = place.ledger.session();
    assert!(super::protocol::kernel::Kernel::owner_lives(&session, 0));
    parent.kill();
    assert!(!super::protocol::kernel::Kernel::owner_lives(&session, 0));
    assert!(super::protocol::kernel::Kernel::lock_slot(&session, 0).is_some());
    kill(child);
}

#[test]
fn another_program_in_the_same_process_holds_nothing() {
    let place = TestLedger::new();
    let child = Child::fork(|voice| {
        assert_eq!(place.claim(5), Claim::Granted);
        voice.say(1);
        exec_sleep();
    });
    assert_eq!(child.hear(), 1);
    let name = std::format!("/proc/{}/comm", child.pid);
    // The new program runs before the old address space is gone; no call can wait for that.
    while place.sum() != 0 {
        assert!(place.sum() == 5 || place.sum() == 0);
        std::thread::yield_now();
    }
    assert_eq!(std::fs::read_to_string(&name).unwrap(), "sleep\n");
}

#[test]
fn a_program_started_by_a_killed_process_keeps_nothing() {
    let place = TestLedger::new();
    let parent = Child::fork(|voice| {
        assert_eq!(place.claim(5), Claim::Granted);
        let program = std::process::Command::new("/bin/sleep").arg("1000").spawn();
        voice.say(program.unwrap().id().cast_signed());
        sleep();
    });
    let program = parent.hear();
    assert_eq!(place.sum(), 5);
    parent.kill();
    assert_eq!(place.sum(), 0);
    kill(program);
}

#[test]
fn a_process_that_closes_every_descriptor_is_still_counted() {
    let place = TestLedger::new();
    let child = Child::fork(|voice| {
        assert_eq!(place.claim(5), Claim::Granted);
        voice.say(1);
        for fd in 0..1000 {
            super::processes::close(fd);
        }
        let claimed = place.claim(1);
        if claimed != Claim::Granted {
            super::processes::exit(1);
        }
        sleep();
    });
    assert_eq!(child.hear(), 1);
    while place.sum() < 6 {
        std::thread::yield_now();
    }
    assert_eq!(place.ledger.slots().count(), 1, "alive to the kernel");
    child.kill();
    assert_eq!(place.sum(), 0);
}

#[test]
fn no_descriptor_stays_open() {
    let place = TestLedger::new();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut child = Child::fork(|_| {
        let before = count();
        assert_eq!(place.claim(5), Claim::Granted);
        assert!(matches!(place.claim(LIMIT), Claim::Refused { .. }));
        assert_eq!(place.sum(), 5);
        assert_eq!(count(), before);
    });
    assert_eq!(child.wait(), End::Exit(0));
}

#[test]
fn a_full_table_says_so_and_a_death_makes_room() {
    let place = TestLedger::new();
    let hold = || {
        let child = Child::fork(|voice| {
            voice.say(i32::from(place.claim(1) == Claim::Granted));
            sleep();
        });
        assert_eq!(child.hear(), 1);
        child
    };
    let mut crowd: Vec<_> = (0..SLOTS).map(|_| hold()).collect();
    assert_eq!(place.sum(), SLOTS as u64);
    assert_eq!(place.claim(1), Claim::NoSlot(NoSlot::Full(512)));
    assert_eq!(place.ledger.uncounted(), 1);
    let file = std::fs::metadata(place.path()).unwrap();
    let most = 164 << 10;
    assert!(file.len() <= most, "a ledger has 164 KiB, whoever holds");
    assert!((1..=most).contains(&(file.blocks() * 512)), "{file:?}");
    crowd.remove(200).kill();
    assert_eq!(place.sum(), SLOTS as u64 - 1);
    crowd.push(hold());
    assert_eq!(place.sum(), SLOTS as u64);
    drop(crowd);
    assert_eq!(place.sum(), 0);
}

#[test]
fn processes_of_two_pid_namespaces_count_together() {
    if !is_root() {
        std::eprintln!("skipped: needs root");
        return;
    }
    let place = TestLedger::new();
    let outside = Child::fork(|voice| {
        assert!(unshare(libc::CLONE_NEWPID));
        let mut first = Child::fork(|inside| {
            assert_eq!(std::process::id(), 1);
            assert_eq!(place.claim(5), Claim::Granted);
            inside.say(1);
            sleep();
        });
        assert_eq!(first.hear(), 1);
        voice.say(first.pid);
        // Killed from outside.
        assert_eq!(first.wait(), End::Signal(libc::SIGKILL));
        voice.say(2);
        sleep();
    });
    let inside = outside.hear();
    assert_eq!(place.claim(3), Claim::Granted);
    assert_eq!(place.sum(), 8);
    let record = place.ledger.slots().next().unwrap();
    assert_eq!((record.pid, record.used), (1, 5));
    kill(inside);
    assert_eq!(outside.hear(), 2);
    assert_eq!(place.sum(), 3);
}

#[test]
fn processes_of_two_users_count_together() {
    if !is_root() {
        std::eprintln!("skipped: needs root");
        return;
    }
    let place = TestLedger::new();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
    std::fs::set_permissions(place.folder.path(), open).unwrap();
    let nobody = Child::fork(|voice| {
        assert!(become_user(65534));
        let ledger = place.open();
        assert_eq!(claim(&ledger, place.gpu, 5), Claim::Granted);
        voice.say(1);
        while ledger.sum(place.gpu) != Bytes::new(8) {
            std::thread::yield_now();
        }
        voice.say(2);
        sleep();
    });
    assert_eq!(nobody.hear(), 1);
    assert_eq!(place.claim(3), Claim::Granted);
    assert_eq!(nobody.hear(), 2);
    nobody.kill();
    assert_eq!(place.sum(), 3);
}
