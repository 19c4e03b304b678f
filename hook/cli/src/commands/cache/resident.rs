//! Measures how much of a file is in the page cache: with cachestat(2), or with mincore(2) if
//! cachestat is not available.
//! Touches: an open file; maps it for as long as mincore takes.
//! Law: if the kernel may not answer, the result is unknown. To an unauthorised process, mincore
//! reports every page as resident.

use super::filesystem::Filesystem;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::page_size;
use nix::libc;
use std::fs::{File, Metadata};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// The part of a file that is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resident {
    /// The resident bytes.
    pub(super) bytes: Bytes,
    /// The part not yet written to the device, if the kernel reports it.
    pub(super) dirty: Option<Bytes>,
    /// The system call that counted.
    pub(super) by: By,
}

/// The system call that counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Cachestat,
    Mincore,
}

impl By {
    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            By::Cachestat => "cachestat",
            By::Mincore => "mincore",
        }
    }
}

/// Queries the kernel. Returns None if this process may not know: it neither owns the file nor may
/// write to it. Also None if mincore would take too long.
///
/// # Errors
/// When the kernel returns an error.
pub(super) fn resident(
    file: &File,
    data: &Metadata,
    on: Filesystem,
) -> io::Result<Option<Resident>> {
    let counted = cachestat(file);
    if counted.as_ref().is_err_and(|error| *error == libc::EPERM) {
        return Ok(None);
    }
    match counted {
        Ok(counted) if on != Filesystem::Overlay => Ok(Some(Resident {
            bytes: pages(counted.nr_cache).at_most(whole_pages(data.len())),
            dirty: Some(pages(counted.nr_dirty).plus(pages(counted.nr_writeback))),
            by: By::Cachestat,
        })),
        _ if !may_know(file, data) => Ok(None),
        _ => Ok(mincore(file, data)?.map(|bytes| Resident {
            bytes,
            dirty: None,
            by: By::Mincore,
        })),
    }
}

/// The range to query; 0 and 0 mean the whole file.
#[repr(C)]
struct Range {
    off: u64,
    len: u64,
}

/// The kernel's answer, in pages.
#[repr(C)]
#[derive(Default)]
struct Counted {
    nr_cache: u64,
    nr_dirty: u64,
    nr_writeback: u64,
    nr_evicted: u64,
    nr_recently_evicted: u64,
}

/// The system call number, equal on every architecture; libc does not define it yet.
const SYS_CACHESTAT: libc::c_long = 451;

fn cachestat(file: &File) -> Result<Counted, i32> {
    let (whole, mut counted) = (Range { off: 0, len: 0 }, Counted::default());
    // SAFETY: cachestat(2) reads the first struct and writes the second, both of its layout.
    let status = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const whole,
            &raw mut counted,
            0,
        )
    };
    match status {
        0 => Ok(counted),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
    }
}

/// Checks whether mincore returns true answers, by the kernel's own rule. Needed on kernels without
/// cachestat, and on kernels whose cachestat does not check.
pub(super) fn may_know(file: &File, data: &Metadata) -> bool {
    nix::unistd::geteuid().as_raw() == data.uid() || may_write(file) || owns_all()
}

fn may_write(file: &File) -> bool {
    let path = format!("/proc/thread-self/fd/{}", file.as_raw_fd());
    let flags = nix::fcntl::AtFlags::AT_EACCESS;
    let ask = nix::unistd::AccessFlags::W_OK;
    nix::unistd::faccessat(nix::fcntl::AT_FDCWD, path.as_str(), ask, flags).is_ok()
}

/// Checks whether this process has CAP_FOWNER.
fn owns_all() -> bool {
    const CAP_FOWNER: u32 = 3;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    held.is_some_and(|held| held & (1 << CAP_FOWNER) != 0)
}

/// The bytes of a file per query: the answer is a vector with one byte per page.
const WINDOW: u64 = 1 << 30;

/// The most bytes of holes in a file that is queried. mincore looks at each page of the length, 16 ms
/// for a GiB, and a user may make a sparse file of 7 EiB.
const HOLES: u64 = 16 << 30;

/// The reason why the resident pages of a file that this process may know are unknown.
pub(super) const TOO_LONG: &str = "the file is too long, or has too many holes, to count its pages";

/// The longest query of a file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the resident bytes; None if it takes too long to count them.
fn mincore(file: &File, data: &Metadata) -> io::Result<Option<Bytes>> {
    /// The unit of st_blocks, on every filesystem.
    const BLOCK: u64 = 512;
    let size = data.len();
    if size.saturating_sub(data.blocks().saturating_mul(BLOCK)) > HOLES {
        return Ok(None);
    }
    let start = Instant::now();
    let (mut at, mut there) = (0, 0u64);
    while at < size {
        if start.elapsed() > PATIENCE {
            return Ok(None);
        }
        let length = size.saturating_sub(at).min(WINDOW);
        there = there.saturating_add(mincore_window(file, at, length)?);
        at = at.saturating_add(length);
    }
    Ok(Some(pages(there).at_most(whole_pages(size))))
}

fn mincore_window(file: &File, at: u64, length: u64) -> io::Result<u64> {
    let pages = length.div_ceil(page_size());
    let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
    let bytes = usize::try_from(length).map_err(|_| too_large())?;
    let offset = libc::off_t::try_from(at).map_err(|_| too_large())?;
    let mut there = vec![0u8; usize::try_from(pages).map_err(|_| too_large())?];
    let size = NonZeroUsize::new(bytes).ok_or_else(too_large)?;
    // SAFETY: a new mapping at an address that the kernel chooses; nothing in it is read.
    let map = unsafe {
        nix::sys::mman::mmap(
            None,
            size,
            nix::sys::mman::ProtFlags::PROT_READ,
            nix::sys::mman::MapFlags::MAP_SHARED,
            file,
            offset,
        )
    }?;
    // SAFETY: the mapping exists, and the vector has a byte for each of its pages.
    let status = unsafe { libc::mincore(map.as_ptr(), bytes, there.as_mut_ptr()) };
    let failed = (status != 0).then(io::Error::last_os_error);
    // SAFETY: unmaps the mapping made above, into which no reference exists.
    unsafe { nix::sys::mman::munmap(map, bytes) }?;
    match failed {
        Some(error) => Err(error),
        None => Ok(count(&there)),
    }
}

fn count(there: &[u8]) -> u64 {
    there
        .iter()
        .fold(0, |sum: u64, page| sum.saturating_add(u64::from(page & 1)))
}

/// Returns the size of that many pages.
fn pages(count: u64) -> Bytes {
    Bytes::new(count.saturating_mul(page_size()))
}

/// Rounds a size up to whole pages.
fn whole_pages(size: u64) -> Bytes {
    pages(size.div_ceil(page_size()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_pages_of_a_file_that_is_mostly_holes_are_unknown() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 1 << 16]).unwrap();
        let counted = |length: u64| {
            file.set_len(length).unwrap();
            mincore(&file, &file.metadata().unwrap()).unwrap()
        };
        assert_eq!(counted(1 << 30), Some(Bytes::new(1 << 16)));
        let start = Instant::now();
        assert_eq!(counted((16 << 40) - (4 << 10)), None);
        assert!(start.elapsed() < PATIENCE);
    }
}
