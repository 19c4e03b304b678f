//! SIGKILL and SIGSTOP at every system call of a program's life in a slice, and signal storms.
//! Touches: a slice with a witness; traced programs.

use super::bench::driver_lock::DriverLock;
use super::bench::life::{Judge, LIVED};
use super::bench::slice::Bench;
use super::bench::trace::{Act, Call, Director, Traced, trace};
use super::row::{Fault, Outcome, Row, injections, right, spread};
use std::time::Duration;

/// How long a traced life may take: 0.1 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does nothing, and so counts the calls.
struct Counter;

impl Director for Counter {
    fn call(&mut self, _: &Call) -> Act {
        Act::Go
    }
}

/// The number of system calls of a life.
pub(super) fn calls_of_a_life(bench: &Bench) -> usize {
    let traced = trace(
        bench.life("life", Judge::Strictly),
        0,
        PATIENCE,
        &mut Counter,
    );
    assert_eq!(traced.end, LIVED, "{traced:?}");
    traced.calls
}

/// Acts once, at the call of this number.
pub(super) struct Once {
    pub(super) at: usize,
    pub(super) act: Act,
    pub(super) reached: bool,
}

impl Once {
    pub(super) fn new(at: usize, act: Act) -> Once {
        Once {
            at,
            act,
            reached: false,
        }
    }
}

impl Director for Once {
    fn call(&mut self, call: &Call) -> Act {
        match call.index == self.at {
            true => {
                self.reached = true;
                self.act
            }
            false => Act::Go,
        }
    }
}

fn killed_at(bench: &mut Bench, at: usize) -> Outcome {
    let mut once = Once::new(at, Act::Kill);
    let traced = trace(bench.life("life", Judge::Strictly), 0, PATIENCE, &mut once);
    right(traced.end == "signal 9", || format!("{traced:?}"))?;
    bench.is_clean()
}

#[test]
fn a_program_killed_at_any_call_leaves_its_slice_as_it_was() {
    let mut row = Row::new(
        "sigkill-program",
        "SIGKILL at every system call of a program's life",
    );
    let mut bench = Bench::new();
    let calls = calls_of_a_life(&bench);
    for at in spread(calls, injections(60)) {
        row.inject(format!("call {at} of {calls}"), || {
            killed_at(&mut bench, at)
        });
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

/// Stops the program at a call, and lets the witness work meanwhile.
struct Stop<'a> {
    at: usize,
    bench: &'a mut Bench,
    lock: DriverLock,
    stopped: bool,
    outcome: Outcome,
}

impl Director for Stop<'_> {
    fn call(&mut self, call: &Call) -> Act {
        let is_due = !self.lock.is_held(call) && !self.stopped && call.index >= self.at;
        self.stopped |= is_due;
        if is_due { Act::Stop } else { Act::Go }
    }

    fn stopped(&mut self) {
        self.outcome = self.bench.goes_on();
    }
}

fn stopped_at(bench: &mut Bench, at: usize) -> Outcome {
    // The witness allocates meanwhile, so the program's numbers are not exact.
    let run = bench.life("life", Judge::Safely);
    let mut stop = Stop {
        at,
        bench,
        lock: DriverLock::default(),
        stopped: false,
        outcome: Ok(()),
    };
    let traced: Traced = trace(run, 0, PATIENCE, &mut stop);
    let (reached, outcome) = (stop.stopped, stop.outcome);
    outcome?;
    right(reached, || {
        format!("call {at} was never reached: {traced:?}")
    })?;
    Judge::Strictly.traced(&traced)?;
    bench.is_clean()
}

#[test]
fn beside_a_program_stopped_at_any_call_others_go_on() {
    let mut row = Row::new(
        "sigstop-program",
        "SIGSTOP at every system call of a program's life",
    );
    let mut bench = Bench::new();
    let calls = calls_of_a_life(&bench);
    // The last calls are the exit, before which every lock is released.
    for at in spread(calls - 2, injections(40)) {
        row.inject(format!("call {at} of {calls}"), || {
            stopped_at(&mut bench, at)
        });
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

fn stormed(bench: &mut Bench) -> Outcome {
    let run = bench.life("life_storm", Judge::Strictly).arg("1000");
    let answer = run.patience(PATIENCE).answer();
    Judge::Strictly.answer(&answer)?;
    let signals: u64 = answer.stdout.trim().parse().unwrap_or_default();
    right(signals >= 1000, || {
        format!("only {signals} signals arrived")
    })?;
    bench.is_clean()
}

#[test]
fn in_a_storm_of_signals_every_answer_is_right() {
    let mut row = Row::new("signal-storm", "Storms of signals during a program's life");
    let mut bench = Bench::new();
    for round in 0..injections(6) {
        row.inject(format!("storm {round}"), || stormed(&mut bench));
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

/// Fails the row of a program that is traced but never ends.
#[test]
fn a_program_that_hangs_is_counted_as_a_hang() {
    let run = gpuslice_suite::run::Run::new("/bin/sleep").arg("100");
    let traced = trace(run, 0, Duration::from_millis(300), &mut Counter);
    assert!(traced.is_late && traced.end == "signal 9", "{traced:?}");
    assert!(matches!(Judge::Safely.traced(&traced), Err(Fault::Hang(_))));
}
