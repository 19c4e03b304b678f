//! Finds the processes that use a run's private folder: those whose environment names it.
//! Touches: /proc; the folder, for the name of its ledger.

use crate::tidy_up::Process;
use nix::unistd::{Pid, geteuid};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A process that uses the folder of a run.
pub(crate) fn another_user(folder: &Path) -> Option<Process> {
    let ledger = ledger_of(folder);
    fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .find_map(|pid| {
            // Others' processes cannot be read; they cannot enter the folder either.
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let uses = uses(pid, &environment, folder, ledger.as_ref());
            uses.then(|| Process::open(Pid::from_raw(pid)).ok())?
        })
}

/// Whether a process uses the folder of a run: its environment names the folder, or a file in it.
/// Everybody can name a folder of root's, and would keep it for as long as he likes: another user's
/// process is believed only where it knows the name of the `ledger`, which is random, or has the
/// ledger open.
pub(crate) fn uses(
    pid: i32,
    environment: &[u8],
    folder: &Path,
    ledger: Option<&(PathBuf, fs::Metadata)>,
) -> bool {
    let names = |path: &Path| {
        let text = path.as_os_str().as_bytes();
        environment.windows(text.len()).any(|window| window == text)
    };
    let is_own = || {
        let facts = fs::metadata(format!("/proc/{pid}"));
        facts.map(|facts| facts.uid() == geteuid().as_raw())
    };
    let knows = |(path, facts): &(PathBuf, fs::Metadata)| names(path) || has_open(pid, facts);
    names(folder) && is_own().is_ok_and(|is_own| is_own || ledger.is_some_and(knows))
}

/// The ledger of root's run, whose name nobody can guess.
pub(crate) fn ledger_of(folder: &Path) -> Option<(PathBuf, fs::Metadata)> {
    let mut entries = fs::read_dir(folder).ok()?.flatten();
    let ledger = entries.find(|entry| {
        let name = entry.file_name();
        name.as_bytes().starts_with(b"ledger.") && name.len() > SECRET
    })?;
    Some((ledger.path(), ledger.metadata().ok()?))
}

/// The letters of a ledger's random name.
const SECRET: usize = 32;

/// Whether a process has a file open.
fn has_open(pid: i32, file: &fs::Metadata) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let mut open = open.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
    open.any(|facts| (facts.dev(), facts.ino()) == (file.dev(), file.ino()))
}
