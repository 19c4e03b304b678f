//! Processes that end at every step, in every way: the next look is right, at once.
//! Touches: real processes. `GPUSLICE_KILLS` sets how many are killed at each of the 15 steps; it is
//! 667 otherwise, which makes 10,000 and takes some six seconds.

use super::processes::{Child, End, LIMIT, Place, claim, exec_sleep, kill, robust_mutex};
use super::processes::{become_user, is_root, sleep, unshare};
use super::protocol::Step;
use super::shared::{Claim, Uncounted};
use crate::ledger::{Kind, SLOTS};
use crate::units::Bytes;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::vec::Vec;

/// The step at which this process kills itself.
static FATE: AtomicU32 = AtomicU32::new(0);

pub(super) fn at(step: Step) {
    if FATE.load(Relaxed) == step as u32 {
        kill(std::process::id().cast_signed());
    }
}

fn doom(step: Step) {
    FATE.store(step as u32, Relaxed);
}

fn kills() -> usize {
    let set = std::env::var("GPUSLICE_KILLS").ok();
    set.and_then(|count| count.parse().ok()).unwrap_or(667)
}

#[test]
fn a_process_killed_at_any_step_is_gone_at_the_next_look() {
    let place = Place::new();
    assert_eq!(place.claim(3), Claim::Granted);
    let life = |fate| {
        doom(fate);
        let ledger = place.open();
        let granted = claim(&ledger, place.gpu, 5);
        ledger.release(place.gpu, Bytes::new(2), Kind::Linear);
        let refused = claim(&ledger, place.gpu, LIMIT);
        assert!(granted == Claim::Granted && matches!(refused, Claim::Refused { .. }));
    };
    for fate in [
        Step::Seated,
        Step::UsedWiped,
        Step::AmountsWiped,
        Step::HeadWiped,
        Step::Owned,
        Step::Taken,
        Step::HintPending,
        Step::HintNamed,
        Step::HintLinked,
        Step::Published,
        Step::Granted,
        Step::Sorted,
        Step::Settled,
        Step::Withdrawn,
        Step::Released,
    ] {
        for _ in 0..kills() {
            let mut child = Child::fork(|_| life(fate));
            assert_eq!(child.wait(), End::Signal(libc::SIGKILL), "{fate:?}");
            assert_eq!(place.sum(), 3, "{fate:?}");
        }
    }
    assert_eq!(place.ledger.slots().count(), 1, "no slot is lost");
}

#[test]
fn who_clears_the_dead_away_may_be_killed_at_any_step_too() {
    let place = Place::new();
    assert_eq!(place.claim(3), Claim::Granted);
    for fate in [
        Step::Seated,
        Step::UsedWiped,
        Step::AmountsWiped,
        Step::HeadWiped,
    ] {
        for _ in 0..kills().div_ceil(4) {
            let mut holder = Child::fork(|_| {
                doom(Step::Settled);
                let _ = place.claim(500);
            });
            assert_eq!(holder.wait(), End::Signal(libc::SIGKILL));
            let mut reaper = Child::fork(|_| {
                doom(fate);
                let _ = place.sum();
            });
            assert_eq!(reaper.wait(), End::Signal(libc::SIGKILL), "{fate:?}");
            assert_eq!(place.sum(), 3, "{fate:?}");
        }
    }
    assert_eq!(place.ledger.slots().count(), 1, "no slot is lost");
}

#[test]
fn processes_killed_at_random_moments_leave_nothing() {
    let place = Place::new();
    assert_eq!(place.claim(3), Claim::Granted);
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    let mut roll = |sides: u64| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % sides
    };
    for _ in 0..kills().div_ceil(4) {
        let crowd = (0..4).map(|turn| {
            let child = Child::fork(|voice| {
                voice.say(1);
                for bytes in 1.. {
                    let bytes = bytes % 400 + turn;
                    if place.claim(bytes) == Claim::Granted {
                        place
                            .ledger
                            .release(place.gpu, Bytes::new(bytes), Kind::Linear);
                    }
                }
            });
            child.hear();
            child
        });
        let crowd = crowd.collect::<Vec<_>>();
        for _ in 0..roll(20_000) {
            core::hint::spin_loop();
        }
        assert!(place.sum() <= LIMIT, "over-commit");
        drop(crowd);
        assert_eq!(place.sum(), 3);
    }
}

#[test]
fn many_processes_at_once_never_hold_more_than_the_limit() {
    let place = Place::new();
    let crowd: Vec<_> = (0..8)
        .map(|_| {
            Child::fork(|_| {
                for _ in 0..2000 {
                    if place.claim(300) == Claim::Granted {
                        assert!(place.sum() <= LIMIT, "over-commit");
                        place
                            .ledger
                            .release(place.gpu, Bytes::new(300), Kind::Linear);
                    }
                }
            })
        })
        .collect();
    for mut child in crowd {
        assert_eq!(child.wait(), End::Exit(0));
    }
    assert_eq!(place.sum(), 0);
}

#[test]
fn of_threads_and_processes_that_fit_nobody_is_refused() {
    let place = Place::new();
    let crowd: Vec<_> = (0..5)
        .map(|_| {
            Child::fork(|_| {
                std::thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| {
                            for _ in 0..500 {
                                assert_eq!(place.claim(100), Claim::Granted);
                                place
                                    .ledger
                                    .release(place.gpu, Bytes::new(100), Kind::Linear);
                            }
                        });
                    }
                });
            })
        })
        .collect();
    for mut child in crowd {
        assert_eq!(child.wait(), End::Exit(0));
    }
}

#[test]
fn a_process_lives_on_after_the_thread_that_claimed() {
    let place = Place::new();
    let go = place.folder.path().join("go");
    let head = || place.ledger.file.table().nodes[0].head();
    let holder = Child::fork(|voice| {
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(place.claim(5), Claim::Granted));
        });
        // The scope ends before the thread's kernel part does.
        while head().hinted_alive() {
            std::thread::yield_now();
        }
        voice.say(1);
        while !go.exists() {
            std::thread::yield_now();
        }
        // Any call of another thread gives the slot a hint again, once the kernel is done.
        while !head().hinted_alive() {
            assert_eq!(place.sum(), 5);
        }
        voice.say(2);
        sleep();
    });
    assert_eq!(holder.hear(), 1);
    assert!(!head().hinted_alive());
    assert_eq!(place.sum(), 5);
    std::fs::write(go, "").unwrap();
    assert_eq!(holder.hear(), 2);
    assert_eq!(place.sum(), 5);
    holder.kill();
    assert_eq!(place.sum(), 0);
}

#[test]
fn a_forked_child_does_not_keep_what_its_killed_parent_held() {
    for fork in [Child::fork as fn(fn(_)) -> Child, Child::clone] {
        let place = Place::new();
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
    let place = Place::new();
    assert_eq!(place.claim(5), Claim::Granted);
    let child = Child::fork(|voice| {
        assert_eq!(place.ledger.own(place.gpu), Bytes::ZERO);
        // What the parent was granted is not the child's to give back.
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
    let place = Place::new();
    let parent = Child::fork(|voice| {
        // As if another thread had forked between two steps of taking a slot.
        let calls = super::calls::Calls::of(&place.ledger);
        let seat = super::protocol::Kernel::seat(&calls, 0).unwrap();
        assert!(super::protocol::Kernel::own(&calls, &seat, 0));
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
    let calls = super::calls::Calls::of(&place.ledger);
    assert!(super::protocol::Kernel::owner_lives(&calls, 0));
    parent.kill();
    assert!(!super::protocol::Kernel::owner_lives(&calls, 0));
    assert!(super::protocol::Kernel::seat(&calls, 0).is_some());
    kill(child);
}

#[test]
fn another_program_in_the_same_process_holds_nothing() {
    let place = Place::new();
    let child = Child::fork(|voice| {
        assert_eq!(place.claim(5), Claim::Granted);
        voice.say(1);
        exec_sleep();
    });
    assert_eq!(child.hear(), 1);
    let name = std::format!("/proc/{}/comm", child.pid);
    // The new program runs before the old one's address space is gone; nobody can wait for that.
    while place.sum() != 0 {
        assert!(place.sum() == 5 || place.sum() == 0);
        std::thread::yield_now();
    }
    assert_eq!(std::fs::read_to_string(&name).unwrap(), "sleep\n");
}

#[test]
fn a_program_started_by_a_killed_process_keeps_nothing() {
    let place = Place::new();
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
    let place = Place::new();
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
    let place = Place::new();
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
    let place = Place::new();
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
    assert_eq!(place.claim(1), Claim::Uncounted(Uncounted::Full));
    assert_eq!(place.ledger.uncounted(), 1);
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
    let place = Place::new();
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
    let place = Place::new();
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

/// The list that the hint is in belongs to the program's robust mutexes.
#[test]
fn robust_mutexes_of_the_program_work_beside_the_hint_even_a_garbled_one() {
    let place = Place::new();
    let mut child = Child::fork(|_| {
        let mutexes: [_; 4] = core::array::from_fn(|_| robust_mutex());
        let (ledger, gpu) = (&place.ledger, place.gpu);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(mutexes[0].lock(), 0);
                mutexes[0].unlock();
                assert_eq!(mutexes[1].lock(), 0);
                assert_eq!(claim(ledger, gpu, 5), Claim::Granted);
                assert_eq!(mutexes[2].lock(), 0);
                let node = &ledger.file.table().nodes[0];
                node.prev.store(0x1234_5678, SeqCst);
                mutexes[1].unlock();
                assert_eq!(mutexes[3].lock(), 0);
                mutexes[2].unlock();
                assert_eq!(mutexes[1].lock(), 0);
                node.next.store(0x1234_5678, SeqCst);
            });
        });
        // The thread ends with 1 and 3 locked; both are newer than the hint.
        assert_eq!(mutexes[1].lock(), libc::EOWNERDEAD);
        assert_eq!(mutexes[3].lock(), libc::EOWNERDEAD);
        assert_eq!((mutexes[0].lock(), mutexes[2].lock()), (0, 0));
    });
    assert_eq!(child.wait(), End::Exit(0));
}

#[test]
fn a_garbled_hint_harms_nobody_and_the_kernel_is_asked() {
    let place = Place::new();
    let holder = Child::fork(|voice| {
        assert_eq!(place.claim(5), Claim::Granted);
        voice.say(1);
        sleep();
    });
    assert_eq!(holder.hear(), 1);
    let node = &place.ledger.file.table().nodes[0];
    for garbage in [0u64, 1, 8, 0x7fff_ffff_f000, u64::MAX] {
        node.next.store(garbage, SeqCst);
        node.prev.store(garbage, SeqCst);
        assert_eq!(place.sum(), 5);
    }
    // A neighbour takes the thread's name away: the kernel cannot say that it has died.
    node.set_word(0);
    holder.kill();
    assert_eq!(place.sum(), 0);
}

#[test]
fn a_death_that_left_no_hint_is_seen_before_anybody_is_refused() {
    let place = Place::new();
    let holder = Child::fork(|voice| {
        assert_eq!(place.claim(900), Claim::Granted);
        voice.say(1);
        sleep();
    });
    assert_eq!(holder.hear(), 1);
    let node = &place.ledger.file.table().nodes[0];
    node.set_word(1);
    holder.kill();
    assert!(node.head().hinted_alive());
    assert_eq!(place.claim(900), Claim::Granted);
    assert_eq!(place.sum(), 900);
}
