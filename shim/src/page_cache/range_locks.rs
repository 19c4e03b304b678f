//! Range locks on a model's file. With them, processes show each other which bytes they still need.
//! Touches: locks on our own descriptors, far beyond the end of any file; never the program's.
//! Law: a process first removes its own lock, then tests for others. Of two that end at the same
//! time, at least one sees that it is the last.

use super::files::Number;
use super::open::{drops_behind, shares};
use crate::sys::file_calls::{self, Descriptor, LOCKS};

/// The size of the pieces for which the others' locks are tested.
const PIECE: u64 = 64 << 20;

/// Locks a model file that was opened: all of it is needed. Drops meanwhile go through a descriptor
/// of our own.
pub(super) fn begins(number: Number, fd: Descriptor) {
    let file = number.file();
    if (shares() || drops_behind())
        && file.hold(fd)
        && shares()
        && !file.gives_way()
        && let Some(own) = file.own()
    {
        file_calls::need(own, 0, file.size(), true);
    }
}

/// Gives up our locks because the program locks this file itself: a lock of the whole file would
/// conflict with ours. From now on the others cannot see this process's need.
pub(super) fn gives_way(number: Number) {
    let file = number.file();
    file.give_way();
    if let Some(own) = file.own() {
        file_calls::need(own, 0, file.size(), false);
    }
}

/// Gives up a range that this process no longer needs. Returns whether no other process needs it.
pub(super) fn is_unneeded(fd: Descriptor, start: u64, end: u64) -> bool {
    if !shares() {
        return true;
    }
    let length = end.saturating_sub(start);
    file_calls::need(fd, start, length, false);
    !file_calls::is_locked(fd, LOCKS.saturating_add(start), length)
}

/// Drops a range that this process no longer needs, except where another process needs it.
pub(super) fn drop_range(fd: Descriptor, start: u64, end: u64) {
    let length = end.saturating_sub(start);
    if !shares() {
        file_calls::drop_pages(fd, start, length);
        return;
    }
    file_calls::need(fd, start, length, false);
    drop_unneeded(fd, start, end);
}

fn drop_unneeded(fd: Descriptor, start: u64, end: u64) {
    let mut at = start;
    while at < end {
        let next = at.saturating_add(PIECE).min(end);
        let length = next.saturating_sub(at);
        if !file_calls::is_locked(fd, LOCKS.saturating_add(at), length) {
            file_calls::drop_pages(fd, at, length);
        }
        at = next;
    }
}

/// Drops a whole file that this process no longer uses, except where another process needs it.
/// `ours`: whether the descriptor is the library's own.
pub(super) fn drop_whole(fd: Descriptor, ours: bool, size: u64) {
    if shares() {
        if ours {
            file_calls::need(fd, 0, size, false);
        }
        if file_calls::is_locked(fd, LOCKS, size) {
            drop_unneeded(fd, 0, size);
            return;
        }
    }
    // Up to the end: the file may have grown.
    file_calls::drop_pages(fd, 0, 0);
}
