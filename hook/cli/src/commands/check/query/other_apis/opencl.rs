//! Asks NVIDIA's OpenCL driver for its devices and their memory, through a loader or without it.
//! Touches: the loader or the driver.

use crate::commands::check::query::abi::call;
use crate::commands::check::query::apis::QueryTarget;
use crate::commands::check::query::devices::ListedDevice;
use crate::commands::check::query::dl::{self, Handle, Symbol};
use crate::commands::check::query::row::Reading;
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};
use libc::{RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{NonNull, null_mut};

/// The number that PCI gives to NVIDIA.
const NVIDIA: u32 = 0x10DE;
/// `CL_PLATFORM_VENDOR`.
const PLATFORM_VENDOR: u32 = 0x0903;
/// `CL_DEVICE_TYPE_ALL`.
const ALL: u64 = 0xFFFF_FFFF;
/// `CL_DEVICE_VENDOR_ID`.
const VENDOR: u32 = 0x1001;
/// `CL_DEVICE_GLOBAL_MEM_SIZE`.
const MEMORY: u32 = 0x101F;
/// `CL_DEVICE_NAME`.
const NAME: u32 = 0x102B;
/// `CL_DEVICE_UUID_KHR`.
const UUID: u32 = 0x106A;

/// The most platforms and devices that are looked at.
const MOST: u32 = 64;

/// OpenCL's functions, by name or by their place in a driver's table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Functions {
    /// A loader's library.
    Loader(Handle),
    /// The driver's own: a platform begins with the address of its table of functions.
    Driver(Symbol),
}

impl Functions {
    /// Those of the loader.
    pub(crate) fn loader() -> Result<Functions, String> {
        dl::open(c"libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL).map(Functions::Loader)
    }

    /// Those of NVIDIA's driver.
    pub(crate) fn driver() -> Result<Functions, String> {
        let library = dl::open(c"libnvidia-opencl.so.1", RTLD_NOW | RTLD_LOCAL)?;
        let extension = dl::symbol(library, c"clGetExtensionFunctionAddress");
        let extension = extension.ok_or("the driver has no clGetExtensionFunctionAddress")?;
        // SAFETY: the name is that of a function with this prototype.
        let extension = unsafe {
            std::mem::transmute::<Symbol, unsafe extern "C" fn(*const c_char) -> *mut c_void>(
                extension,
            )
        };
        // SAFETY: the name is a C string.
        let found = unsafe { extension(c"clIcdGetPlatformIDsKHR".as_ptr()) };
        let found = NonNull::new(found).ok_or("the driver has no clIcdGetPlatformIDsKHR")?;
        Ok(Functions::Driver(found))
    }

    fn platforms(self) -> Result<Vec<*mut c_void>, String> {
        let list = match self {
            Functions::Loader(library) => dl::symbol(library, c"clGetPlatformIDs"),
            Functions::Driver(list) => Some(list),
        };
        let list = list.ok_or("the loader has no clGetPlatformIDs")?;
        let (mut found, mut count) = ([null_mut::<c_void>(); MOST as usize], 0u32);
        let code = call!(
            list,
            MOST => u32,
            found.as_mut_ptr() => *mut *mut c_void,
            &raw mut count => *mut u32,
        );
        if code != 0 {
            return Err(format!("clGetPlatformIDs: {code}"));
        }
        Ok(found.into_iter().take(count as usize).collect())
    }

    /// A function, by its name and its place in the table of `platform`.
    fn of(self, platform: *mut c_void, name: &CStr, place: usize) -> Result<Symbol, String> {
        let found = match self {
            Functions::Loader(library) => dl::symbol(library, name),
            Functions::Driver(_) => {
                // SAFETY: cl_khr_icd: a platform begins with the address of its table.
                let table = unsafe { *platform.cast::<*const *mut c_void>() };
                // SAFETY: the table has more than `place` entries.
                let entry = unsafe { table.add(place) };
                // SAFETY: as above.
                let found = unsafe { *entry };
                NonNull::new(found)
            }
        };
        found.ok_or_else(|| format!("there is no {}", name.to_string_lossy()))
    }
}

/// Returns NVIDIA's devices, and the function that reports their memory.
pub(crate) fn devices(from: Functions) -> Result<(Option<Symbol>, Vec<ListedDevice>), String> {
    let (mut devices, mut ask) = (Vec::new(), None);
    for platform in from.platforms()? {
        // PoCL has devices of NVIDIA, too.
        let about = from.of(platform, c"clGetPlatformInfo", 1)?;
        let mut vendor = [0u8; 256];
        if get(about, platform, PLATFORM_VENDOR, &mut vendor).is_err()
            || !vendor.starts_with(b"NVIDIA")
        {
            continue;
        }
        let list = from.of(platform, c"clGetDeviceIDs", 2)?;
        let info = from.of(platform, c"clGetDeviceInfo", 3)?;
        let (mut found, mut count) = ([null_mut::<c_void>(); MOST as usize], 0u32);
        let code = call!(
            list,
            platform => *mut c_void,
            ALL => u64,
            MOST => u32,
            found.as_mut_ptr() => *mut *mut c_void,
            &raw mut count => *mut u32,
        );
        if code != 0 {
            // A platform without devices.
            continue;
        }
        for device in found.into_iter().take(count as usize) {
            let (mut vendor, mut uuid) = (0u32, [0u8; 16]);
            let has_uuid = get(info, device, VENDOR, &mut vendor).is_ok()
                && vendor == NVIDIA
                && get(info, device, UUID, &mut uuid).is_ok();
            if !has_uuid {
                continue;
            }
            let mut name = [0u8; 256];
            let _ = get(info, device, NAME, &mut name);
            let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
            let uuid = DeviceUuid {
                kind: DeviceKind::Gpu,
                bytes: uuid,
            };
            devices.push(ListedDevice {
                handle: device,
                uuid,
                name: name.to_string_lossy().into_owned(),
            });
            ask = Some(info);
        }
    }
    Ok((ask, devices))
}

/// Calls `info` (`clGetDeviceInfo` or `clGetPlatformInfo`) for a value of a fixed size. A text may be
/// shorter. The error is OpenCL's number.
fn get<T>(info: Symbol, object: *mut c_void, what: u32, value: &mut T) -> Result<(), i32> {
    let code = call!(
        info,
        object => *mut c_void,
        what => u32,
        size_of::<T>() => usize,
        std::ptr::from_mut(value).cast() => *mut c_void,
        null_mut() => *mut usize,
    );
    match code {
        0 => Ok(()),
        code => Err(code),
    }
}

/// The memory of a device.
pub(crate) fn memory(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    let mut total = 0u64;
    get(symbol, target.handle, MEMORY, &mut total)
        .map_err(|code| format!("clGetDeviceInfo: {code}"))?;
    Ok(Reading {
        total: Some(total),
        ..Reading::default()
    })
}
