//! The options that take a slice from a slices file.
//! Touches: its arguments, and the files.

use super::places::{self, Found, SlicesFileError};
use crate::slice::options::{LIMITS, SliceOptions};
use clap::Args;
use std::path::PathBuf;

/// `--slice` and `--file`.
#[derive(Args, Clone, Debug, Default)]
pub struct SliceFromFile {
    /// Take the slice NAME from ~/.config/gpuslice/slices.toml or /etc/gpuslice/slices.toml, and
    /// its command where none is given: gpuslice-slices(5)
    #[arg(long = "slice", id = "named", value_name = "NAME", group = "slice", conflicts_with_all = DESCRIBED, help_heading = LIMITS)]
    pub named: Option<String>,

    /// Take the slice of --slice from this file
    #[arg(long, value_name = "FILE", requires = "named", help_heading = LIMITS)]
    pub file: Option<PathBuf>,
}

/// The options that a slices file has in its keys.
const DESCRIBED: [&str; 18] = [
    "memory",
    "device",
    "total",
    "present_as",
    "headroom",
    "maximum",
    "reserve",
    "host_allowance",
    "managed",
    "pressure",
    "threshold",
    "page_cache",
    "page_cache_share",
    "fence",
    "no_enforce",
    "name",
    "config",
    "bare",
];

impl SliceFromFile {
    /// Finds the slice, if one is named.
    ///
    /// # Errors
    /// When no file has it, or a file cannot be used.
    pub(crate) fn find(&self) -> Result<Option<Found>, SlicesFileError> {
        let named = self.named.as_deref();
        let found = named.map(|name| places::find(name, self.file.as_deref()));
        found.transpose()
    }
}

impl Found {
    /// Returns the options of the slice together with those of the command line that describe no
    /// slice.
    #[must_use]
    pub(crate) fn options(&self, given: &SliceOptions) -> SliceOptions {
        let own = self.slice.options.clone();
        SliceOptions {
            overcommit: own.overcommit || given.overcommit,
            sim: given.sim.clone(),
            log: given.log.clone(),
            log_file: given.log_file.clone(),
            ..own
        }
    }

    /// Names the slice in messages.
    #[must_use]
    pub(crate) fn shown(&self) -> String {
        let name = crate::base::text::printable(self.slice.name());
        format!("slice {name} of {}", self.file.display())
    }
}
