//! What measured programs print: one line for a figure, with its values.

use super::figure::Unit;
use anyhow::{Context, Result};

/// The values of one figure in one run of a program.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) figure: String,
    pub(crate) unit: Unit,
    /// How many there were of what the figure depends on: processes, threads, allocations.
    pub(crate) count: Option<u64>,
    pub(crate) values: Vec<f64>,
}

impl Reading {
    /// One value that this program has measured itself.
    pub(crate) fn one(figure: impl Into<String>, unit: Unit, value: f64) -> Reading {
        Reading {
            figure: figure.into(),
            unit,
            count: None,
            values: vec![value],
        }
    }
}

/// Reads the lines of `c/measure.h`.
pub(crate) fn parse(text: &str) -> Result<Vec<Reading>> {
    text.lines()
        .map(|line| read(line).with_context(|| format!("not a reading: {line:?}")))
        .collect()
}

fn read(line: &str) -> Option<Reading> {
    let mut fields = line.split('\t');
    let figure = fields.next()?.to_owned();
    let scale = match fields.next()? {
        "ns" => 1.0,
        "us" => 1e3,
        _ => return None,
    };
    let count = match fields.next()? {
        "-" => None,
        number => Some(number.parse().ok()?),
    };
    let values: Option<Vec<f64>> = fields
        .next()?
        .split_whitespace()
        .map(|value| value.parse::<f64>().ok().map(|value| value * scale))
        .collect();
    Some(Reading {
        figure,
        unit: Unit::Nanoseconds,
        count,
        values: values.filter(|values| !values.is_empty())?,
    })
}
