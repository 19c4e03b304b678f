//! Starting, versions, error texts.
//! Touches: nothing but the driver.

use crate::abi::{CUresult, INVALID_VALUE, Out};
use crate::driver;
use std::ffi::c_char;

cuda! {
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        driver::initialise()
    }

    fn cuDriverGetVersion(version: Out<i32>) {
        version.set(driver::machine()?.scenario.cuda)
    }

    fn cuGetErrorName(code: CUresult, text: Out<*const c_char>) {
        describe(code, text, |known| known.1)
    }

    fn cuGetErrorString(code: CUresult, text: Out<*const c_char>) {
        describe(code, text, |known| known.2)
    }

    fn cuProfilerStart() {
        Ok(())
    }

    fn cuProfilerStop() {
        Ok(())
    }
}

type Known = (CUresult, &'static std::ffi::CStr, &'static std::ffi::CStr);

fn describe(
    code: CUresult,
    text: Out<*const c_char>,
    pick: fn(&Known) -> &'static std::ffi::CStr,
) -> Result<(), CUresult> {
    match ERRORS.iter().find(|known| known.0 == code) {
        Some(known) => text.set(pick(known).as_ptr()),
        None => {
            text.set(std::ptr::null())?;
            Err(INVALID_VALUE)
        }
    }
}

const ERRORS: &[Known] = &[
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
    (
        100,
        c"CUDA_ERROR_NO_DEVICE",
        c"no CUDA-capable device is detected",
    ),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (
        200,
        c"CUDA_ERROR_INVALID_IMAGE",
        c"device kernel image is invalid",
    ),
    (
        201,
        c"CUDA_ERROR_INVALID_CONTEXT",
        c"invalid device context",
    ),
    (
        400,
        c"CUDA_ERROR_INVALID_HANDLE",
        c"invalid resource handle",
    ),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (
        708,
        c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
        c"cannot set while device is active in this process",
    ),
    (
        709,
        c"CUDA_ERROR_CONTEXT_IS_DESTROYED",
        c"context is destroyed",
    ),
    (
        712,
        c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        c"part or all of the requested memory range is already mapped",
    ),
    (
        713,
        c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        c"pointer does not correspond to a registered memory region",
    ),
    (
        719,
        c"CUDA_ERROR_LAUNCH_FAILED",
        c"unspecified launch failure",
    ),
    (800, c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];
