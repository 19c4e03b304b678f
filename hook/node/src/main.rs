//! The entry point of `gpuslice-node`, which the pods of the Helm chart start.
//! Touches: this process, then what the command touches.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(gpuslice_node::main(std::env::args_os().skip(1)))
}
