//! Finds out whether the driver can limit the memory of cgroups (since R615, CUDA 13.4).
//! Touches: libnvidia-ml.so.1, which stays loaded in this process; the kernel's list of regions.
#![expect(non_camel_case_types, non_snake_case, reason = "the vendor's names")]

use super::sim;
use gpuslice_config::slice::DriverLimit;
use gpuslice_host::machine::cgroups;
use libloading::Library;
use std::env;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::fs;
use std::path::PathBuf;

pub(super) type nvmlReturn_t = c_uint;
pub(super) type nvmlDevice_t = *mut c_void;
/// `nvmlDeviceGetMemoryLimits_v1`.
pub(super) type Get =
    unsafe extern "C" fn(nvmlDevice_t, *mut nvmlGetMemoryLimits_v1_t) -> nvmlReturn_t;

/// The vendor's nvmlGetMemoryLimits_v1_t.
#[repr(C)]
pub(super) struct nvmlGetMemoryLimits_v1_t {
    cgroup: *const c_char,
    pub(super) softLimit: u64,
    pub(super) hardLimit: u64,
    currentUsed: u64,
}

impl nvmlGetMemoryLimits_v1_t {
    /// The question for the limits of a cgroup, whose path must outlive it.
    pub(super) fn of(cgroup: &CStr) -> nvmlGetMemoryLimits_v1_t {
        nvmlGetMemoryLimits_v1_t {
            cgroup: cgroup.as_ptr(),
            softLimit: 0,
            hardLimit: 0,
            currentUsed: 0,
        }
    }
}

const _: () = assert!(size_of::<nvmlGetMemoryLimits_v1_t>() == 32);

pub(super) const NVML_ERROR_FUNCTION_NOT_FOUND: nvmlReturn_t = 13;

/// The cgroup for the query. Any cgroup serves, because only a missing function means that the
/// driver has no limits. NVML returns NOT_SUPPORTED both for a GPU without limits and for a cgroup
/// without a limit. Only setting a limit distinguishes these two.
const CGROUP: &CStr = c"/sys/fs/cgroup";

/// The kernel's list of the memory that its dmem controller limits, in the root cgroup's folder.
const CAPACITY: &str = "dmem.capacity";

/// The start of the name of a region of NVIDIA's driver: `nvidia/0000:01:00.0/vidmem`.
const REGION: &str = "nvidia/";

/// How a driver that has limits holds them: by the dmem controller if it has registered a region
/// there, otherwise by its own table. None: a simulated machine has no folder in which to look.
pub(crate) fn backend() -> Option<DriverLimit> {
    let is_simulated = env::var_os(sim::SIM).is_some_and(|machine| !machine.is_empty());
    let folder = match is_simulated {
        true => PathBuf::from(env::var_os(sim::STATE)?),
        false => cgroups::mount()?.to_owned(),
    };
    let regions = fs::read_to_string(folder.join(CAPACITY)).unwrap_or_default();
    let is_listed = regions.lines().any(|line| line.starts_with(REGION));
    Some(match is_listed {
        true => DriverLimit::Dmem,
        false => DriverLimit::Misc,
    })
}

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
        let mut limits = nvmlGetMemoryLimits_v1_t::of(CGROUP);
        // SAFETY: the handle is passed only to NVML, and only while `device` lives.
        let handle = unsafe { device.handle() };
        // SAFETY: NVML is initialised, the handle is its own, and the struct holds a C string.
        let code = unsafe { (self.get)(handle.cast(), &raw mut limits) };
        code != NVML_ERROR_FUNCTION_NOT_FOUND
    }
}
