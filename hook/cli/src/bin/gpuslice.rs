//! The command `gpuslice`.
//! Touches: nothing; see `cli`.
#![no_main]

use std::ffi::{c_char, c_int};

/// The C entry point. Rust's own entry point would set SIGPIPE to "ignore" first. `gpuslice run`
/// executes a program in its place, and that program must inherit the signals as the caller set
/// them.
#[unsafe(no_mangle)]
pub extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    gpuslice_cli::base::stack::with_room(gpuslice_cli::cli::main)
}
