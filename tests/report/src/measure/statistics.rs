//! Medians and spreads.

use serde::{Deserialize, Serialize};

/// What many measurements of one thing say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) samples: usize,
    pub(crate) median: f64,
    pub(crate) p25: f64,
    pub(crate) p75: f64,
    pub(crate) p99: f64,
    /// The difference to the first variant, and the ratio to it, of each round.
    pub(crate) added: Option<Spread>,
    pub(crate) ratio: Option<Spread>,
}

/// A median with its quartiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) p25: f64,
    pub(crate) p75: f64,
}

impl Spread {
    fn of(values: Vec<f64>) -> Option<Spread> {
        let sorted = sorted(values);
        Some(Spread {
            median: percentile(&sorted, 50.0)?,
            p25: percentile(&sorted, 25.0)?,
            p75: percentile(&sorted, 75.0)?,
        })
    }
}

/// Summarises the rounds of a variant. `first`: the same rounds of the variant it is compared with.
/// None: there is no measurement.
pub(crate) fn summarise(rounds: &[Vec<f64>], first: Option<&[Vec<f64>]>) -> Option<Summary> {
    let all = sorted(rounds.concat());
    let pairs: Vec<(f64, f64)> = first
        .into_iter()
        .flat_map(|first| rounds.iter().zip(first))
        .filter_map(|(own, first)| Some((median(own)?, median(first)?)))
        .collect();
    let differences = pairs.iter().map(|(own, first)| own - first).collect();
    let ratios = pairs.iter().filter(|(_, first)| *first > 0.0);
    let ratios = ratios.map(|(own, first)| own / first).collect();
    Some(Summary {
        samples: all.len(),
        median: percentile(&all, 50.0)?,
        p25: percentile(&all, 25.0)?,
        p75: percentile(&all, 75.0)?,
        p99: percentile(&all, 99.0)?,
        added: Spread::of(differences),
        ratio: Spread::of(ratios),
    })
}

fn median(values: &[f64]) -> Option<f64> {
    percentile(&sorted(values.to_vec()), 50.0)
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// A percentile of sorted values, between the two nearest of them.
fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = percent / 100.0 * last as f64;
    let below = place.floor();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in the list"
    )]
    let index = below as usize;
    let low = sorted.get(index)?;
    let high = sorted.get(index.saturating_add(1)).unwrap_or(low);
    Some(low + (high - low) * (place - below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_the_nearest_values() {
        let sorted = [1.0, 2.0, 3.0, 5.0];
        assert_eq!(percentile(&sorted, 0.0), Some(1.0));
        assert_eq!(percentile(&sorted, 50.0), Some(2.5));
        assert_eq!(percentile(&sorted, 100.0), Some(5.0));
        assert_eq!(percentile(&[], 50.0), None);
    }

    #[test]
    fn a_difference_is_that_of_the_same_round() {
        // The machine is ten times slower in the second round: the ratio stays, the difference does not.
        let first = [vec![10.0, 12.0, 11.0], vec![110.0], vec![11.0]];
        let own = [vec![22.0], vec![220.0], vec![22.0, 22.0]];
        let summary = summarise(&own, Some(&first)).unwrap();
        assert_eq!(summary.samples, 4);
        assert_eq!(summary.median, 22.0);
        assert_eq!(summary.ratio.unwrap().median, 2.0);
        assert_eq!(summary.added.unwrap().median, 11.0);
    }

    #[test]
    fn the_first_variant_has_no_difference() {
        let summary = summarise(&[vec![3.0]], None).unwrap();
        assert_eq!((summary.added, summary.ratio), (None, None));
        assert_eq!(summarise(&[], None), None);
    }
}
