//! What `gpuslice` and `gpuslice-hook` both know of a machine: its GPUs, its slices, its policy,
//! and how container engines run the hook.
//! Touches: see each room.

pub mod base;
pub mod engine;
pub mod machine;
pub mod slices;
