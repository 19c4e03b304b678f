//! Compares the logs of two runs, line by line.

use super::machines::{Place, Size};
use super::meant::{self, Seen};

/// The first line in which two logs of a sequence differ.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    pub(super) seed: u64,
    pub(super) size: Size,
    /// The step in which it is.
    pub(super) step: u64,
    /// Both lines, and what is wrong with them.
    pub(super) bare: String,
    pub(super) sliced: String,
}

/// The sequences of a log: the seed and the lines of each.
fn sequences(log: &str) -> Vec<(u64, Vec<&str>)> {
    let mut all: Vec<(u64, Vec<&str>)> = Vec::new();
    for line in log.lines() {
        match line
            .strip_prefix("sequence ")
            .and_then(|seed| seed.parse().ok())
        {
            Some(seed) => all.push((seed, Vec::new())),
            None => all
                .last_mut()
                .into_iter()
                .for_each(|(_, lines)| lines.push(line)),
        }
    }
    all
}

/// The differences between the log of a run without a slice and that of a run in one, at most one
/// for each sequence.
pub(super) fn logs(place: &Place, size: Size, bare: &str, sliced: &str) -> Vec<Difference> {
    let (bare, sliced) = (sequences(bare), sequences(sliced));
    assert!(!bare.is_empty(), "the client has written no log");
    let mut found = Vec::new();
    for (at, (seed, lines)) in bare.iter().enumerate() {
        let others = match sliced.get(at) {
            Some((other, lines)) if other == seed => lines.as_slice(),
            _ => &[],
        };
        found.extend(sequence(place, size, *seed, lines, others));
    }
    found
}

fn sequence(
    place: &Place,
    size: Size,
    seed: u64,
    bare: &[&str],
    sliced: &[&str],
) -> Option<Difference> {
    let mut step = 0;
    let mut seen = Seen::default();
    let mut is_last = false;
    let mut is_list_skipped = false;
    let mut may_refuse = size == Size::Small;
    for at in 0..bare.len().max(sliced.len()) {
        let line = |lines: &[&str]| lines.get(at).copied().unwrap_or("(nothing)").to_owned();
        let (bare, sliced) = (line(bare), line(sliced));
        if let Some(number) = bare.strip_prefix("step ") {
            step = number.parse().unwrap_or(u64::MAX);
        }
        seen.is_end |= bare.starts_with("left on device");
        seen.trimmed |= meant::trims_pools(&sliced);
        seen.leaks |= meant::may_leak(&bare);
        may_refuse |= meant::is_managed(&bare);
        let difference = |bare: String, sliced: String| {
            Some(Difference {
                seed,
                size,
                step,
                bare,
                sliced,
            })
        };
        if meant::shown(&bare) != meant::shown(&sliced) {
            if may_refuse && meant::is_refusal(&bare, &sliced) {
                return None;
            }
            if meant::is_without_context(&bare) {
                is_list_skipped = true;
                continue;
            }
            let is_list = is_list_skipped && bare.starts_with("listed ");
            if is_list || meant::is_reported_by_slice(place, &bare, &sliced) {
                continue;
            }
            return difference(bare, sliced);
        }
        if let Some(why) = meant::wrong_numbers(place, size, seen, &bare, &sliced) {
            return difference(bare, format!("{sliced}\n  {why}"));
        }
        is_list_skipped = false;
        is_last = bare.starts_with("end ");
    }
    assert!(is_last, "sequence {seed} has no end");
    None
}
