//! The host's memory: what the kernel's files say of it.
//! Touches: its arguments; the callers read the files.

pub mod cgroup;
pub mod meminfo;
pub mod pressure;
