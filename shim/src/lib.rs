//! `libgpuslice.so`: every reporter of GPU memory, answered with the slice's view.
//! Touches: the driver that the program itself has loaded, the slice file, its ledger, the host's
//! meminfo.
//! Law: asks the driver once, with the caller's own arguments, or not at all where the slice has
//! no room; decides nothing itself.
// Debug builds are for the compiler's opinion. They may have std, because a build of the whole
// workspace gives `gpuslice-config` its `std` feature; a release build of the shim may not, and
// is made alone: `cargo build --release -p gpuslice-shim`.
#![cfg_attr(not(debug_assertions), no_std)]

mod abi;
mod account;
mod answer;
mod contexts;
mod count;
mod deepbind;
mod device;
mod dlsym;
mod elf;
#[macro_use]
mod export;
mod functions;
mod grains;
mod graphs;
mod held;
mod host;
mod loader;
mod log;
mod measure;
mod meminfo;
#[cfg(all(not(debug_assertions), target_arch = "x86_64"))]
mod memory;
mod names;
mod page_cache;
#[cfg(not(debug_assertions))]
mod panic;
mod pools;
mod private;
mod promises;
mod reading;
mod real;
mod reclaim;
mod release;
mod reserves;
mod runtime;
mod sandbox;
mod shapes;
mod sharing;
mod slice_ledger;
mod stack;
mod stand_in;
mod sys;
mod table;
mod told;
