//! The window: ranges that were consumed last and are not dropped yet.
//! Touches: its own memory, in the helper thread alone.

use core::sync::atomic::AtomicPtr;

use super::Note;
use crate::page_cache::files::Number;
use crate::state::page;

/// The number of consumed bytes that stay cached.
const WINDOW: u64 = 128 << 20;
/// The number of ranges in the window. When it is full, the oldest leaves early.
const PIECES: usize = 2048;

/// A part of a file that was consumed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::page_cache) struct Consumed {
    pub(in crate::page_cache) number: Number,
    /// The number of the use of the table's entry.
    pub(in crate::page_cache) serial: u64,
    pub(in crate::page_cache) start: u64,
    pub(in crate::page_cache) end: u64,
    /// The mapping's address minus its file offset; 0 for a range that was read.
    pub(in crate::page_cache) delta: u64,
}

impl Consumed {
    pub(in crate::page_cache) fn note(self) -> Note {
        let whose = u64::from(self.number.raw()) | self.serial << 8;
        [whose, self.start, self.end, self.delta]
    }

    pub(in crate::page_cache) fn of_note([whose, start, end, delta]: Note) -> Option<Consumed> {
        let number = Number::from_raw(whose.to_le_bytes()[0])?;
        let serial = whose >> 8;
        Some(Consumed {
            number,
            serial,
            start,
            end,
            delta,
        })
    }

    pub(in crate::page_cache) fn length(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    fn goes_on_with(self, next: Consumed) -> bool {
        let moved = Consumed {
            start: next.start,
            end: next.end,
            ..self
        };
        moved == next && self.end == next.start
    }
}

/// All zeros is an empty window.
#[repr(C)]
pub(in crate::page_cache) struct Window {
    notes: [Note; PIECES],
    /// The index of the oldest range, and the number of ranges.
    first: usize,
    count: usize,
    bytes: u64,
}

static PLACE: AtomicPtr<Window> = AtomicPtr::new(core::ptr::null_mut());

impl Window {
    /// The helper's window. There is one helper at a time.
    pub(in crate::page_cache) fn of_helper() -> Option<&'static mut Window> {
        let place = page::get(&PLACE, size_of::<Window>())?;
        // SAFETY: mapped for good, all zeros is a valid Window, and only the helper thread calls
        // this.
        unsafe { place.as_mut() }
    }

    fn place(&mut self, at: usize) -> Option<&mut Note> {
        let at = self.first.wrapping_add(at).checked_rem(PIECES)?;
        self.notes.get_mut(at)
    }

    /// Adds a consumed range.
    pub(in crate::page_cache) fn enter(&mut self, range: Consumed) {
        self.bytes = self.bytes.saturating_add(range.length());
        if let Some(last) = self.count.checked_sub(1)
            && let Some(note) = self.place(last)
            && let Some(before) = Consumed::of_note(*note)
            && before.goes_on_with(range)
        {
            let end = range.end;
            *note = Consumed { end, ..before }.note();
            return;
        }
        let count = self.count;
        if let Some(note) = self.place(count) {
            *note = range.note();
            self.count = count.saturating_add(1);
        }
    }

    /// Removes up to `most` bytes of the oldest range, if the window is over its size.
    pub(in crate::page_cache) fn leaves(&mut self, most: u64) -> Option<Consumed> {
        let full = self.count >= PIECES;
        if self.bytes <= WINDOW && !full || self.count == 0 {
            return None;
        }
        let oldest = Consumed::of_note(*self.place(0)?)?;
        let over = self.bytes.saturating_sub(WINDOW);
        // Not in tiny pieces: waits for half of `most`.
        if !full && oldest.length() > over && over < most / 2 {
            return None;
        }
        let length = oldest.length().min(most);
        let end = oldest.start.saturating_add(length);
        self.bytes = self.bytes.saturating_sub(length);
        if end >= oldest.end {
            self.first = self.first.wrapping_add(1).checked_rem(PIECES)?;
            self.count = self.count.saturating_sub(1);
        } else if let Some(note) = self.place(0) {
            *note = Consumed {
                start: end,
                ..oldest
            }
            .note();
        }
        Some(Consumed { end, ..oldest })
    }
}
