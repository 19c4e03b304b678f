//! The window: what was consumed last, and is not dropped yet.
//! Touches: its own memory, in the helper thread alone.

use core::sync::atomic::AtomicPtr;

use super::drop_behind::Note;
use super::files::Number;
use crate::state::page;

/// How much of what was consumed stays.
const WINDOW: u64 = 128 << 20;
/// In how many pieces. Where it is full the oldest leaves early.
const PIECES: usize = 2048;

/// A part of a file that was consumed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Consumed {
    pub(super) number: Number,
    /// Which use of the table's entry is meant.
    pub(super) serial: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// What to add for its address; 0 when it was read.
    pub(super) delta: u64,
}

impl Consumed {
    pub(super) fn note(self) -> Note {
        let whose = u64::from(self.number.raw()) | self.serial << 8;
        [whose, self.start, self.end, self.delta]
    }

    pub(super) fn of_note([whose, start, end, delta]: Note) -> Option<Consumed> {
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

    pub(super) fn length(self) -> u64 {
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

/// Zeros are an empty one.
#[repr(C)]
pub(super) struct Window {
    notes: [Note; PIECES],
    /// The oldest, and how many there are.
    first: usize,
    count: usize,
    bytes: u64,
}

static PLACE: AtomicPtr<Window> = AtomicPtr::new(core::ptr::null_mut());

impl Window {
    /// The helper's. There is one helper at a time.
    pub(super) fn of_helper() -> Option<&'static mut Window> {
        let place = page::get(&PLACE, size_of::<Window>())?;
        // SAFETY: mapped for good, zeros are a Window, and only the helper thread comes here.
        unsafe { place.as_mut() }
    }

    fn place(&mut self, at: usize) -> Option<&mut Note> {
        let at = self.first.wrapping_add(at).checked_rem(PIECES)?;
        self.notes.get_mut(at)
    }

    /// Something was consumed.
    pub(super) fn enter(&mut self, range: Consumed) {
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

    /// The oldest, when there is more than the window holds; not more of it than `most`.
    pub(super) fn leaves(&mut self, most: u64) -> Option<Consumed> {
        let full = self.count >= PIECES;
        if self.bytes <= WINDOW && !full || self.count == 0 {
            return None;
        }
        let oldest = Consumed::of_note(*self.place(0)?)?;
        let over = self.bytes.saturating_sub(WINDOW);
        // In pieces that are worth it.
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
