//! Numbers as people read them.

use crate::measure::figure::{Figure, Unit};
use crate::measure::statistics::{Spread, Summary};

/// A value with its unit: nanoseconds become microseconds, milliseconds or seconds.
pub(crate) fn amount(value: f64, unit: Unit) -> String {
    let sign = if value < 0.0 { "−" } else { "" };
    let value = value.abs();
    let text = match unit {
        Unit::Nanoseconds => {
            let scales = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
            let found = scales.iter().find(|(scale, _)| value >= *scale);
            let (scale, name) = found.copied().unwrap_or((1.0, "ns"));
            format!("{} {name}", digits(value / scale))
        }
        Unit::Mebibytes => format!("{} MiB", digits(value)),
        Unit::PercentOfCore => format!("{value:.3} %"),
        Unit::Number => format!("{value:.0}"),
    };
    format!("{sign}{text}")
}

/// A power of ten, without digits that are zero.
pub(crate) fn power(value: f64, unit: Unit) -> String {
    let text = amount(value, unit);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number} {unit}")
        }
        _ => text,
    }
}

/// Three digits.
fn digits(value: f64) -> String {
    match value {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A difference, with its sign.
pub(crate) fn added(spread: Spread, unit: Unit) -> String {
    let sign = if spread.median < 0.0 { "" } else { "+" };
    format!("{sign}{}", amount(spread.median, unit))
}

/// A ratio.
pub(crate) fn ratio(spread: Spread) -> String {
    format!("×{}", digits(spread.median))
}

/// The columns of a row, after the variant's name.
pub(crate) const COLUMNS: [&str; 7] = [
    "median",
    "p25",
    "p75",
    "p99",
    "added",
    "p25 to p75",
    "ratio",
];

/// The values of [`COLUMNS`].
pub(crate) fn cells(summary: &Summary, unit: Unit) -> [String; 7] {
    let between = |spread: Spread| {
        format!(
            "{} to {}",
            amount(spread.p25, unit),
            amount(spread.p75, unit)
        )
    };
    let optional = |text: Option<String>| text.unwrap_or_default();
    [
        amount(summary.median, unit),
        amount(summary.p25, unit),
        amount(summary.p75, unit),
        amount(summary.p99, unit),
        optional(summary.added.map(|spread| added(spread, unit))),
        optional(summary.added.map(between)),
        optional(summary.ratio.map(ratio)),
    ]
}

/// The name of a figure, with its count.
pub(crate) fn title(figure: &Figure, count_of: Option<&str>) -> String {
    match (figure.count, count_of) {
        (Some(count), Some(of)) => format!("{} ({of}: {count})", figure.name),
        _ => figure.name.clone(),
    }
}
