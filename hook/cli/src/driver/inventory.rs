//! The GPUs of this machine, as the driver lists them.
//! Touches: its arguments. It never touches the driver; a child process queries it, see `ask` and
//! `probe`.

use gpuslice_config::slice::DriverLimit;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// All GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inventory {
    /// The driver's version, if NVML reports it.
    pub driver: Option<String>,
    /// How the driver limits cgroups, if it can and if that is known.
    #[serde(default)]
    pub backend: Option<DriverLimit>,
    /// The GPUs, in the order of their indices.
    pub devices: Vec<Device>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    /// The number that users know: the index in nvidia-smi or, without NVML, CUDA's ordinal.
    pub index: u32,
    /// CUDA's ordinal if no variable hides devices. None if CUDA does not list the device, as with
    /// a GPU that MIG divides.
    pub cuda_ordinal: Option<u32>,
    #[serde(with = "uuid_text")]
    pub uuid: DeviceUuid,
    pub name: String,
    /// The memory that its programs can use in total, in bytes.
    pub total: u64,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// The number N of its `/dev/nvidiaN`, if the driver reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Whether the driver itself can limit the memory of cgroups on it.
    #[serde(default)]
    pub driver_limits: bool,
    /// Its MIG instances.
    pub mig: Vec<MigInstance>,
}

/// A part of a GPU that MIG divides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MigInstance {
    #[serde(with = "uuid_text")]
    pub uuid: DeviceUuid,
    /// CUDA's ordinal, if CUDA lists it (by default it lists at most one instance).
    pub cuda_ordinal: Option<u32>,
    pub name: String,
    /// Its memory in bytes.
    pub total: u64,
}

/// A device that can have a budget: a GPU, or an instance of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub uuid: DeviceUuid,
    /// All its memory.
    pub total: Bytes,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// CUDA's ordinal if no variable hides devices; None if CUDA does not list it.
    pub cuda_ordinal: Option<u32>,
    /// The GPU itself, or the GPU of the instance.
    pub device: &'a Device,
}

impl Device {
    /// Returns the devices that programs allocate from: the GPU itself, or its instances.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target<'_>> {
        let own = self.mig.is_empty().then_some(Target {
            uuid: self.uuid,
            total: Bytes::new(self.total),
            integrated: self.integrated,
            cuda_ordinal: self.cuda_ordinal,
            device: self,
        });
        own.into_iter()
            .chain(self.mig.iter().map(|instance| Target {
                uuid: instance.uuid,
                total: Bytes::new(instance.total),
                integrated: self.integrated,
                cuda_ordinal: instance.cuda_ordinal,
                device: self,
            }))
    }
}

impl Inventory {
    /// Returns all devices that can have a budget.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target<'_>> {
        self.devices.iter().flat_map(Device::targets)
    }
}

/// For error messages: `GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB)`.
impl fmt::Display for Target<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target { device, total, .. } = self;
        if self.uuid == device.uuid {
            write!(out, "GPU {} ({}, {total})", device.index, device.name)
        } else {
            write!(
                out,
                "{} of GPU {} ({}, {total})",
                self.uuid, device.index, device.name
            )
        }
    }
}

/// The list in messages: one device per line, indented.
impl fmt::Display for Inventory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for target in self.targets() {
            let Target { device, uuid, .. } = target;
            let name = &device.name;
            write!(out, "\n  {} {uuid}  {name}, {}", device.index, target.total)?;
        }
        Ok(())
    }
}

mod uuid_text {
    //! Serializes a uuid as its text.
    use gpuslice_config::words::device::DeviceUuid;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(uuid: &DeviceUuid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(uuid)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DeviceUuid, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
