//! Parses the kernel's files about the host's memory: meminfo, memory pressure, cgroups.
//! Touches: its arguments; the callers read the files.

pub mod cgroup;
pub mod meminfo;
pub mod pressure;
