//! A queue that many threads and signal handlers fill and one thread empties, without a lock.
//! Touches: atomics.
//! Law: a thread interrupted while it fills a place delays later entries, and loses none.

use core::sync::atomic::{AtomicU64, Ordering};

/// The content of one entry.
pub(super) type Entry = [u64; 4];

struct QueueCell {
    /// Twice the number of times the place was used, plus one while it holds an entry.
    turn: AtomicU64,
    entry: [AtomicU64; 4],
}

/// A queue of N entries.
pub(super) struct Queue<const N: usize> {
    tail: AtomicU64,
    head: AtomicU64,
    places: [QueueCell; N],
}

impl<const N: usize> Queue<N> {
    pub(super) const fn new() -> Queue<N> {
        Queue {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            places: [const {
                QueueCell {
                    turn: AtomicU64::new(0),
                    entry: [const { AtomicU64::new(0) }; 4],
                }
            }; N],
        }
    }

    /// The place of a position, and the value of its `turn` at which the position may be written.
    fn place(&self, position: u64) -> Option<(&QueueCell, u64)> {
        let length = u64::try_from(N).ok()?;
        let at = usize::try_from(position.checked_rem(length)?).ok()?;
        let turn = position.checked_div(length)?.wrapping_mul(2);
        Some((self.places.get(at)?, turn))
    }

    /// Adds an entry. False: there is no room.
    pub(super) fn push(&self, entry: Entry) -> bool {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let Some((place, free)) = self.place(position) else {
                return false;
            };
            let turn = place.turn.load(Ordering::Acquire);
            if turn < free {
                return false;
            }
            if turn > free {
                position = self.tail.load(Ordering::Relaxed);
                continue;
            }
            let next = position.wrapping_add(1);
            match self.tail.compare_exchange_weak(
                position,
                next,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Err(now) => position = now,
                Ok(_) => {
                    for (to, from) in place.entry.iter().zip(entry) {
                        to.store(from, Ordering::Relaxed);
                    }
                    place.turn.store(free.wrapping_add(1), Ordering::Release);
                    return true;
                }
            }
        }
    }

    /// Takes the oldest entry. Only one thread at a time may call this.
    pub(super) fn pop(&self) -> Option<Entry> {
        let position = self.head.load(Ordering::Relaxed);
        let (place, free) = self.place(position)?;
        if place.turn.load(Ordering::Acquire) != free.wrapping_add(1) {
            return None;
        }
        let mut entry = [0; 4];
        for (to, from) in entry.iter_mut().zip(&place.entry) {
            *to = from.load(Ordering::Relaxed);
        }
        place.turn.store(free.wrapping_add(2), Ordering::Release);
        self.head.store(position.wrapping_add(1), Ordering::Release);
        Some(entry)
    }

    /// Whether the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Acquire)
    }

    /// Discards all entries, in a forked child: the parent's threads have filled it.
    pub(super) fn clear(&self) {
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        for place in &self.places {
            place.turn.store(0, Ordering::Release);
        }
    }
}
