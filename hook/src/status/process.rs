//! The processes that a ledger names, as they are seen from here.
//! Touches: /proc.
//!
//! A ledger has numbers of the processes' own pid namespaces, where the same number may be
//! anybody's here. So a process is believed only when it has mapped the ledger.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its number here.
    pub(super) pid: u32,
    /// What it is called.
    pub(super) name: String,
}

/// The process that calls itself `pid` and has mapped the ledger.
pub(super) fn find(pid: u32, ledger: &Path) -> Option<Seen> {
    let inode = fs::metadata(ledger).ok()?.ino();
    seen(pid, inode).or_else(|| {
        let numbers = fs::read_dir("/proc").ok()?;
        numbers
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|here| *here != pid && own_number(*here) == Some(pid))
            .find_map(|here| seen(here, inode))
    })
}

fn seen(pid: u32, ledger: u64) -> Option<Seen> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let inode = ledger.to_string();
    let mapped = String::from_utf8_lossy(&maps)
        .lines()
        .any(|line| line.split_ascii_whitespace().nth(4) == Some(&inode));
    let name = name(pid)?;
    mapped.then_some(Seen { pid, name })
}

/// What a process is called.
pub(crate) fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

/// The number of a process in the innermost pid namespace that it is in.
fn own_number(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}
