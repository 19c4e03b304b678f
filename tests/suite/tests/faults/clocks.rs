//! The wall clock jumps at each reading, and processes of one slice have different clocks.
//! Touches: traced programs, whose readings it changes; time namespaces; hosts of their own.

use super::bench::host::{EXECS, Host, PATIENCE};
use super::bench::life::{Judge, program};
use super::bench::slice::{Bench, LIMIT};
use super::bench::trace::{Act, Call, Director, Memory, trace};
use super::row::{Outcome, Row, injections, is_root, mixed, not_run, right};

/// Changes every reading of the wall clock in the traced processes. The kernel's other clocks never
/// jump.
struct Jumps {
    seed: u64,
    readings: u64,
}

impl Jumps {
    fn new(seed: u64) -> Jumps {
        Jumps { seed, readings: 0 }
    }
}

impl Director for Jumps {
    fn call(&mut self, _: &Call) -> Act {
        Act::Go
    }

    fn made(&mut self, call: &Call) {
        let clock = i32::try_from(call.arguments[0]);
        let is_wall = matches!(
            clock,
            Ok(libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE)
        );
        if call.number != libc::SYS_clock_gettime || !is_wall {
            return;
        }
        self.readings += 1;
        let random = mixed(self.seed << 20 | self.readings);
        // Up to a day; every fourth jump is of up to ten years.
        let most = if random.is_multiple_of(4) {
            315_360_000
        } else {
            86_400
        };
        let by = ((random >> 3) % most).cast_signed();
        let by = if random & 4 == 0 { by } else { -by };
        let memory = Memory::of(call.pid);
        if let Some(seconds) = memory.read(call.arguments[1]) {
            memory.write(call.arguments[1], seconds.wrapping_add_signed(by));
        }
    }

    fn is_done(&self) -> bool {
        false
    }

    fn hides_vdso(&self) -> bool {
        true
    }
}

fn life_with_jumps(bench: &mut Bench, seed: u64) -> Outcome {
    let mut jumps = Jumps::new(seed);
    // A refusal is logged with its time.
    let run = bench
        .life("life", Judge::Strictly)
        .env("GPUSLICE_LOG", "warn");
    let traced = trace(run, 0, PATIENCE, &mut jumps);
    Judge::Strictly.traced(&traced)?;
    right(jumps.readings > 0, || "no clock was read".into())?;
    bench.is_clean()
}

#[test]
fn clocks_that_jump_change_no_answer_of_a_program() {
    let mut row = Row::new(
        "clocks-program",
        "The wall clock jumps by up to ten years in a program",
    );
    let mut bench = Bench::new();
    for seed in 0..injections(5) {
        row.inject(format!("seed {seed}"), || {
            life_with_jumps(&mut bench, seed as u64)
        });
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

fn run_with_jumps(host: &Host, seed: u64) -> Outcome {
    let mut jumps = Jumps::new(seed);
    let traced = trace(host.life(Judge::Strictly), EXECS, PATIENCE, &mut jumps);
    Judge::Strictly.traced(&traced)?;
    right(jumps.readings > 0, || "no clock was read".into())?;
    host.is_as_new()
}

#[test]
fn clocks_that_jump_leave_nothing_of_a_run() {
    const NAME: &str = "clocks-run";
    const TITLE: &str = "The wall clock jumps by up to ten years in gpuslice run and its watcher";
    if !is_root() {
        return not_run(NAME, TITLE, "a host of its own needs root");
    }
    let mut row = Row::new(NAME, TITLE);
    let host = Host::new();
    for seed in 0..injections(3) {
        row.inject(format!("seed {seed}"), || {
            run_with_jumps(&host, seed as u64)
        });
    }
    row.finish();
}

/// A life in a time namespace, whose clocks are so many seconds away from the witness's.
fn life_at(bench: &mut Bench, seconds: i64) -> Outcome {
    let offset = seconds.to_string();
    let run = bench
        .slice
        .run("unshare")
        .args(["--time", "--fork", "--kill-child"]);
    let run = run.args(["--monotonic", &offset, "--boottime", &offset]);
    let run = run
        .arg(program("life"))
        .args(["strictly", &LIMIT.to_string()]);
    Judge::Strictly.answer(&run.answer())?;
    bench.is_clean()
}

#[test]
fn processes_with_different_clocks_share_a_slice() {
    const NAME: &str = "clocks-namespace";
    const TITLE: &str = "Processes of a slice have clocks that are years apart";
    if !is_root() || !std::path::Path::new("/proc/self/ns/time").exists() {
        return not_run(NAME, TITLE, "a time namespace needs root, and Linux 5.6");
    }
    let mut row = Row::new(NAME, TITLE);
    let mut bench = Bench::new();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime: i64 = uptime
        .split('.')
        .next()
        .and_then(|it| it.parse().ok())
        .unwrap_or(1);
    for round in 0..injections(4) {
        let random = mixed(round as u64).cast_signed();
        let seconds = match round % 2 {
            0 => random % 315_360_000,
            _ => -(random % uptime),
        };
        row.inject(format!("{seconds} s"), || life_at(&mut bench, seconds));
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}
