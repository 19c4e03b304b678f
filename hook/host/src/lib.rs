//! The part of `gpuslice` and `gpuslice-hook` that describes a machine: its GPUs, its slices, its
//! policy, and how container engines run the hook.
//! Touches: see each room.

pub mod base;
pub mod engine;
pub mod events;
pub mod machine;
pub mod slices;
