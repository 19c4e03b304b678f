//! The state of this process: one page, which reads as zeros in a forked child.
//! Touches: atomics.
//! Law: data only; the modules above decide.

pub(crate) mod allocations;
pub(crate) mod contexts;
pub(crate) mod handles;
pub(crate) mod owner;
pub(crate) mod page;
pub(crate) mod reading;
pub(crate) mod reclaim;
pub(crate) mod reservations;
pub(crate) mod space;
