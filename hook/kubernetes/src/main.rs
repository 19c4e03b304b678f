//! gpuslice-dra: the DRA driver of a node.
//! Touches: the command line and standard error, and what the library touches.

use anyhow::Context;
use clap::Parser;
use gpuslice_dra::base::log;
use gpuslice_dra::base::settings::{NriOptions, Settings, Verb};
use gpuslice_dra::nri::{self, Plugin, Readiness};
use gpuslice_dra::ready::{
    self,
    state::{self, State},
};
use gpuslice_dra::serve;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let settings = Settings::parse();
    let done = match &settings.verb {
        Some(Verb::Ready { nri: false }) => is_ready(&settings.ready_file()),
        Some(Verb::Ready { nri: true }) => is_ready(&settings.nri_ready_file()),
        Some(Verb::Nri(options)) => plug_in(&settings, options),
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

fn is_ready(file: &Path) -> anyhow::Result<()> {
    state::read(file).map_err(anyhow::Error::msg)
}

/// Serves the engine as an NRI plugin.
fn plug_in(settings: &Settings, options: &NriOptions) -> anyhow::Result<()> {
    std::fs::create_dir_all(settings.folder())
        .with_context(|| format!("cannot make {}", settings.folder().display()))?;
    let state = State::new(settings.nri_ready_file());
    let plugin = Plugin::new(settings.host(), settings.hook.clone());
    let settings = settings.clone();
    let hook = move || ready::hook(&settings);
    nri::serve(options, plugin, Readiness::new(state, hook))
}

fn run(settings: Settings) -> anyhow::Result<()> {
    // One thread is enough for a node's claims, and each thread would have memory of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve::serve(settings))
}
