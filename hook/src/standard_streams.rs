//! Standard input, output and error as the caller left them, closed ones too.
//! Touches: descriptors 0 to 2.

use anyhow::Context;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

/// The last of the three.
const STANDARD_ERROR: i32 = 2;

/// Fills the places of those that are closed: the next file would be opened there, and be taken for
/// standard output by whoever writes to that, or be replaced where a child is given its own.
///
/// What fills them can be neither read nor written, and is closed again in every other program.
pub fn fill_closed() {
    let nothing = || open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    // Each takes the lowest free place. Where none can be opened, nothing else can be either.
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
/// When it cannot be written: to a full disk, or because standard output is closed, of which
/// [`io::Stdout`] says nothing.
pub fn print(text: &[u8]) -> anyhow::Result<()> {
    let out = io::stdout().as_fd().try_clone_to_owned();
    out.map(File::from)
        .and_then(|mut out| out.write_all(text))
        .context("cannot write to standard output")
}
