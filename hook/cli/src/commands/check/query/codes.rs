//! The vendor's names of the errors that memory queries return.
//! Touches: nothing.

use std::ffi::c_int;

const CUDA: [(c_int, &str); 21] = [
    (1, "CUDA_ERROR_INVALID_VALUE"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY"),
    (3, "CUDA_ERROR_NOT_INITIALIZED"),
    (4, "CUDA_ERROR_DEINITIALIZED"),
    (34, "CUDA_ERROR_STUB_LIBRARY"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (100, "CUDA_ERROR_NO_DEVICE"),
    (101, "CUDA_ERROR_INVALID_DEVICE"),
    (201, "CUDA_ERROR_INVALID_CONTEXT"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (304, "CUDA_ERROR_OPERATING_SYSTEM"),
    (500, "CUDA_ERROR_NOT_FOUND"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
    (800, "CUDA_ERROR_NOT_PERMITTED"),
    (801, "CUDA_ERROR_NOT_SUPPORTED"),
    (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
    (805, "CUDA_ERROR_MPS_CONNECTION_FAILED"),
    (999, "CUDA_ERROR_UNKNOWN"),
];

const CUDART: [(c_int, &str); 12] = [
    (1, "cudaErrorInvalidValue"),
    (2, "cudaErrorMemoryAllocation"),
    (3, "cudaErrorInitializationError"),
    (4, "cudaErrorCudartUnloading"),
    (35, "cudaErrorInsufficientDriver"),
    (36, "cudaErrorCallRequiresNewerDriver"),
    (46, "cudaErrorDevicesUnavailable"),
    (100, "cudaErrorNoDevice"),
    (101, "cudaErrorInvalidDevice"),
    (500, "cudaErrorSymbolNotFound"),
    (801, "cudaErrorNotSupported"),
    (999, "cudaErrorUnknown"),
];

const NVML: [(c_int, &str); 15] = [
    (1, "NVML_ERROR_UNINITIALIZED"),
    (2, "NVML_ERROR_INVALID_ARGUMENT"),
    (3, "NVML_ERROR_NOT_SUPPORTED"),
    (4, "NVML_ERROR_NO_PERMISSION"),
    (6, "NVML_ERROR_NOT_FOUND"),
    (7, "NVML_ERROR_INSUFFICIENT_SIZE"),
    (9, "NVML_ERROR_DRIVER_NOT_LOADED"),
    (10, "NVML_ERROR_TIMEOUT"),
    (12, "NVML_ERROR_LIBRARY_NOT_FOUND"),
    (13, "NVML_ERROR_FUNCTION_NOT_FOUND"),
    (15, "NVML_ERROR_GPU_IS_LOST"),
    (17, "NVML_ERROR_OPERATING_SYSTEM"),
    (18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
    (25, "NVML_ERROR_ARGUMENT_VERSION_MISMATCH"),
    (999, "NVML_ERROR_UNKNOWN"),
];

/// The prefixes of errors without a known name. The error's number follows.
const KINDS: [&str; 3] = ["CUresult", "cudaError", "nvmlReturn"];

/// Returns Ok for success, or the name of a CUDA error.
pub(crate) fn cuda(code: c_int) -> Result<(), String> {
    named(code, &CUDA, "CUresult")
}

/// Returns Ok for success, or the name of a libcudart error.
pub(crate) fn cudart(code: c_int) -> Result<(), String> {
    named(code, &CUDART, "cudaError")
}

/// Returns Ok for success, or the name of an NVML error.
pub(crate) fn nvml(code: c_int) -> Result<(), String> {
    named(code, &NVML, "nvmlReturn")
}

/// Formats the error as its number and, if it has one, its name. Users search for either.
fn with_number(error: &str) -> String {
    let mut known = CUDA.iter().chain(&CUDART).chain(&NVML);
    known
        .find(|(_, name)| *name == error)
        .map_or_else(|| error.to_owned(), |(code, _)| format!("{code} ({error})"))
}

/// Checks whether the text is `call: ERROR`, with the vendor's name or number of an error.
pub(crate) fn is_named(why: &str) -> bool {
    let Some((_, error)) = why.rsplit_once(": ") else {
        return false;
    };
    let mut known = CUDA.iter().chain(&CUDART).chain(&NVML);
    let numbered = KINDS.iter().any(|kind| error.starts_with(kind));
    numbered || known.any(|(_, name)| *name == error)
}

/// Formats a failed call as a sentence: `cuInit returns 100 (CUDA_ERROR_NO_DEVICE)`.
pub(crate) fn answers(why: &str) -> String {
    match why.split_once(": ") {
        Some((call, error)) => format!("{call} returns {}", with_number(error)),
        None => why.to_owned(),
    }
}

/// Checks whether a libcudart reports that it needs a newer driver than the installed one.
pub(crate) fn is_newer_than_driver(why: &str) -> bool {
    [35, 36].iter().any(|code| {
        let name = CUDART.iter().find(|(known, _)| known == code);
        name.is_some_and(|(_, name)| why.ends_with(name))
    })
}

fn named(code: c_int, names: &[(c_int, &str)], kind: &str) -> Result<(), String> {
    if code == 0 {
        return Ok(());
    }
    Err(names
        .iter()
        .find(|(known, _)| *known == code)
        .map_or_else(|| format!("{kind} {code}"), |(_, name)| (*name).to_owned()))
}
