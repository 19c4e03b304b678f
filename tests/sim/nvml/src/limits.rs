//! The driver's own limits per cgroup.
//! Touches: the machine's limit table.

use crate::abi::*;
use crate::devices::{Device, device};
use gpuslice_sim_machine::{MemoryLimits, NotSet};

/// The vendor's nvmlGetMemoryLimits_v1_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct GetLimits {
    cgroup: Text,
    soft: u64,
    hard: u64,
    used: u64,
}

/// The vendor's nvmlSetMemoryLimits_v1_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SetLimits {
    cgroup: Text,
    soft: u64,
    hard: u64,
}

/// The device, if the driver can limit it. This needs a driver that has limits (615); an older one
/// lacks the function. It needs a whole GPU without MIG that has memory of its own: for a GPU that
/// shares the host's memory, the driver registers no region.
fn limitable(handle: nvmlDevice_t) -> Answer<Device> {
    let device = device(handle)?;
    let gpu = device.gpu();
    if device.machine.scenario.memory_limits == MemoryLimits::None {
        return Err(FUNCTION_NOT_FOUND);
    }
    let able = gpu.mig.is_empty() && !gpu.integrated && !gpu.nvml_minimal;
    if able { Ok(device) } else { Err(NOT_SUPPORTED) }
}

nvml! {
    fn nvmlDeviceGetMemoryLimits_v1(handle: nvmlDevice_t, out: Out<GetLimits>) {
        let device = limitable(handle)?;
        let asked = out.get()?;
        let limit = device.machine.limit(device.index, asked.cgroup.get()?).ok_or(NOT_SUPPORTED)?;
        out.set(GetLimits { cgroup: asked.cgroup, soft: limit.soft, hard: limit.hard, used: limit.used })
    }

    fn nvmlDeviceSetMemoryLimits_v1(handle: nvmlDevice_t, limits: In<SetLimits>) {
        let device = limitable(handle)?;
        let SetLimits { cgroup, soft, hard } = limits.get()?;
        // SAFETY: it takes nothing and touches nothing.
        if unsafe { libc::geteuid() } != 0 {
            return Err(NO_PERMISSION);
        }
        if soft > hard {
            return Err(INVALID_ARGUMENT);
        }
        let set = device.machine.set_limit(device.index, cgroup.get()?, soft, hard);
        set.map_err(|why| match why {
            NotSet::NoCgroup => NOT_FOUND,
            NotSet::Root | NotSet::BelowUse => INVALID_ARGUMENT,
            NotSet::Full => INSUFFICIENT_RESOURCES,
        })
    }
}
