//! The child process that sets limits of a cgroup in the driver.
//! Touches: libnvidia-ml.so.1, which may hang or crash and is therefore loaded in a child process;
//! standard output.
#![expect(non_snake_case, reason = "the vendor's names")]

use super::ask::{self, AskError};
use super::limits::{
    self, Get, NVML_ERROR_FUNCTION_NOT_FOUND, nvmlDevice_t, nvmlGetMemoryLimits_v1_t, nvmlReturn_t,
};
use crate::base::exit;
use clap::ValueEnum;
use gpuslice_config::slice::DriverLimit;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use libloading::Library;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::fmt;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// `gpuslice driver-limit-probe`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The cgroup.
    pub cgroup: PathBuf,
    /// The limits: UUID=HARD=SOFT, in bytes.
    pub limits: Vec<Limit>,
    /// The treatment of other limits.
    #[arg(long, value_enum)]
    pub beside: Beside,
}

/// The treatment of limits that are already set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// Lower limits of the cgroup stay.
    KeepLower,
    /// The limits of the cgroup are replaced.
    Replace,
    /// No limit is set if a cgroup above has one: by the driver's own table, a new limit below would
    /// stand in place of that one.
    NoneAbove,
}

/// The limits of a cgroup on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The GPU.
    pub uuid: DeviceUuid,
    /// The hard limit.
    pub hard: Bytes,
    /// The soft limit.
    pub soft: Bytes,
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limit { uuid, hard, soft } = self;
        write!(out, "{uuid}={}={}", hard.get(), soft.get())
    }
}

impl FromStr for Limit {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Limit, &'static str> {
        let mut parts = text.split('=');
        let uuid = parts.next().and_then(|uuid| uuid.parse().ok());
        let mut bytes = || Some(Bytes::new(parts.next()?.parse().ok()?));
        let limit = uuid.and_then(|uuid| {
            Some(Limit {
                uuid,
                hard: bytes()?,
                soft: bytes()?,
            })
        });
        limit.ok_or("not UUID=HARD=SOFT")
    }
}

/// The child's answer, as one line of JSON.
pub(crate) type Answer = Result<Held, LimitError>;

/// The limits in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// The hard limits in bytes, in the order of the question.
    pub(crate) hard: Vec<u64>,
    /// How the driver holds them.
    pub(crate) backend: Option<DriverLimit>,
}

/// Sets limits of a cgroup.
///
/// # Errors
/// When the driver does not answer.
pub(crate) fn ask(
    cgroup: &Path,
    limits: &[Limit],
    beside: Beside,
    vars: &[(OsString, OsString)],
) -> Result<Answer, AskError> {
    with_arguments(cgroup, limits, beside, |arguments| {
        ask::child(arguments, vars, WHY).map(|(answer, _)| answer)
    })
}

/// Like [`ask()`], without messages and with a short time limit. A driver that did not answer in that
/// time may still set the limits.
///
/// # Errors
/// When the driver does not answer in that time.
pub(crate) fn ask_within(
    cgroup: &Path,
    limits: &[Limit],
    beside: Beside,
    vars: &[(OsString, OsString)],
    patience: Duration,
) -> Result<Answer, AskError> {
    with_arguments(cgroup, limits, beside, |arguments| {
        ask::child_within(arguments, vars, WHY, patience)
    })
}

const WHY: &str = "setting the limit of a cgroup";

fn with_arguments<T>(
    cgroup: &Path,
    limits: &[Limit],
    beside: Beside,
    ask: impl FnOnce(&[&OsStr]) -> T,
) -> T {
    let limits: Vec<OsString> = limits.iter().map(|it| it.to_string().into()).collect();
    let mut arguments = vec![OsStr::new("driver-limit-probe"), cgroup.as_os_str()];
    arguments.extend(limits.iter().map(OsString::as_os_str));
    let beside = beside.to_possible_value();
    let beside = format!(
        "--beside={}",
        beside.as_ref().map_or("", |it| it.get_name())
    );
    arguments.push(beside.as_ref());
    ask(&arguments)
}

/// Reasons why no limit was set.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum LimitError {
    /// There is no driver.
    #[error("no NVIDIA driver here: libnvidia-ml.so.1 cannot be loaded ({0})")]
    NoLibrary(String),
    /// The driver does not support limits, or does not support them for this GPU.
    #[error("the driver has no limits per cgroup ({0}): the library alone enforces the slice")]
    NotThere(String),
    /// The driver has accepted a limit, and reports another one or none.
    #[error("the driver accepts the limit of the cgroup, and then reports {0}")]
    NotInForce(String),
    /// A cgroup above has a limit of the driver.
    #[error("the cgroup {0} has a limit of the driver, which a limit below it could replace")]
    Above(PathBuf),
    /// The driver refused the limit.
    #[error("the driver refuses the limit: {call} returns {code} ({meaning})")]
    Refused {
        /// The function that was called.
        call: String,
        /// The error code.
        code: u32,
        /// The error's meaning.
        meaning: String,
    },
}

const NVML_SUCCESS: nvmlReturn_t = 0;
const NVML_ERROR_NOT_SUPPORTED: nvmlReturn_t = 3;

/// The vendor's nvmlSetMemoryLimits_v1_t.
#[repr(C)]
struct nvmlSetMemoryLimits_v1_t {
    cgroup: *const c_char,
    softLimit: u64,
    hardLimit: u64,
}

const _: () = assert!(size_of::<nvmlSetMemoryLimits_v1_t>() == 24);

const SET: &str = "nvmlDeviceSetMemoryLimits_v1";
const GET: &str = "nvmlDeviceGetMemoryLimits_v1";

/// Sets the limits and prints the answer.
///
/// # Errors
/// When the answer cannot be written.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let answer: Answer = set_all(args);
    let mut out = std::io::stdout();
    writeln!(out, "\n{}", serde_json::to_string(&answer)?)?;
    out.flush()?;
    Ok(exit::SUCCESS)
}

fn set_all(args: &Args) -> Answer {
    type Init = unsafe extern "C" fn() -> nvmlReturn_t;
    type ByUuid = unsafe extern "C" fn(*const c_char, *mut nvmlDevice_t) -> nvmlReturn_t;
    type Set = unsafe extern "C" fn(nvmlDevice_t, *const nvmlSetMemoryLimits_v1_t) -> nvmlReturn_t;

    let nvml = Nvml::load()?;
    let init = nvml.function::<Init>("nvmlInit_v2")?;
    let by_uuid = nvml.function::<ByUuid>("nvmlDeviceGetHandleByUUID")?;
    let set = nvml.function::<Set>(SET)?;
    let get = nvml.function::<Get>(GET)?;
    let text = |text: &[u8]| {
        CString::new(text).map_err(|_| nvml.refused("the name", NVML_ERROR_NOT_SUPPORTED))
    };
    let cgroup = text(args.cgroup.as_os_str().as_bytes())?;
    // SAFETY: nvmlInit_v2 takes no arguments.
    nvml.checked("nvmlInit_v2", unsafe { init() })?;
    let limits_of = |device: nvmlDevice_t, cgroup: &CStr| {
        let mut limits = nvmlGetMemoryLimits_v1_t::of(cgroup);
        // SAFETY: NVML has returned the handle. The struct's C string outlives it.
        let code = unsafe { get(device, &raw mut limits) };
        (code == NVML_SUCCESS).then_some(limits)
    };
    let limit_one = |wanted: &Limit| {
        let uuid = text(wanted.uuid.to_string().as_bytes())?;
        let mut device = std::ptr::null_mut();
        // SAFETY: the uuid is a C string, and `device` has room for the handle that NVML writes.
        let code = unsafe { by_uuid(uuid.as_ptr(), &raw mut device) };
        nvml.checked("nvmlDeviceGetHandleByUUID", code)?;
        // Another program, such as NVIDIA's container toolkit, may have limited the cgroup before.
        // The lower hard limit stays in force, and so does an earlier guarantee. NVML reports no
        // limits both where none are set and where the driver supports none; setting one tells.
        let current = || limits_of(device, &cgroup);
        if args.beside == Beside::NoneAbove {
            for above in args.cgroup.ancestors().skip(1) {
                let path = text(above.as_os_str().as_bytes())?;
                if above.join("cgroup.procs").exists() && limits_of(device, &path).is_some() {
                    return Err(LimitError::Above(above.to_owned()));
                }
            }
        }
        let before = current().filter(|_| args.beside != Beside::Replace);
        let (softer, harder) = before.map_or((0, u64::MAX), |it| (it.softLimit, it.hardLimit));
        let hard = wanted.hard.get().min(harder);
        let limits = nvmlSetMemoryLimits_v1_t {
            cgroup: cgroup.as_ptr(),
            softLimit: wanted.soft.get().max(softer).min(hard),
            hardLimit: hard,
        };
        // SAFETY: NVML has just returned the handle. The struct's C string outlives it.
        nvml.checked(SET, unsafe { set(device, &raw const limits) })?;
        match current().map(|it| it.hardLimit) {
            Some(in_force) if in_force <= hard => Ok(hard),
            Some(other) => Err(LimitError::NotInForce(Bytes::new(other).to_string())),
            None => Err(LimitError::NotInForce("none".to_owned())),
        }
    };
    let hard = args
        .limits
        .iter()
        .map(limit_one)
        .collect::<Result<_, _>>()?;
    Ok(Held {
        hard,
        backend: limits::backend(),
    })
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
            return LimitError::NotThere(format!("{call} returns {code}"));
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
