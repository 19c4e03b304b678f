//! Blocks that small allocations share: how many of them lie in each 2 MiB of addresses.
//! Touches: two levels of tables, mapped as addresses turn up.
//! Law: the first that comes to a block pays for it, the last that leaves gives it back.
//!
//! The driver hands out memory in steps of 2 MiB and puts requests of up to 1 MiB together in one
//! step. Which of them share a step is seen by their addresses, once the driver has given them.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::private::{self, Private};

/// The driver's step.
pub(crate) const STEP: u64 = 2 << 20;
/// Requests up to this size share steps.
pub(crate) const SMALL: u64 = 1 << 20;

/// Addresses have 49 bits at most: 15 choose a leaf, 13 a block of it.
const LEAVES: usize = 1 << 15;
const BLOCKS: usize = 1 << 13;

/// The first level.
pub(crate) struct Root([AtomicPtr<Leaf>; LEAVES]);

/// 16 GiB of addresses.
struct Leaf([AtomicU32; BLOCKS]);

/// The block that an address lies in. None: it has none that could be counted.
fn block(private: &Private, address: u64) -> Option<&'static AtomicU32> {
    let number = usize::try_from(address / STEP).ok()?;
    let root = private::get(&private.blocks, size_of::<Root>())?;
    // SAFETY: mapped for good, and zeros are a Root.
    let root = unsafe { root.as_ref() }?;
    let leaf = root.0.get(number / BLOCKS)?;
    let leaf = private::get(leaf, size_of::<Leaf>())?;
    // SAFETY: mapped for good, and zeros are a Leaf.
    let leaf = unsafe { leaf.as_ref() }?;
    leaf.0.get(number % BLOCKS)
}

/// Counts a small allocation; whether it is the first of its block.
pub(crate) fn enter(private: &Private, address: u64) -> bool {
    let Some(block) = block(private, address) else {
        return true;
    };
    let first = block.fetch_add(1, Ordering::AcqRel) == 0;
    if first {
        private.block_count.fetch_add(1, Ordering::Relaxed);
    }
    first
}

/// Counts it no longer; whether it was the last of its block.
pub(crate) fn leave(private: &Private, address: u64) -> bool {
    let Some(block) = block(private, address) else {
        return true;
    };
    let last = block.fetch_sub(1, Ordering::AcqRel) == 1;
    if last {
        private.block_count.fetch_sub(1, Ordering::Relaxed);
    }
    last
}

/// Whether a small allocation may find room in a block that is paid for.
pub(crate) fn any(private: &Private) -> bool {
    private.block_count.load(Ordering::Relaxed) != 0
}
