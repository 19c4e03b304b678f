//! `gpuslice-hook`: what an OCI runtime starts.
//! Touches: this process, before anything else; then what `stages` touches.

use gpuslice_oci::arena::Arena;
use gpuslice_oci::{stages, sys};
use std::process::ExitCode;

#[global_allocator]
static ARENA: Arena = Arena::new();

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Err(error) = sys::start_clean() {
        eprintln!("gpuslice: this kernel is too old for gpuslice-hook (5.12 is needed): {error}");
        return ExitCode::from(stages::FAILURE);
    }
    ExitCode::from(stages::main(arguments))
}
