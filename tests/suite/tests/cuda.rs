//! What programs do with CUDA that is seldom done, in a slice: pools that come and go, several
//! devices in one process, memory that another process has made.
//! Touches: workers in a slice, on simulated machines.

#[path = "cuda/devices.rs"]
mod devices;
#[path = "cuda/pools.rs"]
mod pools;
