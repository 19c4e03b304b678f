//! Draws memory over time as an SVG picture: a panel for each slice and device, with its limit and
//! its refusals.
//! Touches: its arguments; `write` replaces the picture's file.
//! Law: a value holds from its time to that of the next one, and a line ends where its slice ends.

mod svg;
mod ticks;

use crate::base::atomic_write::{self, Durability};
use anyhow::Context;
use std::path::Path;

use svg::draw;

/// A picture. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    /// The title: the slice, or the machine.
    pub(crate) title: String,
    /// The second line; the date and the time zone follow.
    pub(crate) subtitle: String,
    /// The first and the last time.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The seconds by which the times shown are ahead of UTC.
    pub(crate) offset: i64,
    pub(crate) panels: Vec<Panel>,
}

/// A panel of a picture.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panel {
    pub(crate) title: String,
    /// The names and colours of the layers, the lowest first.
    pub(crate) layers: Vec<(&'static str, &'static str)>,
    pub(crate) segments: Vec<Segment>,
}

/// A part of a panel without a gap: one run, or the time in which a slice was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    /// The limit, if there is one; the last one, if it has changed.
    pub(crate) limit: Option<u64>,
    /// The time from which each limit holds, if the limit has changed.
    pub(crate) limits: Vec<(u64, u64)>,
    /// The time of each value, and the bytes of each layer.
    pub(crate) values: Vec<(u64, Vec<u64>)>,
    /// The time until which the last value holds.
    pub(crate) end: u64,
    /// The times at which allocations were refused, and how many.
    pub(crate) refusals: Vec<(u64, u64)>,
}

impl Segment {
    /// Adds a value, and a mark if allocations were refused since the last one.
    pub(crate) fn add(&mut self, at: u64, layers: Vec<u64>, refused: u64) {
        let before: u64 = self.refusals.iter().map(|(_, count)| *count).sum();
        if refused > before {
            self.refusals.push((at, refused.saturating_sub(before)));
        }
        self.values.push((at, layers));
        self.end = self.end.max(at);
    }

    /// The highest value or limit.
    fn highest(&self) -> u64 {
        let sums = self
            .values
            .iter()
            .map(|(_, layers)| layers.iter().sum::<u64>());
        let limits = self.limits.iter().map(|(_, limit)| *limit);
        sums.chain(limits).chain(self.limit).max().unwrap_or(0)
    }

    /// The limit at a time.
    fn limit_at(&self, time: u64) -> Option<u64> {
        let earlier = self.limits.iter().rev().find(|(at, _)| *at <= time);
        let first = || self.limits.first();
        earlier
            .or_else(first)
            .map(|(_, limit)| *limit)
            .or(self.limit)
    }
}

/// Replaces the picture's file atomically, so that a viewer never reads a partial file.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(file: &Path, figure: &Figure) -> anyhow::Result<()> {
    atomic_write::replace_with(file, draw(figure).as_bytes(), Durability::Cached)
        .with_context(|| format!("cannot draw {}", file.display()))
}

#[cfg(test)]
mod tests;
