//! Memory locations of CUDA (`CUmemLocation`): whether memory lies on a device, and on which.
//! Touches: its arguments.

use gpuslice_config::words::device::CudaOrdinal;

use crate::answer::device;

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: i32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST`, `..._HOST_NUMA` and `..._HOST_NUMA_CURRENT`.
const HOST: core::ops::RangeInclusive<i32> = 2..=4;
/// `CU_MEM_LOCATION_TYPE_INVISIBLE`: a device that this process cannot see.
pub(crate) const INVISIBLE: i32 = 5;
/// `CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN`, since CUDA 13.4: a part of a device. The value is
/// that of cudarc 0.19.10, which is generated from the vendor's header.
const LOCALITY_DOMAIN: i32 = 6;

/// The place of memory.
#[derive(Clone, Copy)]
pub(crate) enum Location {
    /// A device, or a part of it.
    Device(CudaOrdinal),
    /// The host.
    Host,
    /// A type that is unknown here. It may be memory of a device.
    Unknown,
}

/// The place that a `CUmemLocation` names, by its type and the four bytes after it.
pub(crate) fn of(kind: i32, id: i32) -> Location {
    let device = match kind {
        DEVICE => device::ordinal(id),
        LOCALITY_DOMAIN => {
            // The bytes are the device and the domain.
            let [device, ..] = id.to_ne_bytes();
            Some(CudaOrdinal(u32::from(device)))
        }
        kind if HOST.contains(&kind) => return Location::Host,
        _ => None,
    };
    device.map_or(Location::Unknown, Location::Device)
}
