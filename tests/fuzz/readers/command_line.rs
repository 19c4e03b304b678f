//! The readers of the command line, of slices files and of histories.
//! Touches: its arguments; `history` reads one file.

use crate::base::text;
use crate::commands::events;
use crate::runs::recording::history_file;
use crate::slice::options::{self, Headroom};
use crate::slice::sizes::Size;
use crate::slice::slices_file;
use gpuslice_config::words::device::Selector;
use gpuslice_config::words::units::Bytes;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A slice of a slices file.
#[derive(Debug)]
pub struct NamedSlice {
    /// Its name.
    pub name: String,
    /// The line of its table.
    pub line: usize,
    /// The limit of every GPU, and those of single GPUs.
    pub limits: Vec<Bytes>,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// The variables.
    pub env: Vec<(OsString, OsString)>,
}

/// Parses a slices file.
///
/// # Errors
/// The line of the fault, and its message.
pub fn slices(text: &str) -> Result<Vec<NamedSlice>, (usize, String)> {
    let slices = slices_file::parse(text).map_err(|fault| (fault.line, fault.message))?;
    let facts = |slice: slices_file::NamedSlice| NamedSlice {
        name: slice.name().to_owned(),
        line: slice.line,
        limits: {
            let single = slice.options.device.iter().map(|one| one.memory);
            slice.options.memory.into_iter().chain(single).collect()
        },
        command: slice.command,
        env: slice.options.env,
    };
    Ok(slices.into_iter().map(facts).collect())
}

/// Parses a limit, as `--memory` does.
pub fn limit(text: &str) -> Option<Bytes> {
    options::limit(text).ok()
}

/// Parses `--headroom`; `Some(None)` for `learned`.
pub fn headroom(text: &str) -> Option<Option<Bytes>> {
    options::headroom(text).ok().map(|headroom| match headroom {
        Headroom::Set(bytes) => Some(bytes),
        Headroom::Learned => None,
    })
}

/// Parses `--device`.
pub fn device_limit(text: &str) -> Option<(Selector, Bytes)> {
    let limit = options::device_limit(text).ok()?;
    Some((limit.selector, limit.memory))
}

/// Parses a slice's name.
pub fn name(text: &str) -> Option<String> {
    options::name(text).ok()
}

/// Parses the size of a CDI device or runtime: its argument and its name.
pub fn size(text: &str) -> Option<(String, String)> {
    let size: Size = text.parse().ok()?;
    Some((size.argument(), size.name()))
}

/// Parses an age.
pub fn age(text: &str) -> Option<Duration> {
    events::age(text)
}

/// Parses a moment, as `--since` does.
pub fn since(text: &str) -> Option<SystemTime> {
    events::since(text).ok()
}

/// Parses a number of seconds.
pub fn seconds(text: &str) -> Option<u64> {
    text::seconds(text).ok()
}

/// The history of a run.
#[derive(Debug)]
pub struct History {
    /// The name of its file.
    pub file: String,
    /// The number of its devices.
    pub devices: usize,
    /// The number of devices in each of its points.
    pub points: Vec<usize>,
    /// The number of devices in each change of the limits.
    pub limits: Vec<usize>,
}

/// Reads a history file.
pub fn history(path: &Path) -> Option<History> {
    let history = history_file::read(path)?;
    let points = history.series.points().iter();
    let limits = history.limits.all().iter();
    Some(History {
        file: history_file::name_of(&history.run),
        devices: history.run.devices.len(),
        points: points.map(|point| point.devices.len()).collect(),
        limits: limits.map(|change| change.limits.len()).collect(),
    })
}
