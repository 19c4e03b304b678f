//! Lists the processes on each GPU and their memory, as NVML reports them.
//! Touches: libnvidia-ml.so.1, which may hang or crash and is therefore loaded in a child process;
//! standard output.

use super::nvml::uuid_of;
use crate::base::{exit, streams};
use gpuslice_config::words::device::DeviceKind;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriverProcess {
    /// Its process id.
    pub pid: u32,
    /// The memory that it holds; None if NVML does not report it.
    pub used: Option<u64>,
}

/// The processes by GPU or MIG instance. A GPU for which NVML lists no processes is missing.
pub(crate) type DriverProcesses = BTreeMap<String, Vec<DriverProcess>>;

/// Queries NVML and prints the result as one line of JSON; null without NVML.
///
/// # Errors
/// When the answer cannot be written.
pub(crate) fn main() -> anyhow::Result<u8> {
    let answer = serde_json::to_string(&list())?;
    streams::print(format!("\n{answer}\n").as_bytes())?;
    Ok(exit::SUCCESS)
}

fn list() -> Option<DriverProcesses> {
    let nvml = Nvml::init().ok()?;
    let count = nvml.device_count().ok()?;
    let mut listed = DriverProcesses::new();
    for device in (0..count).filter_map(|index| nvml.device_by_index(index).ok()) {
        add(&mut listed, &device, DeviceKind::Gpu);
        for place in 0..device.mig_device_count().unwrap_or(0) {
            if let Ok(instance) = device.mig_device_by_index(place) {
                add(&mut listed, &instance, DeviceKind::Mig);
            }
        }
    }
    Some(listed)
}

fn add(listed: &mut DriverProcesses, device: &Device<'_>, kind: DeviceKind) {
    let lists = [
        device.running_compute_processes(),
        device.running_graphics_processes(),
    ];
    let Some(uuid) = uuid_of(device, kind) else {
        return;
    };
    // NVML lists a process that both computes and draws twice, each time with its whole memory.
    let mut processes: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    let mut is_listed = false;
    for found in lists.into_iter().flatten() {
        is_listed = true;
        for ProcessInfo {
            pid,
            used_gpu_memory,
            ..
        } in found
        {
            let used = match used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            let known = processes.entry(pid).or_default();
            *known = (*known).max(used);
        }
    }
    if is_listed {
        let processes = processes.into_iter();
        let processes = processes.map(|(pid, used)| DriverProcess { pid, used });
        listed.insert(uuid.to_string(), processes.collect());
    }
}
