//! Lists CUDA's devices for the inventory.
//! Touches: libcuda.so.1, which stays loaded in this process.

use libloading::Library;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int, c_uint};

/// A device, as CUDA reports it.
#[derive(Clone, Debug)]
pub(crate) struct CudaDevice {
    /// The sixteen bytes of its uuid; on a GPU that MIG divides, the instance's uuid.
    pub uuid: [u8; 16],
    /// Its name.
    pub name: String,
    /// Its total memory in bytes.
    pub total: u64,
    /// `CU_DEVICE_ATTRIBUTE_INTEGRATED`.
    pub integrated: bool,
}

/// Reasons why there is no list.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum CudaError {
    /// There is no driver.
    #[error("no NVIDIA driver here: libcuda.so.1 cannot be loaded ({0})")]
    NoLibrary(String),
    /// A driver that lacks a function every driver has.
    #[error("libcuda.so.1 is not a CUDA driver: it has no {0}")]
    NoFunction(String),
    /// The driver returned an error.
    #[error("the NVIDIA driver does not work: {call} returns {code} ({meaning})")]
    Refused {
        /// The function that was called.
        call: String,
        /// The error code.
        code: i32,
        /// The error's meaning.
        meaning: String,
    },
}

type CUresult = c_int;
type CUdevice = c_int;

const CUDA_SUCCESS: CUresult = 0;
const CU_DEVICE_ATTRIBUTE_INTEGRATED: c_int = 18;

struct Driver {
    library: Library,
}

impl Driver {
    fn load() -> Result<Driver, CudaError> {
        // SAFETY: this process exists to run the driver's initialisers; if they crash, only it
        // ends.
        let library = unsafe { Library::new("libcuda.so.1") };
        library
            .map(|library| Driver { library })
            .map_err(|error| CudaError::NoLibrary(error.to_string()))
    }

    fn function<T: Copy>(&self, name: &str) -> Result<T, CudaError> {
        // SAFETY: every caller passes the C type that cuda.h declares for `name`. `list` owns both
        // the library and the pointer, so the library stays loaded until the pointer's last use.
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        symbol
            .map(|symbol| *symbol)
            .map_err(|_| CudaError::NoFunction(name.to_owned()))
    }

    fn checked(&self, call: &str, code: CUresult) -> Result<(), CudaError> {
        if code == CUDA_SUCCESS {
            return Ok(());
        }
        Err(CudaError::Refused {
            call: call.to_owned(),
            code,
            meaning: self.meaning(code),
        })
    }

    fn meaning(&self, code: CUresult) -> String {
        type GetErrorName = unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult;
        let mut name = std::ptr::null();
        let Ok(get_error_name) = self.function::<GetErrorName>("cuGetErrorName") else {
            return "no name for it".to_owned();
        };
        // SAFETY: cuGetErrorName writes one pointer to a constant of the library, or null.
        if unsafe { get_error_name(code, &raw mut name) } != CUDA_SUCCESS || name.is_null() {
            return "no name for it".to_owned();
        }
        // SAFETY: the pointer is not null, so it is that constant, which ends in a zero byte.
        unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned()
    }
}

/// Lists CUDA's devices, in the order of their ordinals.
///
/// # Errors
/// When there is no driver, or it does not work.
pub(crate) fn list() -> Result<Vec<CudaDevice>, CudaError> {
    type Init = unsafe extern "C" fn(c_uint) -> CUresult;
    type GetCount = unsafe extern "C" fn(*mut c_int) -> CUresult;
    let driver = Driver::load()?;
    let init = driver.function::<Init>("cuInit")?;
    // SAFETY: cuInit takes no pointers, and 0 is its only argument.
    driver.checked("cuInit", unsafe { init(0) })?;
    let get_count = driver.function::<GetCount>("cuDeviceGetCount")?;
    let mut count = 0;
    // SAFETY: cuDeviceGetCount writes one int.
    driver.checked("cuDeviceGetCount", unsafe { get_count(&raw mut count) })?;
    (0..count).map(|ordinal| driver.device(ordinal)).collect()
}

impl Driver {
    fn device(&self, ordinal: c_int) -> Result<CudaDevice, CudaError> {
        type Get = unsafe extern "C" fn(*mut CUdevice, c_int) -> CUresult;
        type GetUuid = unsafe extern "C" fn(*mut [u8; 16], CUdevice) -> CUresult;
        type GetName = unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> CUresult;
        type TotalMem = unsafe extern "C" fn(*mut usize, CUdevice) -> CUresult;
        type GetAttribute = unsafe extern "C" fn(*mut c_int, c_int, CUdevice) -> CUresult;

        let mut device = 0;
        let get = self.function::<Get>("cuDeviceGet")?;
        // SAFETY: cuDeviceGet writes one CUdevice.
        self.checked("cuDeviceGet", unsafe { get(&raw mut device, ordinal) })?;

        let mut uuid = [0u8; 16];
        // Only `_v2` returns the uuid of a MIG instance. Drivers before 11.4 do not have it.
        let get_uuid = self
            .function::<GetUuid>("cuDeviceGetUuid_v2")
            .or_else(|_| self.function("cuDeviceGetUuid"))?;
        // SAFETY: both write the sixteen bytes of a CUuuid.
        self.checked("cuDeviceGetUuid", unsafe {
            get_uuid(&raw mut uuid, device)
        })?;

        let mut name = [0u8; 256];
        let get_name = self.function::<GetName>("cuDeviceGetName")?;
        // SAFETY: cuDeviceGetName writes at most 255 bytes and the terminating zero.
        self.checked("cuDeviceGetName", unsafe {
            get_name(name.as_mut_ptr().cast(), 255, device)
        })?;

        let mut total = 0usize;
        let total_mem = self.function::<TotalMem>("cuDeviceTotalMem_v2")?;
        // SAFETY: cuDeviceTotalMem_v2 writes one size_t.
        self.checked("cuDeviceTotalMem_v2", unsafe {
            total_mem(&raw mut total, device)
        })?;

        let mut integrated = 0;
        let get_attribute = self.function::<GetAttribute>("cuDeviceGetAttribute")?;
        // SAFETY: cuDeviceGetAttribute writes one int.
        self.checked("cuDeviceGetAttribute", unsafe {
            get_attribute(&raw mut integrated, CU_DEVICE_ATTRIBUTE_INTEGRATED, device)
        })?;

        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(CudaDevice {
            uuid,
            name: name.to_string_lossy().into_owned(),
            total: total as u64,
            integrated: integrated == 1,
        })
    }
}
