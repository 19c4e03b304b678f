//! Lists NVML's devices for the inventory: indices and MIG instances.
//! Touches: libnvidia-ml.so.1, through `nvml-wrapper`.

use super::limits::Limits;
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};
use nvml_wrapper::Nvml;

/// The facts that NVML reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct NvmlList {
    /// The driver's version.
    pub driver: Option<String>,
    /// The GPUs, by index.
    pub devices: Vec<NvmlDevice>,
}

/// A GPU or a MIG instance, as NVML reports it.
#[derive(Clone, Debug)]
pub(crate) struct NvmlDevice {
    /// Its place in nvidia-smi's list, or among the GPU's instances.
    pub index: u32,
    /// Its identity.
    pub uuid: DeviceUuid,
    /// Its name.
    pub name: String,
    /// Its total memory in bytes; 0 if NVML does not report it.
    pub total: u64,
    /// The number N of its `/dev/nvidiaN`; None if there are no such nodes (Jetson).
    pub minor: Option<u32>,
    /// Whether the driver can limit the memory of cgroups on it.
    pub driver_limits: bool,
    /// Its MIG instances.
    pub mig: Vec<NvmlDevice>,
}

/// Lists NVML's devices. Returns None if NVML does not work; CUDA's list is then used alone.
#[must_use]
pub(crate) fn list() -> Option<NvmlList> {
    let nvml = Nvml::init().ok()?;
    let count = nvml.device_count().ok()?;
    let limits = Limits::find();
    let devices = (0..count)
        .filter_map(|index| {
            let device = nvml.device_by_index(index).ok()?;
            let instances = device.mig_device_count().unwrap_or(0);
            let mut listed = describe(index, &device, DeviceKind::Gpu)?;
            listed.driver_limits = limits.as_ref().is_some_and(|limits| limits.has(&device));
            // NVML counts slots, some of which may be empty.
            listed.mig = (0..instances)
                .filter_map(|place| {
                    let instance = device.mig_device_by_index(place).ok()?;
                    describe(place, &instance, DeviceKind::Mig)
                })
                .collect();
            Some(listed)
        })
        .collect();
    Some(NvmlList {
        driver: nvml.sys_driver_version().ok(),
        devices,
    })
}

/// Returns the identity of a GPU or an instance.
pub(crate) fn uuid_of(device: &nvml_wrapper::Device<'_>, kind: DeviceKind) -> Option<DeviceUuid> {
    let text = device.uuid().ok()?;
    // Jetson's NVML omits the prefix.
    let prefixed = || match kind {
        DeviceKind::Gpu => format!("GPU-{text}").parse(),
        DeviceKind::Mig => format!("MIG-{text}").parse(),
    };
    text.parse::<DeviceUuid>().or_else(|_| prefixed()).ok()
}

fn describe(index: u32, device: &nvml_wrapper::Device<'_>, kind: DeviceKind) -> Option<NvmlDevice> {
    Some(NvmlDevice {
        index,
        uuid: uuid_of(device, kind)?,
        name: device.name().unwrap_or_else(|_| "unnamed".to_owned()),
        total: device.memory_info().map_or(0, |memory| memory.total),
        minor: device.minor_number().ok(),
        driver_limits: false,
        mig: Vec::new(),
    })
}
