//! The entry point of `gpuslice-hook`, which an OCI runtime starts, and of `gpuslice-runtime`,
//! which starts an OCI runtime.
//! Touches: this process, before anything else; then what the stage touches.

use gpuslice_hook::base::arena::Arena;
use gpuslice_hook::stage;
use gpuslice_hook::wrapper;
use gpuslice_host::base::sys;
use gpuslice_host::engine::runtimes;
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
        return ExitCode::from(stage::FAILURE);
    }
    ExitCode::from(stage::main(arguments))
}
