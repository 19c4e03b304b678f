//! gpuslice's own exit statuses. The man page lists them from here.
//! Touches: nothing.

use std::fmt;

/// All is well.
pub const SUCCESS: u8 = 0;
/// `check`: the answers disagree.
pub const INCONSISTENT: u8 = 1;
/// `drop-cache`, `residency`: some of a file is left, or it is not known.
pub const LEFT: u8 = 1;
/// `status`, `report`: a slice could not be read.
pub const UNREAD: u8 = 1;
/// `devices`, `check`, `cdi generate`, `driver-limit`: there is no NVIDIA driver that works.
pub const NO_DRIVER: u8 = 2;
/// `driver-limit`: the driver has no limits of its own.
pub const NO_DRIVER_LIMIT: u8 = 3;
/// gpuslice itself failed or was called wrongly, as with `env` and `timeout`.
pub const FAILED: u8 = 125;
/// `run`: the command was found and cannot be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// `run`: there is no such command.
pub const NOT_FOUND: u8 = 127;

/// A status, the verbs that end with it (none: all of them), and what it means.
pub type Meaning = (u8, &'static [&'static str], &'static str);

/// The meanings, for the man pages.
pub const MEANINGS: [Meaning; 9] = [
    (SUCCESS, &[], "Success."),
    (
        INCONSISTENT,
        &["check"],
        "The answers disagree, the slice is not in force, or in a slice a function could not be queried.",
    ),
    (
        LEFT,
        &["drop-cache", "residency"],
        "Some pages that could be dropped are still cached, or the cached amount is unknown.",
    ),
    (
        UNREAD,
        &["status", "report"],
        "A slice or its ledger could not be read; its memory is shown as ?, and as null in JSON.",
    ),
    (
        NO_DRIVER,
        &["check", "devices", "cdi-generate", "driver-limit"],
        "No working NVIDIA driver.",
    ),
    (
        NO_DRIVER_LIMIT,
        &["driver-limit"],
        "The driver has no limits of its own; the library alone holds the slice.",
    ),
    (FAILED, &[], "Usage error, or gpuslice itself failed."),
    (
        CANNOT_EXECUTE,
        &["run"],
        "The command was found but cannot be executed.",
    ),
    (NOT_FOUND, &["run"], "The command was not found."),
];

/// An error that ends gpuslice with another status than [`FAILED`]: put it in as context.
#[derive(Debug)]
pub struct Status {
    /// The exit status.
    pub status: u8,
    /// What to tell the person.
    pub message: String,
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

/// The exit status that an error asks for.
#[must_use]
pub fn status_of(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<Status>()
        .map_or(FAILED, |wanted| wanted.status)
}
