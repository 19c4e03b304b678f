//! The simulated `libnvidia-ml.so.1`. It exports every name that the vendor's header declares, and
//! answers the queries of monitors.
//! Touches: the simulated machine. Never: stdout, a real device, the real host's memory numbers.
#![allow(non_snake_case, non_camel_case_types, reason = "the vendor's names")]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a simulator with C's types at its edge; it is never shipped"
)]

#[macro_use]
mod abi;

mod devices;
mod gate;
mod identity;
mod limits;
mod memory;
mod mig;
mod processes;
mod system;
mod telemetry;
