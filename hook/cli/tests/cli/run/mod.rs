//! `gpuslice run`: how it becomes the command, and the reasons for which it refuses to.
//! Touches: children on simulated machines.

mod dry_run;
mod full_shm;
mod gpus;
mod inside;
mod private_dir;
mod process;
mod programs;
mod rights;
mod slice_file;
mod small_stack;
mod standard_streams;
mod start;
