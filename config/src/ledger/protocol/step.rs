//! The steps in which the driver hands out device memory.
//! Touches: nothing.

use crate::words::units::Bytes;

/// The step in which the driver hands out device memory: 2 MiB.
pub const STEP: u64 = 2 << 20;

/// The memory that a request of `bytes` takes: whole steps.
#[must_use]
pub fn stepped(bytes: u64) -> Bytes {
    Bytes::new(bytes.checked_next_multiple_of(STEP).unwrap_or(u64::MAX))
}

/// The bytes of `limit` that cannot be allocated any more: `held`, and the last partial step.
#[must_use]
pub fn spoken_for(held: Bytes, limit: Bytes) -> Bytes {
    let rest = limit.minus(held).get() % STEP;
    held.plus(Bytes::new(rest))
}

/// A measured size, as the ledger can keep it: a multiple of 512 bytes.
#[must_use]
pub fn rounded(bytes: u64) -> Bytes {
    Bytes::new(bytes.checked_next_multiple_of(512).unwrap_or(0))
}
