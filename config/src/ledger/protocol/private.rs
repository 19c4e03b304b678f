//! A process's private data about its own ledger slots.
//! Touches: one page that reads as zeros in a forked child, which therefore owns nothing.

use super::holding::Holding;
use super::layout::{DEVICES, Device, KINDS, Kind, slots_for};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

/// The slots of this process: all zeros at first, and again in a forked child.
#[derive(Debug)]
#[repr(C)]
pub struct Private {
    /// 0 until this process has closed descriptors that it may have inherited from its parent.
    pub(crate) settled: AtomicU32,
    /// The number of checks so far.
    pub(crate) looks: AtomicU32,
    /// The second from which every slot's lock is queried again.
    pub(crate) verify_at: AtomicU64,
    /// The second from which the process looks for a slot again, after it found none.
    pub(crate) full_until: AtomicU64,
    /// The devices on which this process was refused for lack of a slot, one bit each.
    pub(crate) slotless: AtomicU64,
    /// Memory that the driver granted before this process had a slot; null if there was none.
    pub(crate) tally: AtomicPtr<Tally>,
    /// 1 once the ledger was found to be damaged: then nothing more is granted.
    pub(crate) damaged: AtomicU32,
    devices: [Mine; DEVICES],
}

/// Memory of a process that no slot records, by device and kind.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tally([[AtomicU64; KINDS]; DEVICES]);

/// This process's slot for one device.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mine {
    /// One more than the slot; 0 when there is none.
    pub(crate) slot: AtomicU16,
    /// See [`super::claims::Own::gate`].
    pub(crate) gate: AtomicU16,
    /// The thread that carries the hint; 0 when no thread does.
    pub(crate) thread: AtomicU32,
    /// The bytes that the slot must hold.
    pub(crate) holding: Holding,
}

const _: () = assert!(slots_for(DEVICES) < u16::MAX as usize);

/// A thread is setting the hint, or no thread can carry one.
pub(crate) const NO_THREAD: u32 = u32::MAX;

impl Private {
    /// The state of a process that has claimed nothing yet.
    #[must_use]
    pub const fn empty() -> Private {
        Private {
            settled: AtomicU32::new(0),
            looks: AtomicU32::new(0),
            verify_at: AtomicU64::new(0),
            full_until: AtomicU64::new(0),
            slotless: AtomicU64::new(0),
            tally: AtomicPtr::new(core::ptr::null_mut()),
            damaged: AtomicU32::new(0),
            devices: [const {
                Mine {
                    slot: AtomicU16::new(0),
                    thread: AtomicU32::new(0),
                    gate: AtomicU16::new(0),
                    holding: Holding::nothing(),
                }
            }; DEVICES],
        }
    }

    pub(crate) fn mine(&self, device: Device) -> Option<&Mine> {
        self.devices.get(usize::from(device.0))
    }

    /// Marks the ledger as overwritten: no slot of this process is trusted any more.
    pub(crate) fn spoil(&self) {
        use core::sync::atomic::Ordering::Relaxed;
        self.damaged.store(1, Relaxed);
        // A query whether this process is counted then returns no.
        self.slotless.store(u64::MAX, Relaxed);
        self.devices
            .iter()
            .for_each(|mine| mine.holding.never_matches());
    }
}

impl Mine {
    pub(crate) fn slot(&self) -> Option<usize> {
        let slot = self.slot.load(core::sync::atomic::Ordering::SeqCst);
        slot.checked_sub(1).map(usize::from)
    }
}

impl Tally {
    fn word(&self, device: Device, kind: Kind) -> Option<&AtomicU64> {
        self.of(device)?.get(kind as usize)
    }

    /// Bytes held on a device, in the order of [`Kind::ALL`].
    pub(crate) fn of(&self, device: Device) -> Option<&[AtomicU64; KINDS]> {
        self.0.get(usize::from(device.0))
    }

    pub(crate) fn add(&self, device: Device, bytes: u64, kind: Kind) -> bool {
        let word = self.word(device, kind);
        word.map(|word| word.fetch_add(bytes, SeqCst)).is_some()
    }

    /// Subtracts this many bytes, or all that there are. Returns the rest that could not be
    /// subtracted.
    pub(crate) fn take(&self, device: Device, bytes: u64, kind: Kind) -> u64 {
        let Some(word) = self.word(device, kind) else {
            return bytes;
        };
        let mut held = word.load(SeqCst);
        while let Err(now) = word.compare_exchange(held, held.saturating_sub(bytes), SeqCst, SeqCst)
        {
            held = now;
        }
        bytes.saturating_sub(held)
    }
}
