//! Range locks on a model's file. With them, processes show each other which bytes they still need.
//! Touches: locks on our own descriptors, far beyond the end of any file; never the program's.
//! Law: a process first removes its own lock, then tests for others. Of two that end at the same
//! time, at least one sees that it is the last.

use super::file_systems::FileSystem;
use super::files::{ModelFile, Number};
use super::open::{drops_behind, shares};
use crate::sys::file_calls::{self, Descriptor};
use crate::sys::locks::{self, LOCKS};

/// The size of the pieces for which the others' locks are tested.
const PIECE: u64 = 64 << 20;

impl ModelFile {
    /// Whether range locks on the file show what other processes need. Never on a network: each
    /// lock would wait for a lock manager, and NFS drops a file's pages when a lock is set.
    fn is_shared(&self) -> bool {
        shares() && self.file_system() != FileSystem::Network
    }
}

/// Locks a model file that was opened: all of it is needed. Drops meanwhile go through a descriptor
/// of our own.
pub(super) fn begins(number: Number, fd: Descriptor) {
    let file = number.file();
    if (file.is_shared() || drops_behind())
        && file.hold(fd)
        && file.is_shared()
        && !file.gives_way()
        && let Some(own) = file.own()
    {
        locks::need(own, 0, file.size(), true);
    }
}

/// Gives up our locks because the program locks this file itself: a lock of the whole file would
/// conflict with ours. From now on the others cannot see this process's need.
pub(super) fn gives_way(number: Number) {
    let file = number.file();
    file.give_way();
    if file.is_shared()
        && let Some(own) = file.own()
    {
        locks::need(own, 0, file.size(), false);
    }
}

/// Gives up a range that this process no longer needs. Returns whether no other process needs it.
pub(super) fn is_unneeded(file: &ModelFile, fd: Descriptor, start: u64, end: u64) -> bool {
    if !file.is_shared() {
        return true;
    }
    let length = end.saturating_sub(start);
    locks::need(fd, start, length, false);
    !locks::is_locked(fd, LOCKS.saturating_add(start), length)
}

/// Drops a range that this process no longer needs, except where another process needs it.
pub(super) fn drop_range(file: &ModelFile, fd: Descriptor, start: u64, end: u64) {
    let length = end.saturating_sub(start);
    if !file.is_shared() {
        file_calls::drop_pages(fd, start, length);
        return;
    }
    locks::need(fd, start, length, false);
    drop_unneeded(fd, start, end);
}

fn drop_unneeded(fd: Descriptor, start: u64, end: u64) {
    let mut at = start;
    while at < end {
        let next = at.saturating_add(PIECE).min(end);
        let length = next.saturating_sub(at);
        if !locks::is_locked(fd, LOCKS.saturating_add(at), length) {
            file_calls::drop_pages(fd, at, length);
        }
        at = next;
    }
}

/// Drops a whole file that this process no longer uses, except where another process needs it, and
/// unless the program has written to it. `ours`: whether the descriptor is the library's own.
pub(super) fn drop_whole(file: &ModelFile, fd: Descriptor, ours: bool) {
    let is_shared = file.is_shared();
    if is_shared && ours {
        locks::need(fd, 0, file.size(), false);
    }
    if file.is_written(fd) {
        return;
    }
    if is_shared && locks::is_locked(fd, LOCKS, file.size()) {
        drop_unneeded(fd, 0, file.size());
        return;
    }
    // Up to the end: the file may have grown.
    file_calls::drop_pages(fd, 0, 0);
}
