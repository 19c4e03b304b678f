//! `gpuslice run`: the command that it becomes, and what stops it.
//! Touches: children on simulated machines.

mod dry_run;
mod gpus;
mod inside;
mod private_dir;
mod process;
mod programs;
mod rights;
mod slice_file;
mod standard_streams;
mod start;
