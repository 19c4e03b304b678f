//! Pages out the files that a running process has mapped, so that they can be evicted.
//! Touches: that process's mappings, by process_madvise(2); /proc.
//! Law: pages that a process has changed in a private mapping stay in memory. MADV_PAGEOUT would
//! write them to swap, so such a mapping is skipped on a machine with swap.

use super::choose::has_suffix;
use super::filesystem::Filesystem;
use super::holders::{Mapping, name};
use super::survey::{self, Surveyed};
use anyhow::{Context, bail};
use nix::libc;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The selected mappings of a process.
pub(super) struct Live {
    pid: u32,
    process: OwnedFd,
    ranges: Vec<(usize, usize)>,
}

impl Live {
    /// Finds the mappings of `files`. With `any`, it selects the model files that the process has
    /// mapped, and adds them to `files`.
    ///
    /// # Errors
    /// When the process does not exist, or may not be read.
    pub(super) fn find(
        pid: u32,
        suffixes: Option<&[String]>,
        files: &mut Vec<Surveyed>,
        any: bool,
    ) -> anyhow::Result<Live> {
        let process = open_process(pid).with_context(|| format!("no process {pid}"))?;
        let maps = fs::read(format!("/proc/{pid}/smaps"))
            .with_context(|| format!("cannot see what {} (pid {pid}) has mapped", name(pid)))?;
        let swap = has_swap();
        let mut ranges = Vec::new();
        for (mapping, changed) in mappings(&maps) {
            let wanted = || suffixes.is_none_or(|all| has_suffix(Path::new(&mapping.path), all));
            if any && wanted() && !is_known(files, &mapping) {
                files.extend(surveyed(pid, &mapping));
            }
            let Some(file) = files.iter_mut().find(|file| is_of(file, &mapping)) else {
                continue;
            };
            if changed && swap {
                file.report.why = Some(format!(
                    "{} (pid {pid}) has modified private pages of the file, and evicting them would swap them out",
                    name(pid)
                ));
                continue;
            }
            ranges.push((mapping.start, mapping.end));
        }
        Ok(Live {
            pid,
            process,
            ranges,
        })
    }

    /// Asks the kernel to page the mappings out.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn page_out(&self) -> anyhow::Result<()> {
        for (start, end) in &self.ranges {
            let mut at = *start;
            while at < *end {
                let part = end.saturating_sub(at).min(PART);
                match advise(&self.process, at, part) {
                    Ok(advised) => at = at.saturating_add(advised.max(1)),
                    // The process has unmapped or locked the range meanwhile, or has ended: skip
                    // it.
                    Err(error) if is_gone(&error) => break,
                    Err(error) => bail!(
                        "cannot page out what {} (pid {}) has mapped: {error}; it takes root, or \
                         CAP_SYS_NICE and the right to trace it",
                        name(self.pid),
                        self.pid
                    ),
                }
            }
        }
        Ok(())
    }
}

/// The bytes per call: the kernel accepts less than 2 GiB.
const PART: usize = 1 << 30;

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOMEM | libc::EINVAL | libc::ESRCH)
    )
}

fn open_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open(2) takes numbers only.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(opened) {
        // SAFETY: the kernel has just created this descriptor, and no other code owns it.
        Ok(opened) if opened >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(opened) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn advise(process: &OwnedFd, at: usize, length: usize) -> io::Result<usize> {
    let range = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(at),
        iov_len: length,
    };
    // SAFETY: process_madvise(2) reads one iovec; the addresses are another process's, and paging
    // out changes nothing that it can read.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            &raw const range,
            1,
            libc::MADV_PAGEOUT,
            0,
        )
    };
    usize::try_from(advised).map_err(|_| io::Error::last_os_error())
}

/// Returns the mappings of files, and whether the process has private pages in them.
fn mappings(smaps: &[u8]) -> Vec<(Mapping, bool)> {
    let mut mappings: Vec<(Option<Mapping>, bool)> = Vec::new();
    for line in smaps.split(|byte| *byte == b'\n') {
        let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        if first.contains(&b'-') {
            mappings.push((Mapping::read(line), false));
        } else if first == b"Anonymous:"
            && let Some((_, changed)) = mappings.last_mut()
        {
            let amount = line.get(first.len()..).unwrap_or_default().trim_ascii();
            *changed = !amount.starts_with(b"0 ");
        }
    }
    let read = mappings.into_iter();
    read.filter_map(|(mapping, changed)| Some((mapping?, changed)))
        .collect()
}

fn has_swap() -> bool {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().count() > 1
}

fn is_of(file: &Surveyed, mapping: &Mapping) -> bool {
    // Most mapped files are not this one, and finding out a name requires opening the file.
    match file.identity {
        Some((device, inode)) if inode == mapping.inode => {
            device == mapping.device || file.mapped_as().is_some_and(|file| mapping.is_of(&file))
        }
        _ => false,
    }
}

fn is_known(files: &[Surveyed], mapping: &Mapping) -> bool {
    files.iter().any(|file| is_of(file, mapping))
}

/// Describes a file as that process sees it. Its own path is shown if that path leads to the file
/// here too.
fn surveyed(pid: u32, mapping: &Mapping) -> Option<Surveyed> {
    let inside = Path::new(&mapping.path).strip_prefix("/").ok()?;
    let path = PathBuf::from(format!("/proc/{pid}/root")).join(inside);
    let file = survey::open(&path).ok()?;
    let data = file.metadata().ok()?;
    if data.ino() != mapping.inode || !data.is_file() {
        return None;
    }
    let identity = |data: &fs::Metadata| (data.dev(), data.ino());
    let own = PathBuf::from(&mapping.path);
    let same = fs::metadata(&own).is_ok_and(|own| identity(&own) == identity(&data));
    let path = if same { own } else { path };
    survey::look(path, &file, &data, Filesystem::of(&file)).ok()
}
