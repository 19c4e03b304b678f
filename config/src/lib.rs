//! Makes all of gpuslice's decisions, and carries out none: units, slices, and the one view of GPU
//! memory.
//! Touches: its arguments; only `ledger` touches more, as its documentation says. Never: the
//! driver, the environment.
//! Law: every number a program is shown comes from [`view::view`].
#![no_std]
#![deny(unsafe_code)]

#[cfg(any(feature = "std", test))]
extern crate std;

pub mod admit;
pub mod device;
pub mod host_use;
pub mod json;
pub mod ledger;
pub mod meminfo;
pub mod meminfo_text;
pub mod policy;
pub mod pressure;
pub mod promises;
pub mod reclaim;
pub mod slice;
pub mod source;
pub mod text;
#[cfg(feature = "std")]
pub mod threshold;
pub mod units;
pub mod view;
