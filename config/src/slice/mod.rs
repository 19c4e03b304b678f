//! A slice: the memory of each GPU that a container may use, and its presentation to programs.
//! Touches: its arguments; the caller has read the file.
//! Law: an unknown key is an error, never skipped: `memroy` must not mean "no limit".

mod fence;
mod page_cache;
mod read;
mod terms;
mod words;
#[cfg(feature = "std")]
mod write;

pub use crate::words::text::Text;
pub use fence::{DriverLimit, Fence, is_within, version_2};
pub use page_cache::{CHECKSUM, Ends, MAX_SUFFIXES, ModelFiles, PageCache};
pub use read::{SliceError, SliceFault, parse, parse_into};
pub use terms::TERMS;
#[cfg(feature = "std")]
pub use terms::terms_of;

use crate::slice::thresholds::Thresholds;
use crate::words::device::DeviceUuid;
use crate::words::text::uuid_text;
use crate::words::units::Bytes;

/// The version of the slice file that this code writes, and the newest that it reads.
pub const VERSION: u64 = 1;

/// The largest slice file that is read. A real one is under 8 KiB.
pub const MAX_FILE: usize = 64 << 10;

/// The most devices that one slice lists (8 GPUs of 7 MIG instances are 56).
pub const MAX_DEVICES: usize = 64;

/// The value reported as total memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Total {
    /// The slice's budget: the container sees a small card.
    #[default]
    Slice,
    /// The device's own total, for settings that are percentages of the whole machine. Memory that
    /// other slices hold or may hold then reads as used.
    Device,
}

/// The presentation of a slice of unified memory to programs that also read `/proc/meminfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PresentAs {
    /// An integrated device, as it is.
    #[default]
    Uma,
    /// A discrete device, for programs that would otherwise read `/proc/meminfo`.
    Discrete,
}

/// The reaction when the host of a unified-memory slice runs short of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pressure {
    /// Refuses allocations that would take the host below its reserve.
    #[default]
    Refuse,
    /// Like `Refuse`, with an earlier step: one refusal makes PyTorch's allocator release its
    /// cache, and malloc releases its free memory.
    Release,
}

/// Whether `cuMemAllocManaged` counts against the slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Managed {
    /// All of it, at the call: it cannot exceed the free memory.
    #[default]
    Count,
    /// Nothing: the driver keeps as much on the device as fits, and moves the rest.
    Allow,
}

/// The budget of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSlice {
    /// The enforced limit B.
    pub memory: Bytes,
    /// Subtracted from TOTAL, so that a program that fills the visible memory still fits under B.
    pub headroom: Bytes,
    /// The value reported as total memory.
    pub total: Total,
    /// The largest limit that the slice may get, which TOTAL shows from the start.
    pub maximum: Option<Bytes>,
    /// Whether the device shares the host's memory, where the slice's writer has queried the
    /// driver. NVML alone cannot tell.
    pub integrated: Option<bool>,
}

/// A device that the slice names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedDevice {
    /// The device.
    pub uuid: DeviceUuid,
    /// Its budget; None takes the slice's own `memory`.
    pub memory: Option<Bytes>,
    /// Its headroom; None takes the slice's.
    pub headroom: Option<Bytes>,
    /// Whether it shares the host's memory, if known.
    pub integrated: Option<bool>,
    /// How the driver holds this limit for the cgroup [`Slice::driver_cgroup`]; None: it does not.
    pub driver_limit: Option<DriverLimit>,
    /// Whether the driver limits that cgroup to this limit although the library enforces it: several
    /// cgroups share the slice.
    pub driver_backstop: bool,
}

/// A parsed slice file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Its display name, in logs and in `gpuslice status`.
    pub name: Text<128>,
    /// The value reported as total memory.
    pub total: Total,
    /// The presentation of a slice of unified memory.
    pub present_as: PresentAs,
    /// Whether an allocation over the limit is refused, or only counted.
    pub enforce: bool,
    /// The host reserve R on unified memory; None takes the default for the machine.
    pub reserve: Option<Bytes>,
    /// The path of the host's live meminfo; None means `/.gpuslice/meminfo`, then `/proc/meminfo`.
    pub meminfo: Option<Text<256>>,
    /// The path of the slice's ledger; None means `/.gpuslice/ledger/ledger` for a mounted slice,
    /// and no ledger for any other.
    pub ledger: Option<Text<256>>,
    /// The ledger's id; a file with another id is refused. None accepts any ledger: slice files
    /// written by hand, or before this key, have no id.
    pub ledger_id: Option<u64>,
    /// The descriptor of the ledger in the run's watcher, `/proc/PID/fd/N`. It is used once the
    /// path no longer leads to the ledger.
    pub ledger_descriptor: Option<Text<32>>,
    /// The treatment of model files' pages in the page cache.
    pub page_cache: PageCache,
    /// Whether processes of different slices share, by locks on a model's file, which of its bytes
    /// they still need.
    pub page_cache_share: bool,
    /// The files that belong to a model.
    pub model_files: ModelFiles,
    /// The folder with the promises of every slice of this machine; None means
    /// `/.gpuslice/promises` for a mounted slice, and none for any other.
    pub promises: Option<Text<256>>,
    /// The file in which this slice records the memory that it has spent; None means
    /// `/.gpuslice/promise` for a mounted slice, and none for any other.
    pub promise: Option<Text<256>>,
    /// The folder of the memory cgroup that contains only this slice. None means `/sys/fs/cgroup`
    /// for a mounted slice; any other slice counts its processes.
    pub cgroup: Option<Text<256>>,
    /// The cgroup for which the driver enforces the limits of the devices with a `driver_limit` or a
    /// `driver_backstop`: its path in `/proc/PID/cgroup`. Elsewhere the library holds them.
    pub driver_cgroup: Option<Text<256>>,
    /// The host memory that is not charged to the slice; None takes the default.
    pub host_allowance: Option<Bytes>,
    /// The reaction when the host runs short of memory.
    pub pressure: Pressure,
    /// Whether `cuMemAllocManaged` counts against the slice.
    pub managed: Managed,
    /// The pressure thresholds, where they differ from the policy's.
    pub thresholds: Thresholds,
    /// The budget of every device that is not listed; None leaves such devices without a limit.
    pub memory: Option<Bytes>,
    /// The headroom of every device without its own.
    pub headroom: Bytes,
    /// The largest limit that a resize may give each device, which TOTAL shows from the start. None:
    /// TOTAL shows the limit in force.
    pub maximum: Option<Bytes>,
    devices: [Option<ListedDevice>; MAX_DEVICES],
}

impl Default for Slice {
    fn default() -> Slice {
        Slice {
            name: Text::EMPTY,
            total: Total::Slice,
            present_as: PresentAs::Uma,
            enforce: true,
            reserve: None,
            meminfo: None,
            ledger: None,
            ledger_id: None,
            ledger_descriptor: None,
            page_cache: PageCache::Keep,
            page_cache_share: false,
            model_files: ModelFiles::usual(),
            promises: None,
            promise: None,
            cgroup: None,
            driver_cgroup: None,
            host_allowance: None,
            pressure: Pressure::Refuse,
            managed: Managed::Count,
            thresholds: Thresholds::default(),
            memory: None,
            headroom: Bytes::ZERO,
            maximum: None,
            devices: [None; MAX_DEVICES],
        }
    }
}

impl Slice {
    /// Adds a device.
    ///
    /// # Errors
    /// When it is listed already, or the list is full.
    pub fn list(&mut self, device: ListedDevice) -> Result<(), SliceFault> {
        for slot in &mut self.devices {
            match slot {
                Some(listed) if listed.uuid == device.uuid => {
                    return Err(SliceFault::TwiceListed(uuid_text(device.uuid)));
                }
                Some(_) => {}
                None => {
                    *slot = Some(device);
                    return Ok(());
                }
            }
        }
        Err(SliceFault::TooManyDevices)
    }

    /// The listed devices.
    pub fn devices(&self) -> impl Iterator<Item = &ListedDevice> {
        self.devices.iter().map_while(Option::as_ref)
    }

    /// Records how the driver enforces the limit of a listed device.
    pub fn set_driver_limit(&mut self, uuid: DeviceUuid, limit: Option<DriverLimit>) {
        if let Some(listed) = self.listed_mut(uuid) {
            listed.driver_limit = limit;
        }
    }

    /// A listed device, to be changed.
    pub fn listed_mut(&mut self, uuid: DeviceUuid) -> Option<&mut ListedDevice> {
        let mut listed = self.devices.iter_mut().flatten();
        listed.find(|listed| listed.uuid == uuid)
    }

    /// Sets the limit of a device that the slice limits.
    pub fn set_limit(&mut self, uuid: DeviceUuid, limit: Bytes) {
        let Some(budget) = self.device(uuid) else {
            return;
        };
        if let Some(listed) = self.listed_mut(uuid) {
            listed.memory = Some(limit);
            return;
        }
        let place = self.devices.iter_mut().find(|place| place.is_none());
        if let Some(place) = place {
            *place = Some(ListedDevice {
                uuid,
                memory: Some(limit),
                headroom: None,
                integrated: budget.integrated,
                driver_limit: None,
                driver_backstop: false,
            });
        }
    }

    /// The budget of a device; None when the slice does not limit it.
    #[must_use]
    pub fn device(&self, uuid: DeviceUuid) -> Option<DeviceSlice> {
        let listed = self.devices().find(|listed| listed.uuid == uuid);
        let memory = listed.and_then(|listed| listed.memory).or(self.memory)?;
        Some(DeviceSlice {
            memory,
            headroom: listed
                .and_then(|listed| listed.headroom)
                .unwrap_or(self.headroom),
            total: self.total,
            maximum: self.maximum,
            integrated: listed.and_then(|listed| listed.integrated),
        })
    }

    /// Whether the slice limits any device at all.
    #[must_use]
    pub fn limits_something(&self) -> bool {
        self.memory.is_some() || self.devices().next().is_some()
    }

    fn check(&self) -> Result<(), SliceFault> {
        for listed in self.devices() {
            let memory = listed
                .memory
                .or(self.memory)
                .ok_or(SliceFault::NoMemory(uuid_text(listed.uuid)))?;
            if listed.headroom.unwrap_or(self.headroom) >= memory {
                return Err(SliceFault::Headroom);
            }
            if self.maximum.is_some_and(|maximum| maximum < memory) {
                return Err(SliceFault::Maximum);
            }
        }
        match self.memory {
            Some(memory) if self.headroom >= memory => Err(SliceFault::Headroom),
            Some(memory) if self.maximum.is_some_and(|maximum| maximum < memory) => {
                Err(SliceFault::Maximum)
            }
            _ => Ok(()),
        }
    }
}

pub mod host_reserve;
#[cfg(test)]
mod tests;
#[cfg(feature = "std")]
pub mod threshold;
pub mod thresholds;
