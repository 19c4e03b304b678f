//! The simulated `libnvidia-opencl.so.1`: an OpenCL driver without kernels, for the loaders' ICD
//! interface. Its buffers, images and shared virtual memory take memory of the simulated card.
//! Touches: the simulated machine. Never: stdout, a real device.
#![allow(non_snake_case, reason = "the vendor's names")]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a simulator with C's types at its edge; it is never shipped"
)]

#[macro_use]
mod abi;

mod context;
mod cuda;
mod device;
mod memory;
mod table;
