//! OpenCL in a slice: its clients and loaders, what they allocate, and drivers of other vendors.
//! Touches: OpenCL programs in slices of simulated machines, and PoCL, which computes on the
//! processor.

mod foreign;
mod memory;
mod readers;

use gpuslice_suite::run::Run;
use gpuslice_suite::worker::{Counted, Worker};
use gpuslice_suite::{compile, place};
use std::path::PathBuf;

/// The folder that names the simulated driver to OpenCL's loaders.
fn vendors() -> PathBuf {
    place::sim().join("OpenCL/vendors")
}

/// An OpenCL program that finds the simulated driver and no other.
fn on_the_card(run: Run) -> Run {
    run.env("OCL_ICD_VENDORS", vendors())
}

/// The value that `clinfo --raw` prints for a device's fact.
fn fact<'a>(said: &'a str, name: &str) -> &'a str {
    let line = said
        .lines()
        .find(|line| line.contains(&format!(" {name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in {said}"));
    line.split_whitespace().last().unwrap_or_default()
}

/// The program that runs operations on memory.
fn client() -> PathBuf {
    compile::c("opencl")
}

/// The same program, which takes its operations one by one. It opens the driver as `from` says.
pub(crate) fn worker(slice: &Counted, from: &str) -> Worker {
    Worker::start(on_the_card(slice.run(client())).arg(from))
}

/// Like [`worker`], with a context of all devices.
pub(crate) fn worker_of_all(slice: &Counted, from: &str) -> Worker {
    let run = on_the_card(slice.run(client())).env("OPENCL_ALL_DEVICES", "1");
    Worker::start(run.arg(from))
}
