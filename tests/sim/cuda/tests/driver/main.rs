//! The built libraries, as programs see them: each test drives one or more processes on a simulated machine.
//! Touches: builds the libraries with build.sh and the probe with cc, state in temporary directories.
#![expect(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a test may stop"
)]

mod probe;

mod contexts;
mod discrete;
mod faults;
mod graphs;
mod lookup;
mod monitors;
mod pools;
mod processes;
mod runtime;
mod sharing;
mod unified;
