//! Takes a file's pages out of the page cache, and looks whether they are gone.
//! Touches: the page cache of an open file; writes what is dirty to its device.
//! Law: a success code of the kernel's proves nothing; only what is resident afterwards does.

use super::filesystem::Filesystem;
use super::resident::{Resident, resident};
use gpuslice_config::units::Bytes;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;

/// As much as goes in one call while somebody watches. No folio lies across its multiples.
const STEP: u64 = 1 << 30;

/// Drops all of a file, and says what is still there. `before` is what was there.
///
/// # Errors
/// When what is dirty cannot be written, or the kernel refuses.
pub(super) fn evict(
    file: &File,
    data: &Metadata,
    on: Filesystem,
    before: Option<Resident>,
    gone: &mut dyn FnMut(u64),
) -> io::Result<Option<Resident>> {
    let dirty = before.is_none_or(|before| before.dirty != Some(Bytes::ZERO));
    if dirty {
        write_out(file)?;
    }
    let mut at = 0;
    while data.len().saturating_sub(at) > STEP {
        advise(file, at, STEP)?;
        gone(STEP);
        at = at.saturating_add(STEP);
    }
    // To the end, wherever that is meanwhile.
    advise(file, at, 0)?;
    gone(data.len().saturating_sub(at));
    let mut after = resident(file, data, on)?;
    if after.is_some_and(|after| after.bytes > Bytes::ZERO) {
        // What was written to meanwhile, or was still on its way to the device.
        write_out(file)?;
        advise(file, 0, 0)?;
        after = resident(file, data, on)?;
    }
    Ok(after)
}

/// Dirty pages stay where they are. sync_file_range asks no journal, but an overlay's file has no
/// pages of its own to write; fdatasync goes through.
fn write_out(file: &File) -> io::Result<()> {
    const WAIT: libc::c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: sync_file_range(2) takes numbers only.
    let status = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, WAIT) };
    let on_overlay = Filesystem::of(file) == Filesystem::Overlay;
    if status == 0 && !on_overlay {
        return Ok(());
    }
    file.sync_data()
}

fn advise(file: &File, at: u64, length: u64) -> io::Result<()> {
    let number = |value: u64| {
        libc::off_t::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
    };
    let dropped = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    Ok(posix_fadvise(file, number(at)?, number(length)?, dropped)?)
}
