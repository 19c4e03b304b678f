//! What programs do with CUDA that is seldom done, in a slice: pools that come and go, several
//! devices in one process, memory that another process has made.
//! Touches: workers in a slice, on simulated machines.

mod codes;
mod contexts;
mod devices;
mod imports;
mod managed;
mod pools;
