//! The lock by which processes on one simulated machine take turns. A real driver's lock is in the
//! kernel, where no process can stop while it holds it; so no process is stopped with this one.
//! Touches: /proc, for the names of descriptors.

use super::trace::Call;
use std::collections::BTreeSet;
use std::path::Path;

/// The traced processes that hold their machine's lock.
#[derive(Debug, Default)]
pub(crate) struct DriverLock {
    holders: BTreeSet<i32>,
}

impl DriverLock {
    /// Follows a call. Returns whether its process holds the lock during it.
    pub(crate) fn is_held(&mut self, call: &Call) -> bool {
        if call.number != libc::SYS_flock {
            return self.holders.contains(&call.pid);
        }
        let descriptor = format!("/proc/{}/fd/{}", call.pid, call.arguments[0]);
        let file = std::fs::read_link(descriptor);
        if !file.is_ok_and(|file| file.file_name() == Some(Path::new("machine").as_os_str())) {
            return self.holders.contains(&call.pid);
        }
        match call.arguments[1] == libc::LOCK_UN as u64 {
            true => self.holders.remove(&call.pid),
            false => self.holders.insert(call.pid),
        };
        true
    }
}
