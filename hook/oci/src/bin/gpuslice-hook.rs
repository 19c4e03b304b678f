//! The entry point of `gpuslice-hook`, which an OCI runtime starts, and of `gpuslice-runtime`,
//! which starts an OCI runtime.
//! Touches: this process, before anything else; then what `stages` touches.

use gpuslice_hook::arena::Arena;
use gpuslice_hook::{runtimes, stages, sys, wrapper};
use std::process::ExitCode;

#[global_allocator]
static ARENA: Arena = Arena::new();

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    if runtimes::is_wrapper(name.as_deref()) {
        return ExitCode::from(wrapper::main(arguments));
    }
    let arguments: Vec<_> = arguments.collect();
    if let Err(error) = sys::start_clean() {
        eprintln!("gpuslice: this kernel is too old for gpuslice-hook (5.12 is needed): {error}");
        return ExitCode::from(stages::FAILURE);
    }
    ExitCode::from(stages::main(arguments))
}
