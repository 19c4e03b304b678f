//! Device limits that were changed after the slice started (`gpuslice resize`).
//! Touches: the header.
//! Law: a claim is granted against the limit in force at its end. A claimer takes the bytes, and
//! then reads the limit again. A process that lowers the limit writes it, and then sums the claimed
//! bytes. So at least one of the two sees the other's write.

use super::protocol::sync::{AtomicU32, fence, published};
use crate::words::units::Bytes;
use core::sync::atomic::Ordering::SeqCst;

#[cfg(not(all(test, loom)))]
use super::{Ledger, protocol::layout::Device};

/// The unit of a limit that is set: 64 KiB. One word then holds up to 256 TiB.
pub const LIMIT_UNIT: Bytes = Bytes::new(1 << SHIFT);
const SHIFT: u32 = 16;

/// One reading of a device's limit: the limit that was set, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetLimit(u32);

impl SetLimit {
    /// No limit was set: the slice file's limit is in force.
    pub const NONE: SetLimit = SetLimit(0);

    /// The largest limit of whole units that is not above `bytes`; `None` for less than one unit,
    /// and for more than a word holds.
    #[must_use]
    pub fn of(bytes: Bytes) -> Option<SetLimit> {
        let units = bytes.get() >> SHIFT;
        let units = u32::try_from(units).ok().filter(|units| *units > 0);
        units.map(SetLimit)
    }

    /// The limit in bytes; `None` if none was set.
    #[must_use]
    #[inline(always)]
    pub const fn bytes(self) -> Option<Bytes> {
        match self.0 {
            0 => None,
            units => Some(Bytes::new((units as u64) << SHIFT)),
        }
    }

    #[cfg(not(all(test, loom)))]
    pub(super) const fn read(word: u32) -> SetLimit {
        SetLimit(word)
    }
}

/// Reads a limit: before a claim, and again after it is granted.
#[inline(always)]
pub(super) fn load(word: &AtomicU32) -> SetLimit {
    published();
    SetLimit(word.load(SeqCst))
}

/// Writes a limit. What is held is read after this.
pub(super) fn store(word: &AtomicU32, limit: SetLimit) {
    word.store(limit.0, SeqCst);
    fence(SeqCst);
}

#[cfg(not(all(test, loom)))]
impl Ledger {
    /// The limit that was set for a device.
    #[must_use]
    #[inline(always)]
    pub fn limit(&self, device: Device) -> SetLimit {
        match self.header.limit(self.in_file(device)) {
            Some(word) => load(word),
            None => SetLimit::NONE,
        }
    }

    /// Sets the limit of a device, for all processes of the slice. Returns false for a device that
    /// the ledger does not list.
    ///
    /// When this returns, claims that were granted under the former limit are in the slots, or will
    /// be withdrawn. The caller then adds up the slots. If the sum exceeds the new limit, the caller
    /// restores the former one.
    #[must_use]
    pub fn set_limit(&self, device: Device, limit: SetLimit) -> bool {
        let word = self.header.limit(self.in_file(device));
        word.inspect(|word| store(word, limit)).is_some()
    }
}

#[cfg(all(test, loom))]
#[path = "limits_loom_tests.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_limit_is_rounded_down_to_whole_units() {
        assert_eq!(SetLimit::of(Bytes::new(65_535)), None);
        let six = SetLimit::of(Bytes::gib(6).plus(Bytes::new(65_535)));
        assert_eq!(six.and_then(SetLimit::bytes), Some(Bytes::gib(6)));
        assert_eq!(SetLimit::of(Bytes::MAX), None);
        assert_eq!(SetLimit::NONE.bytes(), None);
    }

    proptest! {
        #[test]
        fn a_limit_is_never_above_what_was_asked(bytes in 65_536u64..1 << 48) {
            let set = SetLimit::of(Bytes::new(bytes)).and_then(SetLimit::bytes).unwrap();
            prop_assert!(set.get() <= bytes && bytes.abs_diff(set.get()) < LIMIT_UNIT.get());
        }
    }
}
