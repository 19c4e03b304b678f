//! Finds former slices of this process. They exist if `gpuslice run` executed a command in its
//! place and that command executed `gpuslice run` again, for example through `gpuslice run --bare`.
//! Touches: /proc; the private folders that environments name; the registry, and the ledgers of its
//! runs.
//! Law: a former slice of this process that no other process uses has ended; any other slice keeps its
//! place.

use crate::runs::{folder_users, registry, run_dir};
use gpuslice_config::words::paths;
use gpuslice_host::machine::environment;
use gpuslice_host::machine::process::ProcessId;
use gpuslice_host::slices::record_lock;
use nix::fcntl::OFlag;
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The processes that can own a run's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owners {
    /// The process that becomes the command, or the process for which a slice was made.
    pub own: ProcessId,
    /// The run's watcher. It owns the new record if this process already owns the record of a
    /// former slice.
    pub watcher: Option<ProcessId>,
}

impl Owners {
    /// Returns the owners for a process and its watcher. With None, the process is this one.
    #[must_use]
    pub(crate) fn of(owner: Option<ProcessId>, watcher: Option<i32>) -> Owners {
        let pid = Pid::this().as_raw();
        let this = || ProcessId::of(pid).unwrap_or(ProcessId { pid, start_time: 0 });
        Owners {
            own: owner.unwrap_or_else(this),
            watcher: watcher.and_then(ProcessId::of),
        }
    }

    /// Returns this process, if it owns the new record: its former slices end unless other processes
    /// use them. A slice that was made for another process lasts as long as that process, even
    /// before any program has its variables.
    #[must_use]
    pub(crate) fn this(&self) -> Option<ProcessId> {
        Some(self.own).filter(|own| own.pid == Pid::this().as_raw())
    }

    /// Returns the owner of a new record. `is_taken` says that this process already owns the record
    /// of a former slice.
    #[must_use]
    pub(crate) fn of_record(&self, is_taken: bool) -> ProcessId {
        let watcher = self.watcher.filter(|_| is_taken);
        watcher.unwrap_or(self.own)
    }
}

/// Checks whether the watcher of a later run holds the lock on a record.
#[must_use]
pub(crate) fn is_held(record: &Path) -> bool {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(flags).open(record);
    file.is_ok_and(|file| record_lock::is_locked(&file))
}

/// Checks whether any other process is in the slice of a record. The slice's private folder
/// contains a symbolic link to the record, named `link`.
#[must_use]
pub(crate) fn is_used(link: &str, is_record: impl Fn(&Path) -> bool) -> bool {
    others_in_a_run()
        .any(|private| fs::read_link(private.join(link)).is_ok_and(|file| is_record(&file)))
}

/// Checks whether any other process is in the slice of a private folder.
#[must_use]
pub(crate) fn is_used_by_others(private: &Path) -> bool {
    others_in_a_run().any(|used| used == private)
}

/// Returns the private folders of the slices that other processes use. A process that has
/// overwritten its environment is found by the ledger of its slice; this process is in none.
fn others_in_a_run() -> impl Iterator<Item = PathBuf> {
    named_by_others().chain(registry::folders_with_holders())
}

/// Returns the private folders that the environments of other processes name.
fn named_by_others() -> impl Iterator<Item = PathBuf> {
    let own = Pid::this().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(move |pid| *pid != own).filter_map(|pid| {
        let environment = environment::of(pid).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let file = variables.find_map(|variable| {
            variable
                .strip_prefix(paths::CONFIG.to_bytes())?
                .strip_prefix(b"=")
        })?;
        let private = run_dir::private_folder(Path::new(OsStr::from_bytes(file)))?;
        let ledger = folder_users::ledger_of(private);
        let uses = folder_users::uses(pid, &environment, private, ledger.as_ref());
        uses.then(|| private.to_owned())
    })
}
