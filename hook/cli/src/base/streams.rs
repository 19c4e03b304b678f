//! Standard input, output and error as the caller left them, even if closed.
//! Touches: descriptors 0 to 2.

use anyhow::Context;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

/// The highest of the three descriptors.
const STANDARD_ERROR: i32 = 2;

/// Opens placeholders for closed standard streams. Otherwise the next file to be opened would get
/// the descriptor of a standard stream. Output meant for the user would then be written to that
/// file, or a child's stream would replace it.
///
/// A placeholder can be neither read nor written, and is closed in every other program.
pub(crate) fn fill_closed() {
    let nothing = || open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    // Each placeholder gets the lowest free descriptor. If it cannot be opened, no other file can
    // be either.
    while let Ok(placeholder) = nothing() {
        if placeholder.as_raw_fd() > STANDARD_ERROR {
            break;
        }
        let _kept_open = placeholder.into_raw_fd();
    }
}

/// Writes all of `text` to standard output.
///
/// # Errors
/// When it cannot be written: the disk is full, or standard output is closed, which [`io::Stdout`]
/// does not report.
pub(crate) fn print(text: &[u8]) -> anyhow::Result<()> {
    let out = io::stdout().as_fd().try_clone_to_owned();
    out.map(File::from)
        .and_then(|mut out| out.write_all(text))
        .context("cannot write to standard output")
}

/// Prints a message for the user on standard error, after the program's name.
pub(crate) fn tell(message: &str) {
    tell_as("gpuslice", message);
}

/// Replaces the progress on standard error, if it is a terminal. An empty text removes it.
pub(crate) fn tell_progress(text: &str) {
    let mut err = io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{text}");
    }
}

/// Prints a message of `program` on standard error.
pub(crate) fn tell_as(program: &str, message: &str) {
    // A caller may have closed standard error on purpose.
    let _ = writeln!(io::stderr(), "{program}: {message}");
}
