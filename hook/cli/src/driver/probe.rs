//! The child process that queries the driver, and merges CUDA's and NVML's lists.
//! Touches: the driver, which may hang or crash and is therefore queried in a child process;
//! standard output.

use super::cuda::{self, CudaDevice, CudaError};
use super::inventory::{Device, Inventory, MigInstance};
use super::limits;
use super::nvml::{self, NvmlDevice, NvmlList};
use crate::base::exit;
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};
use std::io::Write;

/// The child's answer, as one line of JSON. It is the last line, because the driver may print lines
/// of its own before it.
pub(crate) type Answer = Result<Inventory, CudaError>;

/// Queries the driver and prints the answer.
///
/// # Errors
/// When the answer cannot be written.
pub(crate) fn main() -> anyhow::Result<u8> {
    let answer = ask();
    let mut out = std::io::stdout();
    writeln!(out, "\n{}", serde_json::to_string(&answer)?)?;
    out.flush()?;
    Ok(exit::SUCCESS)
}

/// Queries the driver, in this process.
///
/// # Errors
/// CUDA's.
pub(crate) fn ask() -> Answer {
    let mut inventory = merge(&cuda::list()?, nvml::list());
    if inventory.devices.iter().any(|device| device.driver_limits) {
        inventory.backend = limits::backend();
    }
    Ok(inventory)
}

fn merge(cuda: &[CudaDevice], nvml: Option<NvmlList>) -> Inventory {
    let nvml = nvml.unwrap_or_default();
    let mut devices: Vec<Device> = nvml
        .devices
        .iter()
        .map(|device| from_nvml(device, cuda))
        .collect();
    let listed = |uuid: &[u8; 16]| {
        nvml.devices
            .iter()
            .flat_map(|device| std::iter::once(device).chain(&device.mig))
            .any(|known| known.uuid.bytes == *uuid)
    };
    for (ordinal, device) in numbered(cuda) {
        if listed(&device.uuid) {
            continue;
        }
        // Only CUDA lists this device, so its ordinal is its only number, unless NVML has given
        // that number to another device.
        let taken = |index: u32| devices.iter().any(|known| known.index == index);
        let index = (ordinal..).find(|index| !taken(*index)).unwrap_or(ordinal);
        devices.push(Device {
            index,
            cuda_ordinal: Some(ordinal),
            uuid: DeviceUuid {
                kind: DeviceKind::Gpu,
                bytes: device.uuid,
            },
            name: device.name.clone(),
            total: device.total,
            integrated: device.integrated,
            minor: None,
            driver_limits: false,
            mig: Vec::new(),
        });
    }
    devices.sort_by_key(|device| device.index);
    Inventory {
        driver: nvml.driver,
        backend: None,
        devices,
    }
}

fn numbered(cuda: &[CudaDevice]) -> impl Iterator<Item = (u32, &CudaDevice)> {
    (0u32..).zip(cuda)
}

/// Builds a device from NVML's facts. CUDA's facts take precedence: its total is the memory that
/// programs can use.
fn from_nvml(device: &NvmlDevice, cuda: &[CudaDevice]) -> Device {
    let of = |uuid: DeviceUuid| numbered(cuda).find(|(_, known)| known.uuid == uuid.bytes);
    let same = of(device.uuid);
    Device {
        index: device.index,
        cuda_ordinal: same.map(|(ordinal, _)| ordinal),
        uuid: device.uuid,
        name: device.name.clone(),
        total: same.map_or(device.total, |(_, known)| known.total),
        integrated: same.is_some_and(|(_, known)| known.integrated),
        minor: device.minor,
        // The driver limits neither MIG instances nor memory that the GPU shares with the host.
        driver_limits: device.driver_limits
            && device.mig.is_empty()
            && !same.is_some_and(|(_, known)| known.integrated),
        mig: device
            .mig
            .iter()
            .map(|instance| {
                let same = of(instance.uuid);
                MigInstance {
                    uuid: instance.uuid,
                    cuda_ordinal: same.map(|(ordinal, _)| ordinal),
                    name: instance.name.clone(),
                    total: same.map_or(instance.total, |(_, known)| known.total),
                }
            })
            .collect(),
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
