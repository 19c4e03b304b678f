//! The child that asks the driver, and puts CUDA's and NVML's lists together.
//! Touches: the driver (it may hang or crash: that is why this is a child), standard output.

use super::cuda::{self, CudaDevice, CudaError};
use super::nvml::{self, NvmlDevice, NvmlList};
use super::{Device, Inventory, MigInstance};
use crate::exit;
use gpuslice_config::device::{DeviceKind, DeviceUuid};
use std::io::Write;

/// What the child answers, as one line of JSON: the last one, should the driver print too.
pub type Answer = Result<Inventory, CudaError>;

/// Asks and prints.
///
/// # Errors
/// When the answer cannot be written.
pub fn main() -> anyhow::Result<u8> {
    let answer: Answer = cuda::list().map(|cuda| merge(&cuda, nvml::list()));
    let mut out = std::io::stdout();
    writeln!(out, "\n{}", serde_json::to_string(&answer)?)?;
    out.flush()?;
    Ok(exit::SUCCESS)
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
        // Only CUDA lists it, so its ordinal is the only number it has, unless NVML gave that
        // number to another.
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
        devices,
    }
}

fn numbered(cuda: &[CudaDevice]) -> impl Iterator<Item = (u32, &CudaDevice)> {
    (0u32..).zip(cuda)
}

/// CUDA's word is taken where it has one: its total is what programs can use.
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
        // The driver has no limits for MIG, nor for memory that the GPU shares with the host.
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
