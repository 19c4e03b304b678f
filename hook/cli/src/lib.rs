//! gpuslice's host side: starts programs in slices of GPU memory, and reports the slices.
//! Touches: files, processes, and the driver (in a child process).
pub mod base;
pub mod cli;
pub mod commands;
mod driver;
mod launch;
mod runs;
mod slice;
