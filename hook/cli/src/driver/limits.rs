//! Finds out whether the driver can limit the memory of cgroups (since R615, CUDA 13.4).
//! Touches: libnvidia-ml.so.1, which stays loaded in this process.
#![expect(non_camel_case_types, non_snake_case, reason = "the vendor's names")]

use libloading::Library;
use std::ffi::{CStr, c_char, c_uint, c_void};

type nvmlReturn_t = c_uint;
type nvmlDevice_t = *mut c_void;
type Get = unsafe extern "C" fn(nvmlDevice_t, *mut nvmlGetMemoryLimits_v1_t) -> nvmlReturn_t;

/// The vendor's nvmlGetMemoryLimits_v1_t.
#[repr(C)]
struct nvmlGetMemoryLimits_v1_t {
    cgroup: *const c_char,
    softLimit: u64,
    hardLimit: u64,
    currentUsed: u64,
}

const _: () = assert!(size_of::<nvmlGetMemoryLimits_v1_t>() == 32);

const NVML_ERROR_FUNCTION_NOT_FOUND: nvmlReturn_t = 13;

/// The cgroup for the query. Any cgroup serves, because only a missing function means that the
/// driver has no limits. NVML returns NOT_SUPPORTED both for a GPU without limits and for a cgroup
/// without a limit. Only setting a limit distinguishes these two.
const CGROUP: &CStr = c"/sys/fs/cgroup";

/// The driver's function for reading limits, if it has one.
pub(crate) struct Limits {
    _library: Library,
    get: Get,
}

impl Limits {
    pub(crate) fn find() -> Option<Limits> {
        // SAFETY: NVML is loaded already; this process exists to run its initialisers.
        let library = unsafe { Library::new("libnvidia-ml.so.1") }.ok()?;
        // SAFETY: nvml.h declares this type for the name, and `Limits` keeps the library loaded.
        let get = unsafe { library.get::<Get>(b"nvmlDeviceGetMemoryLimits_v1") };
        let get = *get.ok()?;
        Some(Limits {
            _library: library,
            get,
        })
    }

    pub(crate) fn has(&self, device: &nvml_wrapper::Device<'_>) -> bool {
        let mut limits = nvmlGetMemoryLimits_v1_t {
            cgroup: CGROUP.as_ptr(),
            softLimit: 0,
            hardLimit: 0,
            currentUsed: 0,
        };
        // SAFETY: the handle is passed only to NVML, and only while `device` lives.
        let handle = unsafe { device.handle() };
        // SAFETY: NVML is initialised, the handle is its own, and the struct holds a C string.
        let code = unsafe { (self.get)(handle.cast(), &raw mut limits) };
        code != NVML_ERROR_FUNCTION_NOT_FOUND
    }
}
