//! Removes what a run has left, after its last process has ended.
//! Touches: the run's folder, its registry link, and what `headroom_store`, `recorder`, `promise`,
//! `tenancy` and `leaf` touch.

use crate::runs::process::INTERVAL;
use crate::runs::recording::recorder;
use crate::runs::{headroom_store, leaf, promise, promise_maker, registry, tenancy};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Cleans up after a run that has ended: learns headroom from its ledger and records its end unless
/// its watcher has done so, then removes its records, the folder and the `link` to it. The folder names the
/// records, and so does `records`, because a program may have removed the folder.
pub(crate) fn finish(folder: &Path, link: Option<&Path>, records: &[PathBuf]) {
    // No user reads a message here. If the headroom cannot be stored, `gpuslice headroom` reports
    // why.
    let _ = headroom_store::learn(folder);
    let why = "its watcher was killed, so the end was noticed later";
    recorder::end_lost(folder, why);
    let link = link.and_then(|link| registry::mark_ended(link, folder));
    promise::forget(folder);
    tenancy::forget(folder);
    for record in records {
        promise_maker::withdraw(record);
        tenancy::withdraw(record);
    }
    if let Some(leaf) = leaf::of(folder) {
        leaf::remove(&leaf);
    }
    remove(folder);
    if let Some(link) = link {
        let _ = fs::remove_file(link);
    }
}

/// Removes a run's folder.
pub(crate) fn remove(folder: &Path) {
    // A process that is just ending may still create files for a moment.
    for _ in 0..10 {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(INTERVAL),
            _ => return,
        }
    }
}
