//! Evicts a file's pages from the page cache, and checks that they are gone.
//! Touches: the page cache of an open file; writes dirty pages to its device.
//! Law: the kernel's success code proves nothing; only the pages that are resident afterwards
//! count.

use super::filesystem::Filesystem;
use super::resident::{Resident, resident};
use gpuslice_config::words::units::Bytes;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;

/// The bytes dropped per call, so that progress is shown. No folio crosses a multiple of it.
const STEP: u64 = 1 << 30;

/// The most calls for a file. A sparse file may be far longer than all devices together.
const STEPS: u64 = 4096;

/// Evicts a file, and returns the pages that stay. `before` is the number resident before.
///
/// # Errors
/// When dirty pages cannot be written, or the kernel refuses.
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
    let step = step(data.len());
    let mut at = 0;
    while data.len().saturating_sub(at) > step {
        advise(file, at, step)?;
        gone(step);
        at = at.saturating_add(step);
    }
    // A length of 0 reaches to the end of the file, which may have moved meanwhile.
    advise(file, at, 0)?;
    gone(data.len().saturating_sub(at));
    let mut after = resident(file, data, on)?;
    if after.is_some_and(|after| after.bytes > Bytes::ZERO) {
        // The remaining pages were written meanwhile, or were still being written to the device.
        write_out(file)?;
        advise(file, 0, 0)?;
        after = resident(file, data, on)?;
    }
    Ok(after)
}

/// Returns the bytes to drop per call, a multiple of [`STEP`]. A call takes as long as the pages that it
/// drops, however long its range is.
fn step(length: u64) -> u64 {
    let least = length.div_ceil(STEPS);
    least
        .checked_next_multiple_of(STEP)
        .unwrap_or(least)
        .max(STEP)
}

/// Writes dirty pages, because they cannot be evicted. sync_file_range waits for no journal. An
/// overlay's file has no pages of its own to write, and fdatasync reaches the file below.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_file_takes_no_more_calls_than_a_large_one() {
        let file = tempfile::tempfile().unwrap();
        // The longest file of ext4.
        let length = (16 << 40) - (4 << 10);
        file.set_len(length).unwrap();
        let data = file.metadata().unwrap();
        let (mut calls, mut sum) = (0, 0);
        let after = evict(&file, &data, Filesystem::Backed, None, &mut |bytes| {
            calls += 1;
            sum += bytes;
        });
        assert_eq!((calls, sum), (STEPS, length));
        assert_eq!(after.unwrap().map(|after| after.bytes), Some(Bytes::ZERO));
    }

    #[test]
    fn a_step_is_whole_for_every_length() {
        assert_eq!(step(0), STEP);
        assert_eq!(step(1 << 40), STEP);
        assert_eq!(step(5 << 40), 2 * STEP);
        for length in [7 << 60, u64::MAX] {
            assert_eq!(step(length) % STEP, 0);
            assert!(length / step(length) <= STEPS);
        }
    }
}
