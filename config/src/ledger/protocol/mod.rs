//! The words of a ledger and the claim protocol on them.
//! Touches: memory that processes share; the kernel through a trait, so that loom can be the kernel.

pub(crate) mod claims;
#[cfg(all(test, not(loom)))]
mod claims_tests;
pub(crate) mod columns;
#[cfg(not(all(test, loom)))]
pub(crate) mod header;
pub(crate) mod holding;
#[cfg(all(test, not(loom)))]
mod intact_tests;
pub(crate) mod kernel;
pub(crate) mod layout;
#[cfg(all(test, not(loom)))]
mod layout_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
pub(crate) mod model;
#[cfg(not(all(test, loom)))]
pub(crate) mod private;
pub(crate) mod sharing;
pub(crate) mod slots;
pub(crate) mod step;

pub(crate) mod sync;
pub(crate) mod totals;
#[cfg(all(test, not(loom)))]
mod waiting_tests;
