//! Container engines that are configured, and the slices that the OCI hook makes.
//! Touches: hosts of their own, below folders of the tests.

mod engines;
mod runtime;
mod shown;
mod unsliced;
