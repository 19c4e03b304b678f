//! What a ledger remembers of its devices besides who holds what: refusals, what a context costs.
//! Touches: the header; a lock on one byte of the file.
//! Law: nothing is decided by it but what is reported, so a neighbour's lie costs a number.

use super::calls::Calls;
use super::layout::{Device, SLOTS};
use super::shared::Ledger;
use super::sys::{self, Access, Fd};
use crate::units::Bytes;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

/// What was refused on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// How many allocations.
    pub count: u64,
    /// The most that one of them was short by: what more headroom would have avoided.
    pub regret: Bytes,
}

/// The right to do something that only one process of the slice does at a time.
///
/// It ends when it is dropped, and when its holder dies.
pub struct Turn<'a> {
    /// Closing it ends the lock.
    _fd: Fd,
    flight: Option<&'a AtomicUsize>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(flight) = self.flight {
            flight.store(0, SeqCst);
        }
    }
}

impl Ledger {
    /// Records a refusal, and how much less than the request was free.
    pub fn refused(&self, device: Device, short_by: Bytes) {
        if let Some(noted) = self.file.header.noted(device) {
            noted.refusals.fetch_add(1, Relaxed);
            noted.regret.fetch_max(short_by.get(), Relaxed);
        }
    }

    /// What was refused on a device, by all processes that the slice ever had.
    #[must_use]
    pub fn refusals(&self, device: Device) -> Refusals {
        let noted = self.file.header.noted(device);
        noted.map_or_else(Refusals::default, |noted| Refusals {
            count: noted.refusals.load(Relaxed),
            regret: Bytes::new(noted.regret.load(Relaxed)),
        })
    }

    /// What a context holds on a device. None: nobody has measured one yet.
    #[must_use]
    pub fn context(&self, device: Device) -> Option<Bytes> {
        let learned = self.file.header.noted(device)?.context.load(Relaxed);
        (learned != 0).then_some(Bytes::new(learned))
    }

    /// Records what a context holds; the first measurement stays.
    pub fn learn_context(&self, device: Device, bytes: Bytes) {
        if let Some(noted) = self.file.header.noted(device) {
            let context = &noted.context;
            let _ = context.compare_exchange(0, bytes.get(), Relaxed, Relaxed);
        }
    }

    /// Waits for its turn on a device to measure a context, for two seconds at most. None: one has
    /// been measured meanwhile, somebody takes longer, or the kernel gives no lock.
    #[must_use]
    pub fn turn(&self, device: Device) -> Option<Turn<'_>> {
        let byte = SLOTS
            .saturating_mul(2)
            .saturating_add(usize::from(device.number()));
        // Now, for later it would take this descriptor for one of a parent's.
        self.settle();
        let fd = Calls::of(self).open(Access::Write).ok()?;
        for round in 0..2000 {
            if self.context(device).is_some() {
                return None;
            }
            if fd.lock(byte) {
                let flight = self.flights.enter(&fd);
                return Some(Turn { _fd: fd, flight });
            }
            match round {
                0..100 => sys::sleep_us(100),
                _ => sys::sleep_us(1000),
            }
        }
        None
    }
}
