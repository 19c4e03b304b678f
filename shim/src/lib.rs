//! `libgpuslice.so`: every reporter of GPU memory, answered with the slice's view.
//! Touches: the driver that the program itself has loaded, the slice file, its ledger, the host's
//! meminfo.
//! Law: asks the driver once, with the caller's own arguments, or not at all where the slice has
//! no room; decides nothing itself.
// Debug builds are for the compiler's opinion. They may have std, because a build of the whole
// workspace gives `gpuslice-config` its `std` feature; a release build of the shim may not, and
// is made alone: `cargo build --release -p gpuslice-shim`.
#![cfg_attr(not(debug_assertions), no_std)]

mod account;
mod answer;
mod hooks;
mod interpose;
mod loader;
mod log;
mod page_cache;
mod real;
mod slice;
mod state;
mod sys;
