//! One row of the table: counts injections and their outcomes, and keeps them as a line of JSON.
//! Touches: `faults/` in the build output; the environment variable `GPUSLICE_FAULTS`.

use gpuslice_suite::place;
use serde_json::{Value, json};
use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What went wrong after an injection.
#[derive(Debug)]
pub(super) enum Fault {
    /// An answer was wrong, memory was granted beyond the limit, or a program crashed.
    Wrong(String),
    /// Something did not answer or end in time.
    Hang(String),
    /// Memory, a file, a descriptor, a process or a mount was left behind.
    Leak(String),
}

pub(super) type Outcome<T = ()> = Result<T, Fault>;

/// Returns [`Fault::Wrong`] unless the condition holds.
pub(super) fn right(holds: bool, otherwise: impl FnOnce() -> String) -> Outcome {
    match holds {
        true => Ok(()),
        false => Err(Fault::Wrong(otherwise())),
    }
}

/// How often a row injects its fault: `GPUSLICE_FAULTS`, or this many times.
pub(super) fn injections(by_default: usize) -> usize {
    let asked = std::env::var("GPUSLICE_FAULTS").ok();
    asked
        .and_then(|count| count.parse().ok())
        .unwrap_or(by_default)
}

/// Chooses `count` of the numbers below `all`, evenly spread. Returns all if there are no more.
pub(super) fn spread(all: usize, count: usize) -> Vec<usize> {
    let count = count.min(all);
    (0..count).map(|each| each * all / count).collect()
}

/// Chooses `count` of the kinds below `all`, evenly spread. More than there are go round.
pub(super) fn kinds(all: usize, count: usize) -> Vec<usize> {
    match count <= all {
        true => spread(all, count),
        false => (0..count).map(|each| each % all).collect(),
    }
}

/// A pseudo-random number, computed from `number`.
pub(super) fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ (number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// The folder in which rows keep their counts.
pub(super) fn folder() -> PathBuf {
    place::target().join("faults")
}

/// An injection that takes longer is named, so that a wait is seen before it is a hang.
const SLOW: Duration = Duration::from_secs(5);

/// A row that is being filled.
pub(super) struct Row {
    name: &'static str,
    title: &'static str,
    start: Instant,
    injected: u64,
    survived: u64,
    wrong_answers: Vec<String>,
    hangs: Vec<String>,
    leaks: Vec<String>,
}

impl Row {
    /// A row. `name` identifies it, `title` says to people what was injected.
    pub(super) fn new(name: &'static str, title: &'static str) -> Row {
        Row {
            name,
            title,
            start: Instant::now(),
            injected: 0,
            survived: 0,
            wrong_answers: Vec::new(),
            hangs: Vec::new(),
            leaks: Vec::new(),
        }
    }

    /// Injects a fault once, and counts the outcome. A panic is a wrong answer.
    pub(super) fn inject(&mut self, case: impl Display, act: impl FnOnce() -> Outcome) {
        self.injected += 1;
        let start = Instant::now();
        let is_well = self.check(&case, act);
        self.survived += u64::from(is_well);
        if start.elapsed() > SLOW {
            eprintln!("{}: {case} took {:.1?}", self.name, start.elapsed());
        }
    }

    /// Checks something that is no injection of its own. Returns whether it holds.
    pub(super) fn check(&mut self, case: impl Display, act: impl FnOnce() -> Outcome) -> bool {
        let outcome = catch_unwind(AssertUnwindSafe(act));
        let outcome = outcome.unwrap_or_else(|panic| Err(Fault::Wrong(message(&*panic))));
        let (list, said) = match outcome {
            Ok(()) => return true,
            Err(Fault::Wrong(said)) => (&mut self.wrong_answers, said),
            Err(Fault::Hang(said)) => (&mut self.hangs, said),
            Err(Fault::Leak(said)) => (&mut self.leaks, said),
        };
        eprintln!("{}: {case}: {said}", self.name);
        list.push(format!("{case}: {said}"));
        false
    }

    /// Keeps the counts.
    ///
    /// # Panics
    /// When nothing was injected, or an injection was not survived.
    pub(super) fn finish(self) {
        keep(
            self.name,
            &json!({
                "row": self.name,
                "title": self.title,
                "injected": self.injected,
                "survived": self.survived,
                "wrong_answers": self.wrong_answers.len(),
                "hangs": self.hangs.len(),
                "leaks": self.leaks.len(),
                "seconds": (self.start.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            }),
        );
        assert!(self.injected > 0, "{}: nothing was injected", self.name);
        let failures = [&self.wrong_answers, &self.hangs, &self.leaks];
        assert!(
            failures.iter().all(|list| list.is_empty()),
            "{}: wrong answers: {:#?}\nhangs: {:#?}\nleaks: {:#?}",
            self.name,
            self.wrong_answers,
            self.hangs,
            self.leaks
        );
    }
}

/// Keeps a row that cannot be injected on this machine, with the reason.
pub(super) fn not_run(name: &str, title: &str, why: &str) {
    eprintln!("not run: {name}: {why}");
    keep(
        name,
        &json!({
            "row": name, "title": title, "injected": 0, "survived": 0, "wrong_answers": 0, "hangs": 0,
            "leaks": 0, "seconds": 0.0, "not_run": why,
        }),
    );
}

/// Whether these tests run as root, which namespaces, mounts and cgroups need.
pub(super) fn is_root() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

fn keep(name: &str, line: &Value) {
    let folder = folder();
    let kept = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join(format!("{name}.json")), format!("{line}\n")));
    kept.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    println!("{line}");
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
