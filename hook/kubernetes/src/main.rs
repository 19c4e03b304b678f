//! gpuslice-dra: the DRA driver of a node.
//! Touches: the command line and standard error, and what the library touches.

use clap::Parser;
use gpuslice_dra::base::log;
use gpuslice_dra::base::settings::{Settings, Verb};
use gpuslice_dra::ready::state;
use gpuslice_dra::serve;
use std::process::ExitCode;

fn main() -> ExitCode {
    let settings = Settings::parse();
    let done = match settings.verb {
        Some(Verb::Ready) => state::read(&settings.ready_file()).map_err(anyhow::Error::msg),
        None => run(settings),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::line(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(settings: Settings) -> anyhow::Result<()> {
    // One thread is enough for a node's claims, and each thread would have memory of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve::serve(settings))
}
