//! Describes this machine: its GPUs, its operator's policy, its processes, its guard.
//! Touches: /run/gpuslice/devices.json and guard.json, /etc/gpuslice/config.toml, /proc and the
//! cgroups, by reading them.

mod bounds;
pub mod cgroups;
pub mod devices;
pub mod dialects;
pub mod environment;
pub mod guard;
pub mod meminfo;
pub mod pod;
pub mod policy;
mod policy_values;
pub mod process;

/// Returns the size of a page of memory, in bytes.
#[must_use]
pub fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    let size = size
        .ok()
        .flatten()
        .and_then(|size| u64::try_from(size).ok());
    size.unwrap_or(4096)
}
