//! What a report contains: sections of figures, each with a row for every variant.

use super::statistics::Summary;
use crate::base::processor::Load;
use serde::{Deserialize, Serialize};

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    #[serde(rename = "ns")]
    Nanoseconds,
    #[serde(rename = "MiB")]
    Mebibytes,
    #[serde(rename = "% of a core")]
    PercentOfCore,
    #[serde(rename = "number")]
    Number,
}

/// One variant of one figure.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) variant: String,
    #[serde(flatten)]
    pub(crate) summary: Summary,
}

/// A thing that was measured, in every variant.
#[derive(Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) count: Option<u64>,
    pub(crate) rows: Vec<Row>,
}

/// A variant that could not be measured to the end.
#[derive(Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) variant: String,
    pub(crate) reason: String,
}

/// What the variants of a section have shown.
#[derive(Serialize, Deserialize, Default)]
pub(crate) struct Measured {
    pub(crate) variants: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) figures: Vec<Figure>,
    pub(crate) failures: Vec<Failure>,
    /// Facts about this measurement that a reader needs.
    pub(crate) notes: Vec<String>,
}

impl Measured {
    /// Adds what a second measurement of the section has shown.
    pub(crate) fn join(&mut self, other: Measured) {
        for variant in other.variants {
            if !self.variants.contains(&variant) {
                self.variants.push(variant);
            }
        }
        self.rounds = self.rounds.max(other.rounds);
        self.figures.extend(other.figures);
        self.failures.extend(other.failures);
        self.notes.extend(other.notes);
    }
}

/// A section of the report.
#[derive(Serialize)]
pub(crate) struct Section {
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// What the counts of its figures are.
    pub(crate) count_of: Option<&'static str>,
    pub(crate) seconds: f64,
    #[serde(flatten)]
    pub(crate) load: Load,
    #[serde(flatten)]
    pub(crate) measured: Measured,
    /// Why it was not measured.
    pub(crate) not_run: Option<String>,
}
