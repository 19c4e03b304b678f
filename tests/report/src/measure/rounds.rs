//! Variants in turn, round after round: whatever the machine does meanwhile, it does to all of them.

use super::effort::Plan;
use super::figure::{Failure, Figure, Measured, Row, Unit};
use super::readings::Reading;
use super::statistics::summarise;
use crate::base::interrupt;
use anyhow::{Context, Result};
use std::time::Instant;

/// The rounds that are measured even if they take longer than the plan allows.
const LEAST: usize = 3;

/// The readings of a figure: of each variant, of each round.
struct Collected {
    figure: String,
    unit: Unit,
    count: Option<u64>,
    variants: Vec<Vec<Vec<f64>>>,
}

/// Measures variants. One that fails has no further turns; if the first fails, so does the
/// measurement. `run` measures a variant, by its place.
pub(crate) fn interleave(
    names: &[String],
    plan: Plan,
    mut run: impl FnMut(usize) -> Result<Vec<Reading>>,
) -> Result<Measured> {
    let mut collected: Vec<Collected> = Vec::new();
    let mut failures: Vec<Option<String>> = vec![None; names.len()];
    let start = Instant::now();
    let mut rounds = 0_usize;
    while rounds < plan.rounds && (rounds < LEAST || start.elapsed() < plan.limit) {
        for turn in 0..names.len() {
            interrupt::check()?;
            // Each variant is first as often as the others.
            let place = rounds
                .wrapping_add(turn)
                .checked_rem(names.len())
                .unwrap_or(0);
            let Some(failure) = failures.get_mut(place).filter(|failed| failed.is_none()) else {
                continue;
            };
            match run(place) {
                Ok(readings) => collect(&mut collected, readings, place, names.len()),
                Err(error) if place == 0 => {
                    return Err(error).context(names.first().cloned().unwrap_or_default());
                }
                Err(error) => *failure = Some(format!("{error:#}")),
            }
        }
        rounds = rounds.saturating_add(1);
    }
    let figures = collected
        .into_iter()
        .map(|figure| summarised(figure, names, plan.compares));
    let failures = failures.into_iter().zip(names);
    Ok(Measured {
        variants: names.to_vec(),
        rounds,
        figures: figures.collect(),
        failures: failures
            .filter_map(|(reason, variant)| {
                Some(Failure {
                    variant: variant.clone(),
                    reason: reason?,
                })
            })
            .collect(),
        notes: Vec::new(),
    })
}

fn collect(collected: &mut Vec<Collected>, readings: Vec<Reading>, place: usize, variants: usize) {
    for reading in readings {
        let same =
            |figure: &Collected| figure.figure == reading.figure && figure.count == reading.count;
        if !collected.iter().any(same) {
            collected.push(Collected {
                figure: reading.figure.clone(),
                unit: reading.unit,
                count: reading.count,
                variants: vec![Vec::new(); variants],
            });
        }
        let figure = collected.iter_mut().find(|figure| same(figure));
        if let Some(rounds) = figure.and_then(|figure| figure.variants.get_mut(place)) {
            rounds.push(reading.values);
        }
    }
}

fn summarised(figure: Collected, names: &[String], compares: bool) -> Figure {
    let first = figure.variants.first().cloned().unwrap_or_default();
    let rows = names.iter().zip(&figure.variants).enumerate();
    let rows = rows.filter_map(|(place, (name, rounds))| {
        Some(Row {
            variant: name.clone(),
            summary: summarise(rounds, (compares && place > 0).then_some(first.as_slice()))?,
        })
    });
    Figure {
        rows: rows.collect(),
        name: figure.figure,
        unit: figure.unit,
        count: figure.count,
    }
}
