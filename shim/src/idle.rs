//! What a pool, or a device's graphs, have reserved and do not use, and which calls count on it: no
//! two of those that are under way count on the same.
//! Touches: words of this process's page.
//! Law: who counts on something and who sees it gone both write to its word, so that nobody counts
//! on what was there before. What is counted on stays in the ledger until that call has ended.
//! A thread that is cancelled in the driver leaves what it counted on: too much is said to be held.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gpuslice_config::device::CudaOrdinal;
use gpuslice_config::units::Bytes;

use crate::abi::CUmemoryPool;
use crate::pools::POOLS;
use crate::private::Private;
use crate::sys;

/// On as many devices graphs can count on what is idle.
const DEVICES: usize = 8;

/// A word for each pool that is listed, and for the graphs of each device.
#[repr(C)]
pub(crate) struct Words {
    pools: [AtomicU64; POOLS],
    graphs: [AtomicU64; DEVICES],
}

/// The low bits of a word: what is counted on. The others: how often it was written.
const COUNTED_ON: u64 = (1 << 40) - 1;
const ONCE: u64 = COUNTED_ON + 1;
const UNIT: u64 = 512;

/// As often as others are waited for: some milliseconds where there is nobody else to run.
const ROUNDS: u32 = 1000;

fn counted_on(word: u64) -> u64 {
    (word & COUNTED_ON).wrapping_mul(UNIT)
}

/// What a call has been given while it is under way.
#[derive(Clone, Copy, Default)]
pub(crate) struct Given {
    /// By the ledger, for what the driver may have to add.
    pub(crate) claimed: Bytes,
    /// Of what is idle.
    pub(crate) idle: Bytes,
}

/// The idle memory of one of them. None: it has no word, and nobody counts on it.
#[derive(Clone, Copy)]
pub(crate) struct Idle(Option<&'static AtomicU64>);

impl Idle {
    /// A pool's.
    pub(crate) fn of_pool(private: &'static Private, pool: CUmemoryPool) -> Idle {
        let listed = private.pools.iter().zip(&private.idle.pools);
        let mut own = listed.filter(|(place, _)| place.load(SeqCst) == pool as u64);
        Idle(own.next().map(|(_, word)| word))
    }

    /// That of a device's graphs.
    pub(crate) fn of_graphs(private: &'static Private, ordinal: CudaOrdinal) -> Idle {
        Idle(private.idle.graphs.get(ordinal.0 as usize))
    }

    /// Counts on as much of `wanted` as is `unused` and nobody else counts on.
    pub(crate) fn count_on(self, wanted: u64, unused: impl Fn() -> u64) -> Bytes {
        let Some(word) = self.0 else {
            return Bytes::ZERO;
        };
        for _ in 0..ROUNDS {
            let found = word.load(SeqCst);
            let rest = unused().saturating_sub(counted_on(found));
            let units = wanted.div_ceil(UNIT).min(rest / UNIT).min(COUNTED_ON >> 1);
            if units == 0 {
                break;
            }
            let written = found.wrapping_add(ONCE).wrapping_add(units);
            if word
                .compare_exchange(found, written, SeqCst, SeqCst)
                .is_ok()
            {
                return Bytes::new(units.wrapping_mul(UNIT));
            }
        }
        Bytes::ZERO
    }

    /// Counts on it no more: the driver has done with the call.
    pub(crate) fn let_go(self, bytes: Bytes) {
        let Some(word) = self.0.filter(|_| bytes != Bytes::ZERO) else {
            return;
        };
        let mut found = word.load(SeqCst);
        loop {
            let left = counted_on(found).saturating_sub(bytes.get()) / UNIT;
            let written = (found & !COUNTED_ON).wrapping_add(ONCE) | left;
            match word.compare_exchange_weak(found, written, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(changed) => found = changed,
            }
        }
    }

    /// What calls that are under way count on, now that some of it may be gone: who looked before
    /// looks again.
    pub(crate) fn counted_on(self) -> u64 {
        self.0
            .map_or(0, |word| counted_on(word.fetch_add(ONCE, SeqCst)))
    }

    /// Tries again each time that others have come to an end, as long as there are some: one that
    /// the driver has just done with still counts on what it uses by now.
    pub(crate) fn wait_for_others<T>(self, mut again: impl FnMut() -> Option<T>) -> Option<T> {
        let word = self.0?;
        let mut seen = word.load(SeqCst);
        for _ in 0..ROUNDS {
            if counted_on(seen) == 0 {
                return None;
            }
            sys::sched_yield();
            let now = word.load(SeqCst);
            if now != seen
                && let Some(got) = again()
            {
                return Some(got);
            }
            seen = now;
        }
        None
    }
}
