//! What this machine has and allows: its GPUs, its operator's policy, its processes.

pub mod devices;
pub mod policy;
pub mod process;
