//! Drop-behind: pages leave a window after the loader has consumed them, while it loads.
//! Touches: notes of what was consumed; in the helper thread, the window and the pages.
//! Law: MADV_DONTNEED only where the mapping was never writable or is shared, and where the
//! kernel says that every page is a file's; MADV_PAGEOUT, which loses nothing, where it is writable
//! and private. It stops by itself when what was dropped is used again.

use core::sync::atomic::{AtomicU64, Ordering};

use super::files::{self, Number};
use super::mappings::{self, Range};
use super::pagemap::Pages;
use super::queue::{Entry, Queue};
use super::quiesce::Inside;
use super::window::{Consumed, Window};
use super::{helper, range_locks};
use crate::sys::file_calls::{self, Descriptor};

/// What a large folio spans: parts of one are not dropped.
pub(super) const BLOCK: u64 = 2 << 20;
/// The loader does not call the helper for less.
const CALL: u64 = 16 << 20;
/// Less than that is not said of what was read.
const SAID: u64 = 1 << 20;
/// As much is dropped at a time: whoever unmaps the file waits no longer than that takes.
const PIECE: u64 = 32 << 20;

/// A loader that is so far ahead of the helper waits for it, which then has a processor: on a busy
/// machine it would otherwise fill the page cache before the helper has had its first turn.
const AHEAD: u64 = 24 << 20;
/// It does not wait longer. One range counts as `CALL` at most: who copies gigabytes at once is
/// not held up by what that takes to drop.
const TURN_MS: u32 = 100;

static NOTES: Queue<1024> = Queue::new();
/// What of the notes the helper has not come to.
static AHEAD_BY: AtomicU64 = AtomicU64::new(0);
/// Consumed since the helper was called last.
static SINCE: AtomicU64 = AtomicU64::new(0);

/// The device was given what is mapped here.
#[cold]
#[inline(never)]
pub(super) fn copied(range: Range) {
    if mappings::meeting(range).next().is_none() {
        return;
    }
    let Some(_inside) = Inside::at_own_files() else {
        return;
    };
    for piece in mappings::meeting(range) {
        let start = range.start.max(piece.range.start);
        let end = range.end.min(piece.range.end);
        let delta = piece.range.start.wrapping_sub(piece.offset);
        consumed(Consumed {
            number: piece.number,
            serial: piece.number.file().serial(),
            start: start.wrapping_sub(delta),
            end: end.wrapping_sub(delta),
            delta,
        });
    }
}

/// A part of a file was read; without an offset, up to where its descriptor now stands.
#[cold]
#[inline(never)]
pub(super) fn read(fd: Descriptor, offset: Option<i64>, length: isize) {
    let (Ok(length), Some(number)) = (u64::try_from(length), files::hinted_at(fd)) else {
        return;
    };
    let file = number.file();
    // Whoever reads in small pieces does so one after the other; the kernel is asked where for
    // as much as is worth it.
    let length = match offset {
        Some(_) => length,
        None => file
            .unsaid
            .fetch_add(length, Ordering::Relaxed)
            .saturating_add(length),
    };
    if length < SAID {
        return;
    }
    let Some(_inside) = Inside::at_own_files() else {
        return;
    };
    if !file.is(fd) {
        return;
    }
    let end = match offset {
        Some(offset) => u64::try_from(offset)
            .ok()
            .map(|start| start.saturating_add(length)),
        None => {
            file.unsaid.store(0, Ordering::Relaxed);
            file_calls::position(fd)
        }
    };
    let Some(end) = end else { return };
    consumed(Consumed {
        number,
        serial: file.serial(),
        start: end.saturating_sub(length),
        end,
        delta: 0,
    });
}

fn consumed(range: Consumed) {
    let length = range.end.saturating_sub(range.start);
    if range.number.file().touched.has_stopped() || length == 0 {
        return;
    }
    // Where there is no room the end of the file's use drops it.
    if !NOTES.push(range.note()) {
        helper::call();
        return;
    }
    let ahead = AHEAD_BY.fetch_add(length.min(CALL), Ordering::AcqRel);
    let since = SINCE.fetch_add(length, Ordering::AcqRel);
    if since.saturating_add(length) >= CALL {
        SINCE.store(0, Ordering::Release);
        helper::call();
    }
    if ahead > AHEAD {
        wait_for_helper();
    }
}

#[cold]
fn wait_for_helper() {
    for _ in 0..TURN_MS {
        if AHEAD_BY.load(Ordering::Acquire) <= AHEAD || !helper::runs() {
            return;
        }
        helper::pause();
    }
    // It does not get on: the next one is not held up as well.
    AHEAD_BY.store(0, Ordering::Release);
}

/// The helper has come to a note.
fn came_to(length: u64) {
    let less = |ahead: u64| Some(ahead.saturating_sub(length.min(CALL)));
    let _ = AHEAD_BY.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
}

/// This process is a forked child: the notes were its parent's.
pub(super) fn inherit() {
    NOTES.clear();
    AHEAD_BY.store(0, Ordering::Relaxed);
    helper::inherit();
}

/// What the helper does: reads the notes, and drops what has left the window.
pub(super) fn work() {
    let Some(window) = Window::of_helper() else {
        return;
    };
    loop {
        let mut idle = true;
        while let Some(note) = NOTES.pop() {
            idle = false;
            let range = Consumed::of_note(note);
            if let Some(range) = range {
                window.enter(range);
            }
            while let Some(piece) = window.leaves(PIECE) {
                drop_piece(piece);
            }
            came_to(range.map_or(0, Consumed::length));
            if helper::rests() {
                break;
            }
        }
        if idle || helper::rests() {
            return;
        }
    }
}

fn drop_piece(piece: Consumed) {
    let number = piece.number;
    helper::enter(number);
    let file = number.file();
    if file.is_in_use(piece.serial)
        && !file.touched.has_stopped()
        && let Some(own) = file.own()
    {
        drop_pages(piece, own);
    }
    helper::leave();
}

fn drop_pages(piece: Consumed, own: Descriptor) {
    let file = piece.number.file();
    let size = file.size();
    file.touched.used(piece.start..piece.end, size);
    let is_used = |block: u64| file.touched.is_used(block, size);
    // A block at the edge goes with the last of what lies in it: what is still to come may be there
    // already, because the kernel reads ahead and around.
    let (first, last) = (piece.start / BLOCK, piece.end / BLOCK);
    let first = match first == 0 || is_used(first) {
        true => first,
        false => first.saturating_add(1),
    };
    let ends = piece.end >= size;
    let last = match ends || (piece.end & (BLOCK - 1) != 0 && is_used(last)) {
        true => last.saturating_add(1),
        false => last,
    };
    if last <= first {
        return;
    }
    // Back over what was left of the last piece's end.
    let back = first.checked_sub(1).filter(|before| is_used(*before));
    let start = back.unwrap_or(first).saturating_mul(BLOCK);
    let end = match ends {
        true => piece.end.saturating_add(4095) & !4095,
        false => last.saturating_mul(BLOCK),
    };
    if piece.delta != 0 {
        let Some(pages) = Pages::open() else { return };
        let next = start / BLOCK..end / BLOCK;
        if file.touched.is_again(size, next, |block| {
            let start = block.saturating_mul(BLOCK).wrapping_add(piece.delta);
            let end = start.saturating_add(BLOCK);
            pages.are_present(Range { start, end })
        }) {
            file.touched.stop();
            pages.close();
            return;
        }
        let range = Range {
            start: start.wrapping_add(piece.delta),
            end: end.wrapping_add(piece.delta),
        };
        unmap(piece.number, range, &pages, own);
        pages.close();
    }
    range_locks::drop_range(own, start, end.min(size));
    if file.touched.dropped(first..last, size) {
        file.touched.stop();
    }
}

/// Takes a range of a mapping out of this process's page tables; the next touch brings it back.
fn unmap(number: Number, range: Range, pages: &Pages, own: Descriptor) {
    if !mappings::settle() {
        return;
    }
    for piece in mappings::meeting(range).filter(|piece| piece.number == number) {
        let whole = Range {
            start: range.start.max(piece.range.start),
            end: range.end.min(piece.range.end),
        };
        if piece.kind & mappings::SHARED == 0 && piece.kind & mappings::WRITABLE != 0 {
            // It may be written to just now. This drops the pages themselves, so that others
            // are asked before.
            let delta = piece.range.start.wrapping_sub(piece.offset);
            let (start, end) = (
                whole.start.wrapping_sub(delta),
                whole.end.wrapping_sub(delta),
            );
            if range_locks::is_unneeded(own, start, end) {
                pages.each_of_a_file(whole, |range| file_calls::page_out(range.start, range.end));
            }
        } else if pages.are_a_files(whole) {
            // Our table may be wrong: there are ways to map and to write that nobody sees.
            file_calls::forget_pages(whole.start, whole.end);
        }
    }
}

/// What a note says: see [`Consumed`].
pub(super) type Note = Entry;
