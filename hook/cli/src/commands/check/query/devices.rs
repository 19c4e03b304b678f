//! Finds the devices by a route and prepares them for queries: initialisation, identity, contexts.
//! Touches: the driver.

use super::abi::call;
use super::apis::{Family, Name};
use super::codes;
use super::dl::Symbol;
use super::routes::Opened;
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// A device in CUDA's enumeration.
#[derive(Clone, Debug)]
pub(crate) struct CudaDevice {
    /// Its ordinal, which is also its `CUdevice`.
    pub(crate) ordinal: c_int,
    /// Its uuid, in NVML's format.
    pub(crate) uuid: String,
    /// Its marketing name.
    pub(crate) name: String,
}

/// A device in NVML's enumeration: a GPU that MIG does not divide, or a MIG instance.
#[derive(Clone, Debug)]
pub(crate) struct NvmlDevice {
    pub(crate) handle: *mut c_void,
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) mig: bool,
}

/// A device that another API than CUDA and NVML lists.
#[derive(Clone, Debug)]
pub(crate) struct ListedDevice {
    pub(crate) handle: *mut c_void,
    pub(crate) uuid: DeviceUuid,
    pub(crate) name: String,
}

/// The devices that NVML lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct NvmlDevices {
    pub(crate) devices: Vec<NvmlDevice>,
    /// The uuids of GPUs that MIG divides.
    pub(crate) parents: Vec<String>,
}

fn find(opened: &Opened, family: Family, name: &Name) -> Result<Symbol, String> {
    opened.lookup(family, name)?.find(name)
}

fn cuda(opened: &Opened, export: &'static str, version: c_int) -> Result<Symbol, String> {
    find(opened, Family::Cuda, &Name::cuda(export, export, version))
}

fn nvml(opened: &Opened, export: &'static str) -> Result<Symbol, String> {
    find(opened, Family::Nvml, &Name::plain(export))
}

fn saying<T>(what: &str, result: Result<T, String>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// Initialises CUDA and lists its devices.
pub(crate) fn cuda_devices(opened: &Opened) -> Result<Vec<CudaDevice>, String> {
    let init = cuda(opened, "cuInit", 2000)?;
    saying("cuInit", codes::cuda(call!(init, 0 => c_uint)))?;
    let count_devices = cuda(opened, "cuDeviceGetCount", 2000)?;
    let mut count: c_int = 0;
    let code = call!(count_devices, &raw mut count => *mut c_int);
    saying("cuDeviceGetCount", codes::cuda(code))?;
    (0..count)
        .map(|ordinal| {
            Ok(CudaDevice {
                ordinal,
                uuid: cuda_uuid(opened, ordinal)?,
                name: cuda_name(opened, ordinal).unwrap_or_default(),
            })
        })
        .collect()
}

fn cuda_name(opened: &Opened, device: c_int) -> Result<String, String> {
    let get_name = cuda(opened, "cuDeviceGetName", 2000)?;
    let mut text = [0 as c_char; 256];
    codes::cuda(call!(get_name, text.as_mut_ptr() => *mut c_char, 255 => c_int, device => c_int))?;
    Ok(text_of(&text))
}

/// Returns the device's uuid. Only the newer function returns a MIG instance's own uuid.
fn cuda_uuid(opened: &Opened, device: c_int) -> Result<String, String> {
    let ask = |symbol: Symbol| -> Result<[u8; 16], String> {
        let mut bytes = [0u8; 16];
        let code = call!(symbol, bytes.as_mut_ptr() => *mut u8, device => c_int);
        saying("cuDeviceGetUuid", codes::cuda(code))?;
        Ok(bytes)
    };
    let of_the_gpu = cuda(opened, "cuDeviceGetUuid", 9020).and_then(ask);
    let newer = Name::cuda("cuDeviceGetUuid_v2", "cuDeviceGetUuid", 11040);
    let own = find(opened, Family::Cuda, &newer).and_then(ask);
    let (kind, bytes) = match (own, of_the_gpu) {
        (Ok(own), Ok(gpu)) if own != gpu => (DeviceKind::Mig, own),
        (Ok(uuid), _) | (Err(_), Ok(uuid)) => (DeviceKind::Gpu, uuid),
        (Err(error), Err(_)) => return Err(error),
    };
    Ok(DeviceUuid { kind, bytes }.to_string())
}

/// The call that makes a device the current one of this thread, before each query.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Current {
    /// The query needs no current device.
    None,
    /// cuCtxSetCurrent and the device's primary context.
    Context(Symbol, *mut c_void),
    /// cudaSetDevice and the ordinal.
    Runtime(Symbol, c_int),
}

impl Current {
    /// Makes the device current.
    pub(crate) fn set(self) -> Result<(), String> {
        match self {
            Current::None => Ok(()),
            Current::Context(set, context) => saying(
                "cuCtxSetCurrent",
                codes::cuda(call!(set, context => *mut c_void)),
            ),
            Current::Runtime(set, ordinal) => {
                saying("cudaSetDevice", codes::cudart(call!(set, ordinal => c_int)))
            }
        }
    }
}

/// Retains the device's primary context until this process ends, creating it if needed.
pub(crate) fn hold_context(opened: &Opened, device: c_int) -> Result<Current, String> {
    let retain = cuda(opened, "cuDevicePrimaryCtxRetain", 7000)?;
    let set = cuda(opened, "cuCtxSetCurrent", 4000)?;
    let mut context: *mut c_void = std::ptr::null_mut();
    let code = call!(retain, &raw mut context => *mut *mut c_void, device => c_int);
    saying("cuDevicePrimaryCtxRetain", codes::cuda(code))?;
    Ok(Current::Context(set, context))
}

/// Makes libcudart create the device's primary context, as a program's first call does.
pub(crate) fn hold_runtime(opened: &Opened, ordinal: c_int) -> Result<Current, String> {
    let runtime = |export| find(opened, Family::Cudart(&[]), &Name::plain(export));
    let current = Current::Runtime(runtime("cudaSetDevice")?, ordinal);
    current.set()?;
    let free = runtime("cudaFree")?;
    let code = call!(free, std::ptr::null_mut() => *mut c_void);
    saying("cudaFree(0)", codes::cudart(code))?;
    Ok(current)
}

/// Initialises NVML and lists its devices.
pub(crate) fn nvml_devices(opened: &Opened) -> Result<NvmlDevices, String> {
    let init = nvml(opened, "nvmlInit_v2")?;
    saying("nvmlInit_v2", codes::nvml(call!(init)))?;
    let count_devices = nvml(opened, "nvmlDeviceGetCount_v2")?;
    let mut count: c_uint = 0;
    let code = call!(count_devices, &raw mut count => *mut c_uint);
    saying("nvmlDeviceGetCount_v2", codes::nvml(code))?;
    let by_index = nvml(opened, "nvmlDeviceGetHandleByIndex_v2")?;
    let mut found = NvmlDevices::default();
    for index in 0..count {
        let mut handle: *mut c_void = std::ptr::null_mut();
        let code = call!(by_index, index => c_uint, &raw mut handle => *mut *mut c_void);
        saying("nvmlDeviceGetHandleByIndex_v2", codes::nvml(code))?;
        let gpu = NvmlDevice {
            handle,
            uuid: nvml_text(opened, "nvmlDeviceGetUUID", handle)?,
            name: nvml_text(opened, "nvmlDeviceGetName", handle).unwrap_or_default(),
            mig: false,
        };
        if is_cut(opened, handle) {
            found.devices.extend(instances(opened, &gpu));
            found.parents.push(gpu.uuid);
        } else {
            found.devices.push(gpu);
        }
    }
    Ok(found)
}

fn nvml_text(opened: &Opened, export: &'static str, handle: *mut c_void) -> Result<String, String> {
    let get = nvml(opened, export)?;
    let mut text = [0 as c_char; 128];
    let code = call!(
        get,
        handle => *mut c_void,
        text.as_mut_ptr() => *mut c_char,
        127 => c_uint,
    );
    saying(export, codes::nvml(code))?;
    Ok(text_of(&text))
}

/// A text that a driver has written into a zeroed array.
fn text_of(text: &[c_char]) -> String {
    // SAFETY: the array is zeroed and one byte longer than the length that the driver was given.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    text.to_string_lossy().into_owned()
}

/// Checks whether MIG is enabled. A driver or a card without MIG returns an error.
fn is_cut(opened: &Opened, handle: *mut c_void) -> bool {
    let Ok(mode) = nvml(opened, "nvmlDeviceGetMigMode") else {
        return false;
    };
    let (mut current, mut pending): (c_uint, c_uint) = (0, 0);
    let code = call!(
        mode,
        handle => *mut c_void,
        &raw mut current => *mut c_uint,
        &raw mut pending => *mut c_uint,
    );
    code == 0 && current == 1
}

fn instances(opened: &Opened, gpu: &NvmlDevice) -> Vec<NvmlDevice> {
    let (Ok(most), Ok(by_index)) = (
        nvml(opened, "nvmlDeviceGetMaxMigDeviceCount"),
        nvml(opened, "nvmlDeviceGetMigDeviceHandleByIndex"),
    ) else {
        return Vec::new();
    };
    let mut count: c_uint = 0;
    if call!(most, gpu.handle => *mut c_void, &raw mut count => *mut c_uint) != 0 {
        return Vec::new();
    }
    (0..count)
        .filter_map(|index| {
            let mut handle: *mut c_void = std::ptr::null_mut();
            let code = call!(
                by_index,
                gpu.handle => *mut c_void,
                index => c_uint,
                &raw mut handle => *mut *mut c_void,
            );
            // NVML counts slots of instances. For an empty slot it returns NOT_FOUND.
            codes::nvml(code).ok()?;
            Some(NvmlDevice {
                handle,
                uuid: nvml_text(opened, "nvmlDeviceGetUUID", handle).ok()?,
                name: nvml_text(opened, "nvmlDeviceGetName", handle)
                    .unwrap_or_else(|_| gpu.name.clone()),
                mig: true,
            })
        })
        .collect()
}
