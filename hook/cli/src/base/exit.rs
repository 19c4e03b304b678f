//! The exit statuses of gpuslice, from which the man pages are generated.
//! Touches: nothing.

use std::fmt;

/// Success.
pub(crate) const SUCCESS: u8 = 0;
/// `check`: the answers disagree.
pub(crate) const INCONSISTENT: u8 = 1;
/// `drop-cache`, `residency`: a part of a file is left, or its state is unknown.
pub(crate) const LEFT: u8 = 1;
/// `plan`: a slice does not fit, or its engine cannot start in it. `resize`: the size does not fit,
/// or more is held.
pub(crate) const DOES_NOT_FIT: u8 = 1;
/// `status`, `report`: a slice could not be read.
pub(crate) const UNREAD: u8 = 1;
/// `gpusliced`: it cannot go on. Starting it again may help.
pub(crate) const DAEMON_ENDED: u8 = 1;
/// `doctor`: a finding breaks the slice.
pub(crate) const BROKEN: u8 = 1;
/// `doctor`: this user may not examine the process.
pub(crate) const UNEXAMINED: u8 = 2;
/// `devices`, `check`, `cdi generate`, `driver-limit`: no NVIDIA driver works.
pub(crate) const NO_DRIVER: u8 = 2;
/// `driver-limit`: the driver does not support limits.
pub(crate) const NO_DRIVER_LIMIT: u8 = 3;
/// gpuslice itself failed or was called incorrectly, as with `env` and `timeout`.
pub(crate) const FAILED: u8 = 125;
/// `run`: the command exists but cannot be executed.
pub(crate) const CANNOT_EXECUTE: u8 = 126;
/// `run`: the command does not exist.
pub(crate) const NOT_FOUND: u8 = 127;

/// A status, the commands that return it (none: all commands), and its meaning.
pub(crate) type Meaning = (u8, &'static [&'static str], &'static str);

/// The meanings, for the man pages.
pub(crate) const MEANINGS: &[Meaning] = &[
    (SUCCESS, &[], "Success."),
    (
        INCONSISTENT,
        &["check"],
        "The answers disagree, the slice is not in force, or in a slice a function could not be queried.",
    ),
    (
        LEFT,
        &["drop-cache"],
        "Some pages that could be dropped are still cached, or the cached amount is unknown.",
    ),
    (
        LEFT,
        &["residency"],
        "The cached amount of a file is unknown, or a file cannot be read.",
    ),
    (
        DOES_NOT_FIT,
        &["plan"],
        "A slice does not fit beside those before it, or its engine cannot start in it.",
    ),
    (
        DOES_NOT_FIT,
        &["resize"],
        "The new limit does not fit beside the other slices, or the slice holds more.",
    ),
    (
        UNREAD,
        &["status", "report"],
        "A slice or its ledger could not be read; its memory is shown as ?, and as null in JSON.",
    ),
    (
        UNREAD,
        &["events", "history"],
        "An event file could not be read.",
    ),
    (
        BROKEN,
        &["doctor"],
        "A finding breaks the slice: it is not in force, or refuses all GPU memory. Or the node is not ready for slices.",
    ),
    (
        UNEXAMINED,
        &["doctor"],
        "This user may not examine the process.",
    ),
    (
        NO_DRIVER,
        &["check", "devices", "cdi-generate", "driver-limit"],
        "No working NVIDIA driver.",
    ),
    (
        NO_DRIVER_LIMIT,
        &["driver-limit"],
        "The driver has no limits of its own; the library alone enforces the slice.",
    ),
    (
        DAEMON_ENDED,
        &["gpusliced"],
        "It cannot go on. Starting it again may help, and its service does so.",
    ),
    (FAILED, &[], "Usage error, or gpuslice itself failed."),
    (
        CANNOT_EXECUTE,
        &["run"],
        "The command was found but cannot be executed.",
    ),
    (NOT_FOUND, &["run"], "The command was not found."),
];

/// An error whose exit status is not [`FAILED`]. It is attached to the cause as context.
#[derive(Debug)]
pub(crate) struct Status {
    /// The exit status.
    pub status: u8,
    /// The message for the user.
    pub message: String,
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

/// Returns the exit status that an error carries.
#[must_use]
pub(crate) fn status_of(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<Status>()
        .map_or(FAILED, |wanted| wanted.status)
}
