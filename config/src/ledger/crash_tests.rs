//! Crash tests: processes end at every step and in every way, and the next read is correct at once.
//! Touches: real processes. `GPUSLICE_KILLS` sets how many are killed at each of the 15 steps; the
//! default of 667 makes 10,000 and takes some six seconds.

use super::Claim;
use super::processes::{Child, End, LIMIT, TestLedger, claim, kill, robust_mutex, sleep};
use super::protocol::kernel::Step;
use crate::ledger::Kind;
use crate::words::units::Bytes;
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
    let place = TestLedger::new();
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
        Step::SlotLocked,
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
    let place = TestLedger::new();
    assert_eq!(place.claim(3), Claim::Granted);
    for fate in [
        Step::SlotLocked,
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
    let place = TestLedger::new();
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
    let place = TestLedger::new();
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
    let place = TestLedger::new();
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
    let place = TestLedger::new();
    let go = place.folder.path().join("go");
    let head = || place.ledger.table.nodes[0].head();
    let holder = Child::fork(|voice| {
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(place.claim(5), Claim::Granted));
        });
        // The scope ends before the kernel has finished ending the thread.
        while head().hinted_alive() {
            std::thread::yield_now();
        }
        voice.say(1);
        while !go.exists() {
            std::thread::yield_now();
        }
        // Once the kernel is done, a call of any other thread gives the slot a hint again.
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

/// The robust list with the hint also contains the program's robust mutexes.
#[test]
fn robust_mutexes_of_the_program_work_beside_the_hint_even_a_garbled_one() {
    let place = TestLedger::new();
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
                let node = &ledger.table.nodes[0];
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
    let place = TestLedger::new();
    let holder = Child::fork(|voice| {
        assert_eq!(place.claim(5), Claim::Granted);
        voice.say(1);
        sleep();
    });
    assert_eq!(holder.hear(), 1);
    let node = &place.ledger.table.nodes[0];
    for garbage in [0u64, 1, 8, 0x7fff_ffff_f000, u64::MAX] {
        node.next.store(garbage, SeqCst);
        node.prev.store(garbage, SeqCst);
        assert_eq!(place.sum(), 5);
    }
    // A neighbour clears the thread id, so the kernel cannot mark the thread's death.
    node.set_word(0);
    holder.kill();
    assert_eq!(place.sum(), 0);
}

#[test]
fn a_death_that_left_no_hint_is_seen_before_anybody_is_refused() {
    let place = TestLedger::new();
    let holder = Child::fork(|voice| {
        assert_eq!(place.claim(900), Claim::Granted);
        voice.say(1);
        sleep();
    });
    assert_eq!(holder.hear(), 1);
    let node = &place.ledger.table.nodes[0];
    node.set_word(1);
    holder.kill();
    assert!(node.head().hinted_alive());
    assert_eq!(place.claim(900), Claim::Granted);
    assert_eq!(place.sum(), 900);
}
