//! The law of the ledger: after any sequence of calls by up to eight processes of four threads,
//! with kills and changes of the limit at random moments, the ledger holds what the driver holds. It
//! never holds more than the limit in force, and nothing once all processes are gone.
//! Touches: workers in a slice, on a simulated RTX 3090. `GPUSLICE_LAW` sets how many programs each
//! test runs (default: 100, which take 10 seconds).

use crate::driver::limit::cgroups::Cgroup;
use crate::driver::limit::{self, held};
use gpuslice_config::ledger::Kind;
use gpuslice_sim_machine::{Kind as Truly, ProcessTruth};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, Worker};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

pub(super) const PROCESSES: usize = 8;
pub(super) const THREADS: usize = 4;
/// How many numbers a thread has for its allocations and handles; `free` releases one of them.
pub(super) const THINGS: usize = 10;
/// The bytes by which a pool grows at a time, where there is room.
const GROWTH: u64 = 32 << 20;
/// The first limit is small enough that programs reach it.
pub(super) const LIMIT: u64 = 6 * GIB;
/// The limits that are set later, in granules.
pub(super) const LIMITS: std::ops::Range<u64> = GIB / GRANULE..10 * GIB / GRANULE;

/// The act of one thread of one process.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Linear(u64),
    Pitch(u64, u64),
    Small(u64),
    Managed(u64),
    Async(u64),
    Pool,
    FromPool(usize, u64),
    Physical(u64),
    Map(usize),
    Retain(usize),
    Array(u64),
    Mipmap(u64),
    Context,
    Graph(u64),
    Free,
    Synchronize,
    Trim,
    TrimGraphs,
    Info,
}

/// One step of a program.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Does(usize, usize, usize, Act),
    /// Kills a process at any point of its work. Its next step starts a new process.
    Kill(usize),
    /// Changes the limit, while all threads are at work.
    Resize(u64),
    /// Waits for all processes, and checks the law.
    Look,
}

pub(super) fn act() -> impl Strategy<Value = Act> {
    let large = (1u64 << 20) + 1..400 << 20;
    let granules = (1u64..150).prop_map(|granules| granules * GRANULE);
    let thing = 0..THINGS;
    prop_oneof![
        6 => large.clone().prop_map(Act::Linear),
        2 => (1u64..100_000, 11u64..3000).prop_map(|(width, height)| Act::Pitch(width, height)),
        2 => (1u64..4096).prop_map(Act::Small),
        1 => large.clone().prop_map(Act::Managed),
        3 => large.clone().prop_map(Act::Async),
        3 => large.clone().prop_map(Act::Graph),
        1 => Just(Act::Pool),
        2 => (thing.clone(), large).prop_map(|(pool, bytes)| Act::FromPool(pool, bytes)),
        4 => granules.prop_map(Act::Physical),
        3 => thing.clone().prop_map(Act::Map),
        1 => thing.prop_map(Act::Retain),
        2 => (16u64..4096).prop_map(Act::Array),
        1 => (16u64..2048).prop_map(Act::Mipmap),
        1 => Just(Act::Context),
        12 => Just(Act::Free),
        1 => Just(Act::Synchronize),
        1 => Just(Act::Trim),
        1 => Just(Act::TrimGraphs),
        2 => Just(Act::Info),
    ]
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    let does = (0..PROCESSES, 0..THREADS, 0..THINGS, act())
        .prop_map(|(process, thread, thing, act)| Step::Does(process, thread, thing, act));
    let step = prop_oneof![
        60 => does,
        1 => (0..PROCESSES).prop_map(Step::Kill),
        3 => LIMITS.prop_map(|granules| Step::Resize(granules * GRANULE)),
        3 => Just(Step::Look),
    ];
    proptest::collection::vec(step, 1..500)
}

impl Act {
    /// Whether memory may come from a pool.
    pub(super) fn is_of_pools(&self) -> bool {
        matches!(self, Act::Async(_) | Act::FromPool(..))
    }

    /// Whether the act stores something under its number, which may already be in use.
    fn takes(&self) -> bool {
        !matches!(
            self,
            Act::Free | Act::Synchronize | Act::Trim | Act::TrimGraphs | Act::Info
        )
    }

    /// The worker's command for this act. Every thread has numbers of its own.
    fn line(&self, thread: usize, thing: usize) -> String {
        let number = |thing: usize| thread * THINGS + thing;
        let own = number(thing);
        match self {
            Act::Linear(bytes) | Act::Small(bytes) => format!("alloc {own} {bytes}"),
            Act::Pitch(width, height) => format!("pitch {own} {width} {height}"),
            Act::Managed(bytes) => format!("managed {own} {bytes}"),
            Act::Async(bytes) => format!("async {own} {bytes}"),
            Act::Pool => format!("pool {own}"),
            Act::FromPool(pool, bytes) => format!("from {own} {} {bytes}", number(*pool)),
            Act::Physical(bytes) => format!("create {own} {bytes}"),
            Act::Map(of) => format!("map {own} {}", number(*of)),
            Act::Retain(of) => format!("retain {own} {}", number(*of)),
            Act::Array(side) => format!("array {own} {side} {side}"),
            Act::Mipmap(side) => format!("mipmap {own} {side} {side}"),
            Act::Context => format!("context {own}"),
            Act::Free => format!("free {own}"),
            Act::Synchronize => "synchronize".into(),
            Act::Trim => "trim 0".into(),
            Act::Graph(bytes) => format!("graph {own} {bytes}"),
            Act::TrimGraphs => "trim-graphs".into(),
            Act::Info => "info".into(),
        }
    }
}

/// The processes of a program, and the slice that they are in.
pub(super) struct Play {
    pub(super) slice: Counted,
    pub(super) processes: [Option<Worker>; PROCESSES],
    /// Requests for pool memory that may still be open.
    growing: u64,
    /// The limit in force.
    pub(super) limit: u64,
    /// The cgroup for which the driver enforces the limit, if it does.
    held_by_driver: Option<Cgroup>,
}

impl Play {
    pub(super) fn new() -> Play {
        Play {
            slice: Counted::new("rtx3090", LIMIT),
            processes: Default::default(),
            growing: 0,
            limit: LIMIT,
            held_by_driver: None,
        }
    }

    /// A slice whose limit the driver holds for a cgroup, in which all processes are.
    fn held(scenario: &str, cgroup: Cgroup) -> Play {
        let slice = Counted::with(scenario, &held::keys(&cgroup, LIMIT));
        let folder = cgroup.folder.display().to_string();
        let _ = limit::set(&slice, &folder, "6GiB").clean();
        Play {
            slice,
            held_by_driver: Some(cgroup),
            ..Play::new()
        }
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Does(process, thread, thing, act) => {
                let (place, slice) = (&mut self.processes[*process], &self.slice);
                let cgroup = self.held_by_driver.as_ref();
                let worker = place.get_or_insert_with(|| {
                    let idle = |cgroup| held::idle(cgroup, slice);
                    let mut worker = cgroup.map_or_else(|| slice.idle(), idle);
                    // Without room for a context the start fails, and so do the later steps. The
                    // law still holds.
                    worker.code("start 0");
                    worker
                });
                if act.takes() {
                    worker.send(*thread, &Act::Free.line(*thread, *thing));
                }
                worker.send(*thread, &act.line(*thread, *thing));
                self.growing += u64::from(act.is_of_pools());
            }
            Step::Kill(process) => {
                if let Some(worker) = self.processes[*process].take() {
                    worker.kill();
                }
            }
            Step::Resize(limit) => {
                if self.slice.resize(*limit) {
                    self.limit = *limit;
                }
            }
            Step::Look => self.look(),
        }
        self.within_the_limit();
    }

    /// Asserts that the slice holds no more than its limit. The growth of a pool is known only
    /// afterwards, and the excess is returned before the request is answered. So each open request
    /// may exceed the limit by one growth.
    fn within_the_limit(&self) {
        let calls = match &self.held_by_driver {
            None => self.growing.min((PROCESSES * THREADS) as u64),
            // The driver's own limit is exceeded by nothing.
            Some(_) => 0,
        };
        let (held, limit) = (self.slice.held(), self.limit);
        assert!(held <= limit + calls * GROWTH, "{held} of {limit} are held");
    }

    fn look(&mut self) {
        let mut living = Vec::new();
        for worker in self.processes.iter_mut().flatten() {
            assert!(worker.settle(), "a worker has ended by itself");
            living.push(worker.pid());
        }
        self.growing = 0;
        self.within_the_limit();
        let truth = self.slice.truth();
        let holding: &[ProcessTruth] = &truth.devices[0].processes;
        assert!(
            holding.iter().all(|it| living.contains(&it.pid)),
            "{holding:?}"
        );
        for process in holding {
            self.agrees(process);
        }
        let counted = self.slice.counted();
        // CUDA's free memory agrees with the ledger's sum, to the byte.
        let info = self.processes.iter_mut().flatten().find_map(|worker| {
            let answer = worker.ask("!info");
            (answer[0] == 0).then(|| [answer[1], answer[2]].map(i64::cast_unsigned))
        });
        if let Some(shown) = info {
            assert_eq!(shown, [self.limit - counted, self.limit]);
        }
    }

    /// Asserts that nothing is held or counted once all processes are gone.
    pub(super) fn end(mut self) {
        self.look();
        for process in &mut self.processes {
            drop(process.take());
        }
        self.slice.buried(0);
        assert_eq!(self.slice.held(), 0);
        let mut next = self.slice.worker();
        let context = self.slice.held();
        assert_eq!(next.free(), self.limit - context, "no memory stays counted");
    }

    /// Asserts that a process holds what its record in the ledger says.
    fn agrees(&self, process: &ProcessTruth) {
        let records = self.slice.records();
        let record = records.iter().find(|record| record.pid == process.pid);
        let counted = |kind: Kind| {
            let found = record.iter().flat_map(|record| record.by_kind);
            found
                .filter(|pair| pair.0 == kind)
                .map(|pair| pair.1)
                .sum::<u64>()
        };
        let managed = counted(Kind::Managed);
        for (kind, truly, tolerance) in [
            (Kind::Linear, Truly::Alloc, 0),
            (Kind::Vmm, Truly::Vmm, 0),
            (Kind::Context, Truly::Context, 0),
            (Kind::Array, Truly::Array, GRANULE),
            (Kind::Pool, Truly::Pool, GRANULE),
        ] {
            let (ledger, driver) = (counted(kind), process.kind(truly));
            assert!(
                ledger.abs_diff(driver) <= tolerance,
                "{}: the ledger has {ledger}, the driver {driver}: {record:?} {process:?}",
                kind.name()
            );
        }
        // Managed memory may move to the device at any time, and the ledger counts it from its
        // allocation on.
        assert!(
            process.kind(Truly::Managed) <= managed,
            "{record:?} {process:?}"
        );
    }
}

fn runs(mut play: Play, program: &[Step]) {
    for step in program {
        play.step(step);
    }
    play.end();
}

/// Runs random programs, with or without requests for pool memory.
fn whatever_programs_do(of_pools: bool) {
    let wanted = move |step: &Step| match step {
        Step::Does(_, _, _, act) => of_pools || !act.is_of_pools(),
        _ => true,
    };
    run_all(wanted, |program| runs(Play::new(), program));
}

/// Runs random programs of the steps that are wanted.
fn run_all(wanted: impl Fn(&Step) -> bool + 'static, runs: impl Fn(&[Step])) {
    let asked = std::env::var("GPUSLICE_LAW").ok();
    let cases = asked.and_then(|cases| cases.parse().ok()).unwrap_or(100);
    let config = Config {
        cases,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..Config::default()
    };
    let programs = program().prop_map(move |mut program| {
        program.retain(&wanted);
        program
    });
    let mut runner = TestRunner::new(config);
    let played = runner.run(&programs, |program| {
        runs(&program);
        Ok(())
    });
    played.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_ledger_holds_what_the_driver_holds_whatever_programs_do() {
    whatever_programs_do(true);
}

#[test]
fn without_pools_not_a_byte_more_than_the_limit_is_ever_held() {
    whatever_programs_do(false);
}

/// The driver does not count managed memory as its device's, and a limit that is set in the ledger is
/// held by the library.
#[test]
fn the_ledger_counts_what_the_driver_holds_where_the_driver_refuses() {
    let wanted =
        |step: &Step| !matches!(step, Step::Resize(_) | Step::Does(_, _, _, Act::Managed(_)));
    for scenario in [limit::DMEM, limit::MISC] {
        run_all(wanted, |program| {
            if let Some(cgroup) = Cgroup::new("law") {
                runs(Play::held(scenario, cgroup), program);
            }
        });
    }
}
