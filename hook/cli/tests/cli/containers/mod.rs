//! The configuration of container engines, and the slices that the OCI hook creates.
//! Touches: simulated hosts, each below a folder of its test.

mod engines;
mod runtime;
mod shown;
mod unsliced;
