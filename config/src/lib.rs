//! Makes all of gpuslice's decisions, and carries out none: units, slices, and the one view of GPU
//! memory.
//! Touches: its arguments; only `ledger` touches more, as its documentation says. Never: the
//! driver, the environment.
//! Law: every number a program is shown comes from [`answer::view::view`].
#![no_std]
#![deny(unsafe_code)]

#[cfg(any(feature = "std", test))]
extern crate std;

pub mod answer;
pub mod host;
pub mod ledger;
pub mod promises;
pub mod slice;
pub mod sys;
pub mod words;
