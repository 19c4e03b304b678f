//! The last reading of the host by this process: words that several threads read and write.
//! Touches: atomics of this process's page.
//! Law: a reader gets one whole reading, or none.

use core::sync::atomic::{AtomicU64, Ordering};

/// The last reading of the host, and the host memory charged to the slice at that time.
#[repr(C)]
pub(crate) struct KeptReading {
    /// Odd while a thread writes.
    turn: AtomicU64,
    words: [AtomicU64; WORDS],
    pub(crate) charged: AtomicU64,
    pub(crate) charged_at: AtomicU64,
}

/// The number of words of a reading.
pub(crate) const WORDS: usize = 7;

impl KeptReading {
    /// The words of a whole reading.
    #[inline]
    pub(crate) fn words(&self) -> Option<[u64; WORDS]> {
        let turn = self.turn.load(Ordering::Acquire);
        let words = core::array::from_fn(|which| {
            let word = self.words.get(which);
            word.map_or(0, |word| word.load(Ordering::Relaxed))
        });
        core::sync::atomic::fence(Ordering::Acquire);
        let whole = turn & 1 == 0 && self.turn.load(Ordering::Relaxed) == turn;
        whole.then_some(words)
    }

    /// Stores a reading, unless another thread is just storing one: either will do.
    pub(crate) fn keep(&self, words: [u64; WORDS]) {
        let turn = self.turn.load(Ordering::Relaxed);
        let next = turn.wrapping_add(1);
        let exchanged =
            self.turn
                .compare_exchange(turn, next, Ordering::Acquire, Ordering::Relaxed);
        if turn & 1 == 1 || exchanged.is_err() {
            return;
        }
        core::sync::atomic::fence(Ordering::Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
        self.turn.store(next.wrapping_add(1), Ordering::Release);
    }
}
