//! `gpuslice run`: the command that it becomes, and what stops it.
//! Touches: children on simulated machines.

mod inside;
mod private_dir;
mod process;
mod programs;
mod standard_streams;
mod start;
