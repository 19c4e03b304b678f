//! What programs do with CUDA that is seldom done, in a slice: pools that come and go, several
//! devices in one process, memory that another process has made.
//! Touches: workers in a slice, on simulated machines.

#[path = "cuda/codes.rs"]
mod codes;
#[path = "cuda/contexts.rs"]
mod contexts;
#[path = "cuda/devices.rs"]
mod devices;
#[path = "cuda/imports.rs"]
mod imports;
#[path = "cuda/managed.rs"]
mod managed;
#[path = "cuda/pools.rs"]
mod pools;
