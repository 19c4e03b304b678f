//! `libgpuslice.so` answers every API that reports GPU memory with the slice's numbers, and refuses
//! allocations that exceed the slice.
//! Touches: the driver that the program itself has loaded, the slice file, its ledger, the host's
//! meminfo.
//! Law: a real function is called once, with the caller's own arguments, or not at all where the
//! slice has no room. All numbers come from `gpuslice-config`.
//!
//! One call, `cuMemGetInfo` of PyTorch, in five steps:
//!
//! 1. `interpose`: the CUDA runtime looks up `cuMemGetInfo_v2` by `dlsym` or `cuGetProcAddress`. It
//!    is a line of `symbols.rs`, so the look-up returns our entry point in the place of the
//!    driver's.
//! 2. `hooks`: the entry point calls the hook, `hooks::cuda::info::mem_get_info`. The hook calls the
//!    driver's function, which `real` has found in the same copy of the library.
//! 3. `slice`: the first call of the process loads the slice file. Without one, the driver's answer
//!    goes back as it is.
//! 4. `answer`: collects the facts (the driver's numbers, the ledger's sums, on unified memory a
//!    reading of the host) and passes them to `gpuslice_config::answer::view`.
//! 5. The hook writes the result to the caller's out-parameters.
//!
//! An allocation goes the same way, but asks `account` first: the account claims the bytes in the
//! ledger, and the driver is called only if the claim is granted. `state` remembers what the process
//! allocated, until it is freed.
//!
//! The modules form layers, and imports point downward only: `interpose`, `hooks`, `account`,
//! `answer`, `page_cache`, `slice`, `real`, `state`, `log`, `loader`, `sys`.
// Debug builds serve only to check the code. They may link std, because a build of the whole
// workspace enables the `std` feature of `gpuslice-config`. A release build of the shim must not
// link std, so it is built alone: `cargo build --release -p gpuslice-shim`.
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
