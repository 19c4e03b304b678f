//! The command `gpuslice`.
//! Touches: nothing; see `cli`.
#![no_main]

use std::ffi::{c_char, c_int};

/// The C entry point. Rust's own would set SIGPIPE to "ignore" before anything else runs, and a
/// program that `gpuslice run` becomes must find the signals as the caller left them.
#[unsafe(no_mangle)]
pub extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    gpuslice_cli::base::stack::with_room(gpuslice_cli::cli::main)
}
