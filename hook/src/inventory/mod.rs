//! The GPUs of this machine, as the driver lists them.
//! Touches: its arguments. Never: the driver; a child process asks it, see `ask` and `probe`.

pub mod ask;
pub mod cuda;
mod limits;
pub mod nvml;
pub mod probe;
pub mod processes;

use gpuslice_config::device::DeviceUuid;
use gpuslice_config::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// All GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The driver's version, where NVML tells it.
    pub driver: Option<String>,
    /// The GPUs, in the order of their indices.
    pub devices: Vec<Device>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// What people call it: the index in nvidia-smi; without NVML, CUDA's ordinal.
    pub index: u32,
    /// CUDA's ordinal when no variable hides devices; None where CUDA does not list it, as with
    /// a GPU that MIG divides.
    pub cuda_ordinal: Option<u32>,
    /// Its identity.
    #[serde(with = "uuid_text")]
    pub uuid: DeviceUuid,
    /// Its name.
    pub name: String,
    /// What programs can use of it together, in bytes.
    pub total: u64,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// Which `/dev/nvidiaN` it is, where the driver says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Whether its driver limits cgroups by itself.
    #[serde(default)]
    pub driver_limits: bool,
    /// Its MIG instances.
    pub mig: Vec<MigInstance>,
}

/// A part of a GPU that MIG divides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// Its identity.
    #[serde(with = "uuid_text")]
    pub uuid: DeviceUuid,
    /// CUDA's ordinal, where CUDA lists it (it lists one instance at most unless told which).
    pub cuda_ordinal: Option<u32>,
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    pub total: u64,
}

/// Something that can have a budget: a GPU, or an instance of one.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Its identity.
    pub uuid: DeviceUuid,
    /// All its memory.
    pub total: Bytes,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// CUDA's ordinal when no variable hides devices; None where CUDA does not list it.
    pub cuda_ordinal: Option<u32>,
    /// The GPU, or the one that the instance is a part of.
    pub device: &'a Device,
}

impl Device {
    /// What of it programs allocate from: itself, or its instances.
    pub fn targets(&self) -> impl Iterator<Item = Target<'_>> {
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
    /// Everything that can have a budget.
    pub fn targets(&self) -> impl Iterator<Item = Target<'_>> {
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

/// A list for people, one device per line, indented.
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
    //! A uuid in JSON is its text.
    use gpuslice_config::device::DeviceUuid;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(uuid: &DeviceUuid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(uuid)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DeviceUuid, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
