//! Describes this machine: its GPUs, its operator's policy, its processes.
//! Touches: /run/gpuslice/devices.json, /etc/gpuslice/config.toml, /proc and the cgroups, by reading
//! them.

pub mod cgroups;
pub mod devices;
pub mod environment;
pub mod policy;
pub mod process;
