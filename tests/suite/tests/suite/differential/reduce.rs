//! Makes a difference as short as it gets, and describes it.

use super::compare::{self, Difference};
use super::machines::{Kind, Place};
use std::fmt::Write;

/// Both logs of some steps, where they still differ.
fn still(kind: Kind, found: &Difference, length: u64, steps: &[u64]) -> Option<[String; 2]> {
    let place = Place::new(kind);
    let bare = place.bare(found.seed, 1, length, steps);
    let sliced = place.sliced(found.size, found.seed, 1, length, steps);
    let differs = !compare::logs(&place, found.size, &bare, &sliced).is_empty();
    differs.then_some([bare, sliced])
}

/// Describes a difference: the seed, the steps that still show it, and both logs. None: the sequence
/// does not differ by itself, so its seed says nothing. That is only printed.
pub(super) fn report(kind: Kind, found: &Difference, length: u64) -> Option<String> {
    let mut text = format!(
        "{}, {:?} slice, seed {}: the logs differ in step {}\n  bare:   {}\n  sliced: {}\n",
        kind.scenario, found.size, found.seed, found.step, found.bare, found.sliced
    );
    let last = found.step.min(length - 1);
    let mut steps: Vec<u64> = (0..=last).collect();
    let Some(mut logs) = still(kind, found, length, &steps) else {
        println!("differential: not repeated by itself: {text}");
        return None;
    };
    let mut at = steps.len();
    while at > 0 {
        at -= 1;
        let mut fewer = steps.clone();
        fewer.remove(at);
        if fewer.is_empty() {
            continue;
        }
        if let Some(shorter) = still(kind, found, length, &fewer) {
            (steps, logs) = (fewer, shorter);
        }
    }
    let list: Vec<String> = steps.iter().map(u64::to_string).collect();
    let _ = writeln!(
        text,
        "  to repeat: client-random-calls {} 1 {length} {}",
        found.seed,
        list.join(" ")
    );
    for (name, log) in ["bare", "sliced"].iter().zip(&logs) {
        let _ = writeln!(text, "--- {name}");
        for line in log.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    Some(text)
}
