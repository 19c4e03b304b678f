//! Drop-behind: evicts pages behind a window while a model is loaded, after the loader has consumed
//! them.
//! Touches: notes of consumed ranges; in the helper thread, the window and the pages.
//! Law: uses MADV_DONTNEED only where the mapping was never writable or is shared, and where the
//! kernel reports every page as a file's. Uses MADV_PAGEOUT, which loses no data, on private
//! writable mappings. Stops by itself when dropped pages are used again.

pub(in crate::page_cache) mod block_map;
pub(in crate::page_cache) mod helper;
mod pagemap;
mod window;

use core::sync::atomic::{AtomicU64, Ordering};

use self::pagemap::Pages;
use self::window::{Consumed, Window};
use crate::page_cache::files::Number;
use crate::page_cache::hints;
use crate::page_cache::mappings::{self, Range};
use crate::page_cache::queue::{Entry, Queue};
use crate::page_cache::quiesce::InFlight;
use crate::page_cache::range_locks;
use crate::sys::file_calls::{self, Descriptor};

/// The span of a large folio, in bytes: parts of one are not dropped.
pub(super) const BLOCK: u64 = 2 << 20;
/// The number of consumed bytes after which the loader calls the helper.
const CALL: u64 = 16 << 20;
/// The number of bytes read from a file after which they are reported.
const SAID: u64 = 1 << 20;
/// The number of bytes dropped at a time: a thread that unmaps the file waits for at most one
/// piece.
const PIECE: u64 = 32 << 20;

/// The lead in bytes from which a loader waits for the helper, which gives the helper a processor.
/// On a busy machine the loader would otherwise fill the page cache before the helper's first turn.
const AHEAD: u64 = 24 << 20;
/// The longest such wait, in milliseconds. One range counts as at most `CALL`: a loader that copies
/// gigabytes at once does not wait for all of them to be dropped.
const TURN_MS: u32 = 100;

static NOTES: Queue<1024> = Queue::new();
/// The bytes of the notes that the helper has not processed yet.
static AHEAD_BY: AtomicU64 = AtomicU64::new(0);
/// The bytes consumed since the helper was last called.
static SINCE: AtomicU64 = AtomicU64::new(0);

/// Records that a mapped range was copied to the device.
#[cold]
#[inline(never)]
pub(super) fn copied(range: Range) {
    if mappings::meeting(range).next().is_none() {
        return;
    }
    let Some(_in_flight) = InFlight::at_own_files() else {
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

/// Records that a part of a file was read: from `offset`, or up to the descriptor's current
/// position.
#[cold]
#[inline(never)]
pub(super) fn read(fd: Descriptor, offset: Option<i64>, length: isize) {
    let (Ok(length), Some(number)) = (u64::try_from(length), hints::hinted_at(fd)) else {
        return;
    };
    let file = number.file();
    // A reader in small pieces reads them one after the other, so the kernel is asked for the
    // position only once per `SAID` bytes.
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
    let Some(_in_flight) = InFlight::at_own_files() else {
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
    if range.number.file().block_map.has_stopped() || length == 0 {
        return;
    }
    // A range that finds no room here is dropped at the end of the file's use.
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
    // The helper makes no progress: do not delay the next loader as well.
    AHEAD_BY.store(0, Ordering::Release);
}

/// Records that the helper has processed a note.
fn came_to(length: u64) {
    let less = |ahead: u64| Some(ahead.saturating_sub(length.min(CALL)));
    let _ = AHEAD_BY.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
}

/// Resets the state in a forked child: the notes were its parent's.
pub(super) fn inherit() {
    NOTES.clear();
    AHEAD_BY.store(0, Ordering::Relaxed);
    helper::inherit();
}

/// The helper's work: reads the notes, and drops ranges that have left the window.
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
        && !file.block_map.has_stopped()
        && let Some(own) = file.own()
        && !file.is_written(own)
    {
        drop_pages(piece, own);
    }
    helper::leave();
}

fn drop_pages(piece: Consumed, own: Descriptor) {
    let file = piece.number.file();
    let size = file.size();
    file.block_map.used(piece.start..piece.end, size);
    let is_used = |block: u64| file.block_map.is_used(block, size);
    // A block at the edge is dropped with the last range that lies in it. Its other ranges may be
    // cached already, because the kernel reads ahead and around.
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
    // Includes the previous block, if the last piece left it and it is used up by now.
    let back = first.checked_sub(1).filter(|before| is_used(*before));
    let start = back.unwrap_or(first).saturating_mul(BLOCK);
    let end = match ends {
        true => piece.end.saturating_add(4095) & !4095,
        false => last.saturating_mul(BLOCK),
    };
    if piece.delta != 0 {
        let Some(pages) = Pages::open() else { return };
        let next = start / BLOCK..end / BLOCK;
        if file.block_map.is_remapped(size, next, |block| {
            let start = block.saturating_mul(BLOCK).wrapping_add(piece.delta);
            let end = start.saturating_add(BLOCK);
            pages.are_present(Range { start, end })
        }) {
            file.block_map.stop();
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
    range_locks::drop_range(file, own, start, end.min(size));
    if file.block_map.dropped(first..last, size) {
        file.block_map.stop();
    }
}

/// Removes a range of a mapping from this process's page tables; the next access maps it again.
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
            // The program may be writing to it just now. MADV_PAGEOUT drops the pages themselves,
            // so the other users are asked first.
            let delta = piece.range.start.wrapping_sub(piece.offset);
            let (start, end) = (
                whole.start.wrapping_sub(delta),
                whole.end.wrapping_sub(delta),
            );
            if range_locks::is_unneeded(number.file(), own, start, end) {
                pages.each_of_a_file(whole, |range| file_calls::page_out(range.start, range.end));
            }
        } else if pages.are_a_files(whole) {
            // Our table may be wrong: some ways to map and to write bypass the hooks.
            file_calls::forget_pages(whole.start, whole.end);
        }
    }
}

/// The form of a [`Consumed`] in the queue.
pub(super) type Note = Entry;
