//! The queries beside CUDA's and NVML's: Vulkan, OpenCL, and `/proc/meminfo` on unified memory.
//! Touches: their loaders and drivers.

pub(super) mod meminfo;
pub(super) mod opencl;
pub(super) mod vulkan;

use super::apis::{APIS, IS_INTEGRATED, QueryTarget};
use super::devices::{CudaDevice, ListedDevice};
use super::dl::Symbol;
use super::routes::{Opened, Route};
use gpuslice_config::words::device::DeviceUuid;

/// A device that a route queries.
pub(super) struct OtherDevice {
    /// Its uuid, in NVML's format.
    pub(super) uuid: String,
    /// Its marketing name.
    pub(super) name: String,
    /// The function that reports its memory.
    pub(super) symbol: Symbol,
    /// How that function is told the device.
    pub(super) target: QueryTarget,
}

/// Returns the name of the first call of a route.
pub(super) fn first_call(route: Route) -> &'static str {
    match route {
        Route::VulkanLoader | Route::VulkanDriver => "vkCreateInstance",
        Route::OpenClLoader | Route::OpenClDriver => "clGetPlatformIDs",
        _ => "open",
    }
}

/// Returns the devices that a route queries. `seen` are the devices that CUDA lists by `yardstick`;
/// `has_library` says whether this process has loaded libgpuslice.so.
///
/// # Errors
/// Why the route queries none, as a sentence.
pub(super) fn devices(
    route: Route,
    yardstick: &Opened,
    seen: &[CudaDevice],
    has_library: bool,
) -> Result<Vec<OtherDevice>, String> {
    let found = match route {
        Route::MeminfoByLibc | Route::MeminfoBySystemCall => {
            return shared(route, yardstick, seen, has_library);
        }
        Route::VulkanLoader => vulkan::loader().map(vulkan::devices),
        Route::VulkanDriver => vulkan::driver().map(vulkan::devices),
        Route::OpenClLoader => opencl::Functions::loader().map(opencl::devices),
        _ => opencl::Functions::driver().map(opencl::devices),
    };
    let (symbol, devices) = match found {
        Ok(Ok((Some(symbol), devices))) if !devices.is_empty() => (symbol, devices),
        Ok(Ok(_)) => return Err("it lists no device of NVIDIA".to_owned()),
        Ok(Err(why)) => return Err(why),
        Err(why) => return Err(format!("not installed ({why})")),
    };
    let each = |device: ListedDevice| {
        // A MIG instance has a name of its own kind, which only CUDA tells.
        let bytes = |known: &CudaDevice| Some(known.uuid.parse::<DeviceUuid>().ok()?.bytes);
        let mut known = seen.iter();
        let known = known.find(|known| bytes(known) == Some(device.uuid.bytes));
        OtherDevice {
            uuid: known.map_or_else(|| device.uuid.to_string(), |known| known.uuid.clone()),
            name: device.name,
            symbol,
            target: QueryTarget::handle(device.handle),
        }
    };
    Ok(devices.into_iter().map(each).collect())
}

/// Returns the devices whose memory `/proc/meminfo` reports: those that share the host's.
fn shared(
    route: Route,
    yardstick: &Opened,
    seen: &[CudaDevice],
    has_library: bool,
) -> Result<Vec<OtherDevice>, String> {
    let shared = seen.iter().filter(|it| is_integrated(yardstick, it));
    let shared: Vec<OtherDevice> = shared
        .map(|device| OtherDevice {
            uuid: device.uuid.clone(),
            name: device.name.clone(),
            symbol: Symbol::dangling(),
            target: QueryTarget::cuda(device.ordinal),
        })
        .collect();
    let is_by_libc = route == Route::MeminfoByLibc;
    match is_by_libc || shared.is_empty() || !has_library || meminfo::is_page() {
        true => Ok(shared),
        false => Err(
            "no page is mounted over /proc/meminfo: system calls read the host's file".to_owned(),
        ),
    }
}

/// Checks whether CUDA says that a device shares the host's memory.
fn is_integrated(opened: &Opened, device: &CudaDevice) -> bool {
    let api = APIS.iter().find(|api| api.name == IS_INTEGRATED);
    let reading = api.and_then(|api| {
        let lookup = opened.lookup(api.family, &api.symbol).ok()?;
        let symbol = lookup.find(&api.symbol).ok()?;
        (api.ask)(symbol, QueryTarget::cuda(device.ordinal)).ok()
    });
    reading.and_then(|reading| reading.integrated) == Some(true)
}
