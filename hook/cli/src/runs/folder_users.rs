//! Finds the processes that use a run's private folder: those whose environment names it.
//! Touches: /proc; the folder, for the name of its ledger.

use crate::runs::process::Process;
use gpuslice_host::machine::environment;
use nix::unistd::{Pid, geteuid};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns a process that uses a run's private folder, if any.
pub(crate) fn another_user(folder: &Path) -> Option<Process> {
    let ledger = ledger_of(folder);
    fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .find_map(|pid| {
            // Processes of other users cannot be read, but they cannot enter the folder either.
            let environment = environment::of(pid).ok()?;
            let uses = uses(pid, &environment, folder, ledger.as_ref());
            uses.then(|| Process::open(Pid::from_raw(pid)).ok())?
        })
}

/// Checks whether a process uses the folder of a run: its environment names the folder, or a file
/// in it. Any user could name a folder of root's in an environment, and so prevent its removal. A
/// process of another user therefore counts only if it knows the random name of the `ledger`, or
/// has the ledger open.
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

/// Returns the ledger of a run of root. Its name is random, so other users cannot guess it.
pub(crate) fn ledger_of(folder: &Path) -> Option<(PathBuf, fs::Metadata)> {
    let mut entries = fs::read_dir(folder).ok()?.flatten();
    let ledger = entries.find(|entry| {
        let name = entry.file_name();
        name.as_bytes().starts_with(b"ledger.") && name.len() > SECRET
    })?;
    Some((ledger.path(), ledger.metadata().ok()?))
}

/// The number of letters in a ledger's random name.
const SECRET: usize = 32;

/// Checks whether a process has a file open.
fn has_open(pid: i32, file: &fs::Metadata) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let mut open = open.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
    open.any(|facts| (facts.dev(), facts.ino()) == (file.dev(), file.ino()))
}
