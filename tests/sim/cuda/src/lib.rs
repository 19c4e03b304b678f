//! The simulated `libcuda.so.1`. It exports every name that the vendor's headers declare, and the
//! functions for memory work.
//! Touches: the simulated machine. Never: stdout, a real device, the real host's memory numbers.
#![allow(non_snake_case, reason = "the vendor's names")]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a simulator with C's types at its edge; it is never shipped"
)]

#[macro_use]
mod abi;

mod array;
mod attributes;
mod context;
mod copy;
mod device;
mod driver;
mod gate;
mod graph;
mod graph_edges;
mod graph_memory;
mod graphics;
mod green;
mod heap;
mod host;
mod init;
mod ipc;
mod managed;
mod memory;
mod pointer;
mod pool;
mod pool_places;
mod resolve;
mod state;
mod stream;
mod vmm;
