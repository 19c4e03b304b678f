//! Starting, stopping, versions, error texts, process names.
//! Touches: /proc/PID/cmdline of a process whose name is queried.

use crate::abi::*;
use crate::gate::{initialise, machine, shut_down};
use std::ffi::c_char;

nvml! {
    fn nvmlInit() {
        initialise()
    }

    fn nvmlInit_v2() {
        initialise()
    }

    fn nvmlInitWithFlags(_flags: u32) {
        initialise()
    }

    fn nvmlShutdown() {
        shut_down()
    }

    fn nvmlSystemGetDriverVersion(text: Out<u8>, len: u32) {
        set_string(text, len, &machine()?.scenario.driver)
    }

    fn nvmlSystemGetNVMLVersion(text: Out<u8>, len: u32) {
        set_string(text, len, &machine()?.scenario.nvml_version())
    }

    fn nvmlSystemGetCudaDriverVersion(version: Out<i32>) {
        version.set(machine()?.scenario.cuda)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) {
        version.set(machine()?.scenario.cuda)
    }

    fn nvmlSystemGetProcessName(pid: u32, text: Out<u8>, len: u32) {
        machine()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| NOT_FOUND)?;
        let name = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        set_text(text, i32::try_from(len).unwrap_or(i32::MAX), &name)
    }
}

/// The one function that returns a string.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: nvmlReturn_t) -> *const c_char {
    let text = match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        20 => c"Insufficient Memory",
        23 => c"Insufficient Resources",
        25 => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
