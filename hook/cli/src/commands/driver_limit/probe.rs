//! The child process that sets a limit in the driver.
//! Touches: libnvidia-ml.so.1, which may hang or crash and is therefore loaded in a child process;
//! standard output.
#![expect(non_camel_case_types, non_snake_case, reason = "the vendor's names")]

use crate::base::exit;
use libloading::Library;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// `gpuslice driver-limit-probe`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The cgroup.
    pub cgroup: PathBuf,
    /// The GPU.
    pub device: String,
    /// The hard limit in bytes.
    pub limit: u64,
    /// The soft limit in bytes.
    pub guarantee: u64,
    /// A lower hard limit of this size is replaced.
    pub replaced: u64,
}

/// The child's answer, as one line of JSON: the hard limit in force.
pub(crate) type Answer = Result<u64, LimitError>;

/// Reasons why no limit was set.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum LimitError {
    /// There is no driver.
    #[error("no NVIDIA driver here: libnvidia-ml.so.1 cannot be loaded ({0})")]
    NoLibrary(String),
    /// The driver does not support limits, or does not support them for this GPU.
    #[error("the driver has no limits per cgroup ({0}): the library alone enforces the slice")]
    NotThere(String),
    /// The driver refused the limit.
    #[error("the driver refuses the limit: {call} answers {code} ({meaning})")]
    Refused {
        /// The function that was called.
        call: String,
        /// The error code.
        code: u32,
        /// The error's meaning.
        meaning: String,
    },
}

type nvmlReturn_t = c_uint;
type nvmlDevice_t = *mut c_void;

const NVML_SUCCESS: nvmlReturn_t = 0;
const NVML_ERROR_NOT_SUPPORTED: nvmlReturn_t = 3;
const NVML_ERROR_FUNCTION_NOT_FOUND: nvmlReturn_t = 13;

/// The vendor's nvmlSetMemoryLimits_v1_t.
#[repr(C)]
struct nvmlSetMemoryLimits_v1_t {
    cgroup: *const c_char,
    softLimit: u64,
    hardLimit: u64,
}

const _: () = assert!(size_of::<nvmlSetMemoryLimits_v1_t>() == 24);

/// The vendor's nvmlGetMemoryLimits_v1_t.
#[repr(C)]
struct nvmlGetMemoryLimits_v1_t {
    cgroup: *const c_char,
    softLimit: u64,
    hardLimit: u64,
    currentUsed: u64,
}

const _: () = assert!(size_of::<nvmlGetMemoryLimits_v1_t>() == 32);

const SET: &str = "nvmlDeviceSetMemoryLimits_v1";
const GET: &str = "nvmlDeviceGetMemoryLimits_v1";

/// Sets the limit and prints the answer.
///
/// # Errors
/// When the answer cannot be written.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let answer: Answer = set(args);
    let mut out = std::io::stdout();
    writeln!(out, "\n{}", serde_json::to_string(&answer)?)?;
    out.flush()?;
    Ok(exit::SUCCESS)
}

fn set(args: &Args) -> Answer {
    type Init = unsafe extern "C" fn() -> nvmlReturn_t;
    type ByUuid = unsafe extern "C" fn(*const c_char, *mut nvmlDevice_t) -> nvmlReturn_t;
    type Set = unsafe extern "C" fn(nvmlDevice_t, *const nvmlSetMemoryLimits_v1_t) -> nvmlReturn_t;
    type Get = unsafe extern "C" fn(nvmlDevice_t, *mut nvmlGetMemoryLimits_v1_t) -> nvmlReturn_t;

    let nvml = Nvml::load()?;
    let init = nvml.function::<Init>("nvmlInit_v2")?;
    let by_uuid = nvml.function::<ByUuid>("nvmlDeviceGetHandleByUUID")?;
    let limit = nvml.function::<Set>(SET)?;
    let text = |text: &[u8]| {
        CString::new(text).map_err(|_| nvml.refused("the name", NVML_ERROR_NOT_SUPPORTED))
    };
    let cgroup = text(args.cgroup.as_os_str().as_bytes())?;
    let uuid = text(args.device.as_bytes())?;
    // SAFETY: nvmlInit_v2 takes no arguments.
    nvml.checked("nvmlInit_v2", unsafe { init() })?;
    let mut device = std::ptr::null_mut();
    // SAFETY: the uuid is a C string, and `device` has room for the handle that NVML writes.
    let code = unsafe { by_uuid(uuid.as_ptr(), &raw mut device) };
    nvml.checked("nvmlDeviceGetHandleByUUID", code)?;
    // Another program, such as NVIDIA's container toolkit, may have limited the cgroup before. The
    // lower hard limit stays in force, and so does an earlier guarantee.
    let mut before = nvmlGetMemoryLimits_v1_t {
        cgroup: cgroup.as_ptr(),
        softLimit: 0,
        hardLimit: u64::MAX,
        currentUsed: 0,
    };
    if let Ok(get) = nvml.function::<Get>(GET) {
        // SAFETY: NVML has just returned the handle. The struct's C string outlives it.
        if unsafe { get(device, &raw mut before) } != NVML_SUCCESS {
            // No limit is set, or the driver does not support limits. Setting one below
            // distinguishes these.
            (before.softLimit, before.hardLimit) = (0, u64::MAX);
        }
    }
    if before.hardLimit == args.replaced {
        before.hardLimit = u64::MAX;
    }
    let hard = args.limit.min(before.hardLimit);
    let limits = nvmlSetMemoryLimits_v1_t {
        cgroup: cgroup.as_ptr(),
        softLimit: args.guarantee.max(before.softLimit).min(hard),
        hardLimit: hard,
    };
    // SAFETY: NVML has just returned the handle. The struct's C string outlives it.
    nvml.checked(SET, unsafe { limit(device, &raw const limits) })?;
    Ok(hard)
}

struct Nvml {
    library: Library,
}

impl Nvml {
    fn load() -> Result<Nvml, LimitError> {
        // SAFETY: this process exists to run the driver's initialisers; if they crash, only it
        // ends.
        let library = unsafe { Library::new("libnvidia-ml.so.1") };
        library
            .map(|library| Nvml { library })
            .map_err(|error| LimitError::NoLibrary(error.to_string()))
    }

    fn function<T: Copy>(&self, name: &str) -> Result<T, LimitError> {
        // SAFETY: every caller passes the C type that nvml.h declares for `name`, and the library
        // stays loaded until the pointer's last use.
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        symbol
            .map(|symbol| *symbol)
            .map_err(|_| LimitError::NotThere(format!("libnvidia-ml.so.1 has no {name}")))
    }

    fn checked(&self, call: &str, code: nvmlReturn_t) -> Result<(), LimitError> {
        match code {
            NVML_SUCCESS => Ok(()),
            _ => Err(self.refused(call, code)),
        }
    }

    fn refused(&self, call: &str, code: nvmlReturn_t) -> LimitError {
        if [NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_FUNCTION_NOT_FOUND].contains(&code) {
            return LimitError::NotThere(format!("{call} answers {code}"));
        }
        LimitError::Refused {
            call: call.to_owned(),
            code,
            meaning: self.meaning(code),
        }
    }

    fn meaning(&self, code: nvmlReturn_t) -> String {
        type ErrorString = unsafe extern "C" fn(nvmlReturn_t) -> *const c_char;
        let Ok(error_string) = self.function::<ErrorString>("nvmlErrorString") else {
            return "no name for it".to_owned();
        };
        // SAFETY: nvmlErrorString takes any code.
        let text = unsafe { error_string(code) };
        if text.is_null() {
            return "no name for it".to_owned();
        }
        // SAFETY: the pointer is not null, so it is a constant of the library, which ends in a zero
        // byte.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }
}
