//! The users of a run's private folder, for whose end the watcher waits.
//! Touches: /proc; the ledger, by reading it through the watcher's descriptor. Never a mapping, so a
//! truncated ledger harms no watcher.

use crate::runs::folder_users::another_user;
use crate::runs::process::{INTERVAL, Process};
use crate::runs::recording::recorder::LEDGER;
use gpuslice_config::ledger::Snapshot;
use gpuslice_host::base::ledger_room::room;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A user of the folder.
#[derive(Debug)]
pub(super) enum User {
    /// A process whose environment names the folder, or the run's first process.
    Process(Process),
    /// The processes that the ledger lists. Their environment may not name the folder any more:
    /// setproctitle overwrites it. They still hold GPU memory.
    Listed,
}

impl User {
    /// Returns a user of the folder, if any.
    pub(super) fn of(folder: &Path) -> Option<User> {
        let process = || another_user(folder).map(User::Process);
        // A second search finds a process that was started during the first one.
        let found = process().or_else(process);
        found.or_else(|| is_any_listed().then_some(User::Listed))
    }

    /// Waits for its end.
    pub(super) fn wait(&self) {
        match self {
            User::Process(process) => process.wait(),
            User::Listed => while !self.wait_for(INTERVAL) {},
        }
    }

    /// Waits for its end, but not longer than this. Returns whether it has ended.
    pub(super) fn wait_for(&self, time: Duration) -> bool {
        if let User::Process(process) = self {
            return process.wait_for(time);
        }
        let start = Instant::now();
        while is_any_listed() {
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(INTERVAL));
        }
        true
    }
}

/// Checks whether a process is alive that the ledger lists. A ledger that cannot be read lists none.
fn is_any_listed() -> bool {
    let mut bytes = room(Path::new(OsStr::from_bytes(LEDGER.to_bytes())));
    let snapshot = Snapshot::read_link(LEDGER, &mut bytes);
    snapshot.is_ok_and(|snapshot| snapshot.slots().any(|record| record.alive))
}
