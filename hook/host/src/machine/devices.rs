//! The list of this machine's GPUs, devices.json: `gpuslice devices --write` writes it, and the
//! hook, which cannot query the driver, reads it.
//! Touches: its arguments; `read` the list.

use crate::base::paths::HostPaths;
use crate::base::read;
use crate::base::uuid_text;
use gpuslice_config::slice::DriverLimit;
use gpuslice_config::words::device::{DeviceUuid, Selector};
use gpuslice_config::words::units::Bytes;
use serde::{Deserialize, Serialize, de::Error};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The major number of NVIDIA's device nodes.
pub const NVIDIA_MAJOR: i64 = 195;

/// The first minor number that is no GPU's: nvidia-modeset, nvidiactl.
pub const FIRST_CONTROL_MINOR: i64 = 254;

/// The largest list that is read. Eight GPUs of seven instances each take 8 KiB.
pub const CAP: usize = 1 << 20;

/// The list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    version: u32,
    /// How the driver limits cgroups, if it can and if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_limit: Option<DriverLimit>,
    /// The GPUs, by index.
    pub devices: Vec<Device>,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its UUID.
    #[serde(with = "uuid_text")]
    pub uuid: DeviceUuid,
    /// Its index in nvidia-smi.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// All its memory, in bytes.
    pub memory: u64,
    /// Whether it shares the host's memory.
    #[serde(default)]
    pub integrated: bool,
    /// The number N of its `/dev/nvidiaN`, if the driver reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Whether its driver limits cgroups itself; `None` if this has not been queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_limits: Option<bool>,
    /// Its MIG instances.
    #[serde(default)]
    pub mig: Vec<Instance>,
}

/// A part of a GPU that MIG divides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its UUID.
    #[serde(with = "uuid_text")]
    pub uuid: DeviceUuid,
    /// Its memory, in bytes.
    pub memory: u64,
}

/// Something that can have a budget: a GPU, or an instance of one.
#[derive(Clone, Copy, Debug)]
pub struct SliceTarget<'a> {
    /// Its UUID.
    pub uuid: DeviceUuid,
    /// All its memory.
    pub memory: Bytes,
    /// The GPU.
    pub device: &'a Device,
}

/// For errors: `GPU 0 (NVIDIA GB10, 121.69 GiB)`.
impl fmt::Display for SliceTarget<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SliceTarget { device, memory, .. } = self;
        if self.uuid != device.uuid {
            write!(out, "{} of ", self.uuid)?;
        }
        write!(out, "GPU {} ({}, {memory})", device.index, device.name)
    }
}

impl Device {
    /// The targets that programs allocate from: the GPU itself, or its MIG instances.
    pub fn targets(&self) -> impl Iterator<Item = SliceTarget<'_>> {
        let own = SliceTarget {
            uuid: self.uuid,
            memory: Bytes::new(self.memory),
            device: self,
        };
        let instance = |instance: &Instance| SliceTarget {
            uuid: instance.uuid,
            memory: Bytes::new(instance.memory),
            device: self,
        };
        let whole = self.mig.is_empty().then_some(own);
        whole.into_iter().chain(self.mig.iter().map(instance))
    }

    /// Whether a selector names this GPU, or an instance of it.
    #[must_use]
    pub fn is(&self, selector: Selector) -> bool {
        match selector {
            Selector::Index(index) => index == self.index,
            Selector::Uuid(uuid) => {
                uuid == self.uuid || self.mig.iter().any(|instance| instance.uuid == uuid)
            }
        }
    }
}

impl Devices {
    /// Everything that can have a budget.
    pub fn targets(&self) -> impl Iterator<Item = SliceTarget<'_>> {
        self.devices.iter().flat_map(Device::targets)
    }

    /// The indices, for errors: `GPUs 0, 1`.
    #[must_use]
    pub fn indices(&self) -> String {
        let indices: Vec<String> = self
            .devices
            .iter()
            .map(|one| one.index.to_string())
            .collect();
        let word = if indices.len() == 1 { "GPU" } else { "GPUs" };
        match indices.is_empty() {
            true => "no GPU".to_owned(),
            false => format!("{word} {}", indices.join(", ")),
        }
    }

    /// The targets that a selector names; a GPU divided by MIG yields all its instances.
    #[must_use]
    pub fn select(&self, selector: Selector) -> Vec<SliceTarget<'_>> {
        let part = |target: &SliceTarget<'_>| match selector {
            Selector::Uuid(uuid) if uuid != target.device.uuid => target.uuid == uuid,
            _ => true,
        };
        let meant = self.devices.iter().filter(|device| device.is(selector));
        meant.flat_map(Device::targets).filter(part).collect()
    }
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum DevicesError {
    /// It cannot be read, or is not root's alone.
    #[error("cannot use {path}")]
    Read {
        /// The list's path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is not a list of GPUs.
    #[error("{path} is not a list of GPUs (run gpuslice devices --write)")]
    Json {
        /// The list's path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// Reads the list; `None` where there is no list.
///
/// # Errors
/// When the list cannot be used.
pub fn read(paths: &HostPaths) -> Result<Option<Devices>, DevicesError> {
    let path = paths.devices();
    let text = match bytes(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(DevicesError::Read { path, source }),
        Ok(text) => text,
    };
    match parse(&text) {
        Ok(devices) => Ok(Some(devices)),
        Err(source) => Err(DevicesError::Json { path, source }),
    }
}

fn bytes(path: &std::path::Path) -> io::Result<Vec<u8>> {
    let file = read::open(path)?;
    read::only_roots(&file)?;
    read::whole(file, CAP)
}

/// Parses the text of a list.
///
/// # Errors
/// When the text is not a list, or a newer gpuslice wrote it.
pub fn parse(text: &[u8]) -> serde_json::Result<Devices> {
    let devices: Devices = serde_json::from_slice(text)?;
    match devices.version {
        1 => Ok(devices),
        version => Err(serde_json::Error::custom(format!(
            "version {version} is not 1"
        ))),
    }
}

/// The text of a list, as [`parse`] reads it.
///
/// # Errors
/// Never in practice: names and numbers are always valid JSON.
pub fn text(devices: &Devices) -> serde_json::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(devices)?))
}

impl Devices {
    /// The list of these GPUs.
    #[must_use]
    pub const fn new(devices: Vec<Device>) -> Devices {
        Devices {
            version: 1,
            driver_limit: None,
            devices,
        }
    }

    /// A list without GPUs.
    #[must_use]
    pub const fn none() -> Devices {
        Devices::new(Vec::new())
    }
}
