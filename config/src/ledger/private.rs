//! What a process knows of its own slots, and of nobody else's.
//! Touches: one page that reads as zeros in a forked child, which therefore owns nothing.

use super::layout::{DEVICES, Device};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The slots of this process: all zeros at first, and again in a forked child.
#[derive(Debug)]
#[repr(C)]
pub struct Private {
    /// 0 until this process has looked at what its parent may have left open in it.
    pub(super) settled: AtomicU32,
    /// How many looks there were.
    pub(super) looks: AtomicU32,
    /// The second from which every slot's lock is asked again.
    pub(super) verify_at: AtomicU64,
    /// The second from which a slot is looked for again, after there was none.
    pub(super) full_until: AtomicU64,
    devices: [Mine; DEVICES],
}

/// This process's slot for one device.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Mine {
    /// One more than the slot; 0 when there is none.
    pub(super) slot: AtomicU32,
    /// The thread that carries the hint; 0 when none does yet.
    pub(super) thread: AtomicU32,
    /// See [`super::protocol::Own::gate`].
    pub(super) gate: AtomicU32,
}

/// A thread is at it, or none can carry a hint.
pub(super) const NO_THREAD: u32 = u32::MAX;

impl Private {
    pub(super) fn mine(&self, device: Device) -> Option<&Mine> {
        self.devices.get(usize::from(device.0))
    }
}

impl Mine {
    pub(super) fn slot(&self) -> Option<usize> {
        let slot = self.slot.load(core::sync::atomic::Ordering::SeqCst);
        usize::try_from(slot.checked_sub(1)?).ok()
    }
}
