//! The memory of a host that is left for slices: the one formula for promises and allocations.
//! Touches: its arguments.

use crate::words::units::Bytes;

/// A host's memory, and the amounts of it that slices cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoom {
    /// MemAvailable. It already excludes the memory of the idle host and its programs. Never
    /// MemFree, and never swap.
    pub available: Bytes,
    /// The memory that the host keeps for itself.
    pub reserve: Bytes,
    /// The unused part of the promises to other slices.
    pub promised: Bytes,
}

impl HostRoom {
    /// The memory that can still be promised or allocated.
    #[must_use]
    pub const fn left(self) -> Bytes {
        self.available.minus(self.reserve).minus(self.promised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_and_the_promises_leave_the_room_and_never_less_than_none() {
        let room = |available, reserve, promised| HostRoom {
            available: Bytes::gib(available),
            reserve: Bytes::gib(reserve),
            promised: Bytes::gib(promised),
        };
        assert_eq!(room(100, 8, 32).left(), Bytes::gib(60));
        assert_eq!(room(100, 8, 92).left(), Bytes::ZERO);
        assert_eq!(room(4, 8, 0).left(), Bytes::ZERO);
        assert_eq!(room(100, 8, 200).left(), Bytes::ZERO);
    }
}
