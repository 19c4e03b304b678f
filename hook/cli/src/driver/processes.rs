//! Lists the GPUs with their memory and their processes, as NVML reports them.
//! Touches: libnvidia-ml.so.1 and CUDA (they may hang or crash, hence the child process), standard
//! output.

use super::nvml::uuid_of;
use super::probe;
use crate::base::{exit, oom, streams};
use gpuslice_config::words::device::DeviceKind;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `gpuslice driver-processes`: gpuslice's own child.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Also ask CUDA for the GPUs
    #[arg(long)]
    pub inventory: bool,
}

/// A process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriverProcess {
    /// Its process id.
    pub pid: u32,
    /// The memory that it holds; None if NVML does not report it.
    pub used: Option<u64>,
}

/// The memory of a GPU. Memory that the driver reserves for itself belongs to neither number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriverMemory {
    /// The memory that programs can use in total.
    pub total: u64,
    /// The part of it in use, by whatever program.
    pub used: u64,
}

/// A GPU or a MIG instance, as NVML reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriverCard {
    /// Its uuid.
    pub uuid: String,
    /// The GPU's index in nvidia-smi; that of its GPU for an instance.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether MIG divides it. Its instances follow it.
    pub divided: bool,
    /// Its memory; None if NVML does not report it.
    pub memory: Option<DriverMemory>,
    /// Its processes; None if NVML does not list them.
    pub processes: Option<Vec<DriverProcess>>,
}

/// The answer of the child.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DriverAnswer {
    /// The GPUs and instances, each GPU before its instances; None without NVML.
    pub cards: Option<Vec<DriverCard>>,
    /// The GPUs by CUDA and NVML; None if that was not asked for, or CUDA does not work.
    pub inventory: Option<super::inventory::Inventory>,
}

/// Queries NVML, and CUDA if asked for, and prints the answer as one line of JSON.
///
/// # Errors
/// When the answer cannot be written.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    oom::be_ordinary();
    let answer = DriverAnswer {
        cards: list(),
        inventory: args.inventory.then(|| probe::ask().ok()).flatten(),
    };
    let answer = serde_json::to_string(&answer)?;
    streams::print(format!("\n{answer}\n").as_bytes())?;
    Ok(exit::SUCCESS)
}

fn list() -> Option<Vec<DriverCard>> {
    let nvml = Nvml::init().ok()?;
    let count = nvml.device_count().ok()?;
    let mut listed = Vec::new();
    for index in 0..count {
        let Ok(device) = nvml.device_by_index(index) else {
            continue;
        };
        let slots = 0..device.mig_device_count().unwrap_or(0);
        // NVML counts slots, some of which may be empty.
        let instances = slots.filter_map(|place| device.mig_device_by_index(place).ok());
        let instances: Vec<DriverCard> = instances
            .filter_map(|instance| card(index, &instance, DeviceKind::Mig))
            .collect();
        let gpu = card(index, &device, DeviceKind::Gpu);
        listed.extend(gpu.map(|gpu| DriverCard {
            divided: !instances.is_empty(),
            ..gpu
        }));
        listed.extend(instances);
    }
    Some(listed)
}

fn card(index: u32, device: &Device<'_>, kind: DeviceKind) -> Option<DriverCard> {
    let memory = device.memory_info().ok().map(|memory| DriverMemory {
        total: memory.total.saturating_sub(memory.reserved),
        used: memory.used,
    });
    Some(DriverCard {
        uuid: uuid_of(device, kind)?.to_string(),
        index,
        name: device.name().unwrap_or_else(|_| "unnamed".to_owned()),
        divided: false,
        memory,
        processes: processes(device),
    })
}

fn processes(device: &Device<'_>) -> Option<Vec<DriverProcess>> {
    let lists = [
        device.running_compute_processes(),
        device.running_graphics_processes(),
    ];
    // NVML lists a process that computes and draws twice, each time with its whole memory.
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
    let processes = processes.into_iter();
    let processes = processes.map(|(pid, used)| DriverProcess { pid, used });
    is_listed.then(|| processes.collect())
}
