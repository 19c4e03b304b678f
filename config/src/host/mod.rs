//! Parses the kernel's files about the host's memory: meminfo, memory pressure, cgroups, mappings.
//! Touches: its arguments; the callers read the files.

pub mod cgroup;
pub mod mappings;
pub mod meminfo;
pub mod pressure;
