//! Whether an allocation is granted.
//! Touches: its arguments.
//! Law: what `view` shows as free is granted, and one byte more is refused. Headroom is kept back
//! from what is shown, not from what is granted.

use crate::slice::DeviceSlice;
use crate::units::Bytes;
use crate::view::{Facts, view};

/// An allocation that is not granted: to the program, the vendor's own out-of-memory code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What would have been granted.
    pub free: Bytes,
    /// How much less than the request that is: what a larger headroom would have avoided.
    pub short_by: Bytes,
}

/// Decides on an allocation of `request` bytes.
///
/// Without a slice the decision is the driver's alone.
///
/// # Errors
/// What does not fit under the slice's limit, or is not there to be had.
pub fn admit(facts: &Facts, slice: Option<&DeviceSlice>, request: Bytes) -> Result<(), Refusal> {
    let Some(slice) = slice else {
        return Ok(());
    };
    let bare = DeviceSlice {
        headroom: Bytes::ZERO,
        ..*slice
    };
    let free = view(facts, Some(&bare)).free;
    match request <= free {
        true => Ok(()),
        false => Err(Refusal {
            free,
            short_by: request.minus(free),
        }),
    }
}

/// What the slice's processes may hold together, which is what [`crate::ledger::Ledger::claim`]
/// is given: the limit, or no end where the slice only counts.
#[must_use]
pub fn claim_limit(slice: &DeviceSlice, enforce: bool) -> Bytes {
    match enforce {
        true => slice.memory,
        false => Bytes::MAX,
    }
}

#[cfg(test)]
#[path = "admit_tests.rs"]
mod tests;
