//! The figures by which preloads are usually compared, in one table at the top of the report.

use super::amount;
use crate::measure::figure::{Figure, Section};
use crate::measure::statistics::Summary;
use serde::Serialize;

/// A line of the table: what is added to no preload, or the ratio to it, for each other variant.
#[derive(Serialize)]
pub(crate) struct Line {
    pub(crate) title: &'static str,
    pub(crate) section: &'static str,
    pub(crate) bare: String,
    pub(crate) cells: Vec<(String, String)>,
}

/// Whether a line shows differences or ratios.
enum Kind {
    Added,
    Ratio,
}

const LINES: [(&str, &str, &str, Option<u64>, Kind); 9] = [
    (
        "query: cuMemGetInfo_v2",
        "query",
        "cuMemGetInfo_v2",
        None,
        Kind::Added,
    ),
    (
        "allocation and free",
        "alloc",
        "cuMemAlloc_v2, 2 MiB",
        None,
        Kind::Added,
    ),
    (
        "the same, 20,000 alive, the newest freed",
        "alive",
        "the newest is freed",
        Some(20_000),
        Kind::Added,
    ),
    (
        "query among 64 processes",
        "processes",
        "cuMemGetInfo_v2",
        Some(64),
        Kind::Added,
    ),
    (
        "query among 512 processes",
        "processes",
        "cuMemGetInfo_v2",
        Some(512),
        Kind::Added,
    ),
    (
        "start of /bin/true",
        "start",
        "/bin/true",
        None,
        Kind::Ratio,
    ),
    (
        "first query of a process",
        "start",
        "the first query of a process",
        None,
        Kind::Ratio,
    ),
    (
        "200 starts at once",
        "at-once",
        "200 starts at once",
        None,
        Kind::Ratio,
    ),
    (
        "64 processes with storms of contexts",
        "contexts",
        "64 processes, 50 contexts each",
        None,
        Kind::Ratio,
    ),
];

/// The lines of the sections that were measured.
pub(crate) fn lines(sections: &[Section]) -> Vec<Line> {
    let line = |(title, key, name, count, kind): &(&'static str, &str, &str, Option<u64>, Kind)| {
        let section = sections.iter().find(|section| section.key == *key)?;
        let is_it = |figure: &&Figure| figure.name == *name && figure.count == *count;
        let figure = section.measured.figures.iter().find(is_it)?;
        let (bare, others) = figure.rows.split_first()?;
        let cell = |summary: &Summary| match kind {
            Kind::Added => summary
                .added
                .map(|spread| amount::added(spread, figure.unit)),
            Kind::Ratio => summary.ratio.map(amount::ratio),
        };
        Some(Line {
            title,
            section: section.key,
            bare: amount::amount(bare.summary.median, figure.unit),
            cells: others
                .iter()
                .map(|row| (row.variant.clone(), cell(&row.summary).unwrap_or_default()))
                .collect(),
        })
    };
    LINES.iter().filter_map(line).collect()
}

/// The variants of the lines, in order.
pub(crate) fn variants(lines: &[Line]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in lines.iter().flat_map(|line| &line.cells) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// The cell of a variant in a line.
pub(crate) fn cell<'l>(line: &'l Line, variant: &str) -> &'l str {
    let found = line.cells.iter().find(|(name, _)| name == variant);
    found.map_or("", |(_, cell)| cell)
}
