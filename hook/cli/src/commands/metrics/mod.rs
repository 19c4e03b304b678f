//! `gpuslice metrics`, and what `gpusliced` serves: the numbers of `gpuslice status` as metrics.
//! Touches: everything that `status` touches; standard output, or the file of `--output`.
//! Law: a slice that starts, ends or cannot be read never makes a collection fail.

pub mod compatible;
mod exposition;
pub mod families;
mod machine;
mod slices;

pub use exposition::{Family, Type};

use crate::base::{atomic_write, exit, streams};
use crate::commands::cache::watch::Totals;
use crate::commands::status::driver::Drivers;
use crate::commands::status::process::Processes;
use crate::commands::status::snapshot::Snapshot;
use anyhow::Context;
use exposition::Samples;
use families as family;
use gpuslice_host::base::paths::HostPaths;
use serde::Deserialize;
use slices::Indexes;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// `gpuslice metrics`.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub struct Args {
    /// Write to this file, which is replaced as a whole
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// The format: prometheus, the text format 0.0.4, or openmetrics, version 1.0
    #[arg(long, value_enum, default_value_t = Format::Prometheus, hide_possible_values = true)]
    pub format: Format,

    /// Repeat numbers under the names of another exporter: hami, gpu-sharing
    #[arg(
        long,
        value_name = "EXPORTER",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true
    )]
    pub compatible: Vec<Dialect>,

    /// The hook's folders are below this one (for tests)
    #[arg(long, value_name = "DIR", hide = true)]
    pub root: Option<PathBuf>,
}

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
    /// `OpenMetrics` 1.0.
    Openmetrics,
}

/// An exporter whose names dashboards know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// `HAMi`.
    Hami,
    /// NVIDIA's gpu-sharing operator.
    GpuSharing,
}

const NOTES: &str = "\
The metrics describe the slices that gpuslice status lists: for root, those of all users and all
containers. The handbook's page on metrics names them all, and gpusliced serves them over HTTP.

For the textfile collector of node_exporter, write a file whose name ends in .prom, for example
every 15 seconds by a timer. Prometheus then reports its age as node_textfile_mtime_seconds.

--compatible hami adds hami_vgpu_memory_used_bytes and others, --compatible gpu-sharing adds
gpu_sharing_gpu_memory_used_bytes. Both need no gpuslice label, so that dashboards made for these
exporters show slices.

Exit status: 0 success, also if a slice cannot be read (gpuslice_slice_readable is then 0); 125
usage error, or the file cannot be written.

Examples:
  gpuslice metrics
  gpuslice metrics --output /var/lib/prometheus/node-exporter/gpuslice.prom
  gpuslice metrics --compatible hami --format openmetrics";

/// Collects metrics, as often as they are wanted.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    places: HostPaths,
    compatible: Vec<Dialect>,
    drivers: Drivers,
    indexes: Indexes,
}

impl Collector {
    /// A collector for the hook's folders at these places.
    pub(crate) fn new(places: HostPaths, compatible: Vec<Dialect>) -> Collector {
        Collector {
            places,
            compatible,
            ..Collector::default()
        }
    }

    /// Collects the metrics, and returns them as `OpenMetrics`. `cache` has the daemon's numbers.
    ///
    /// # Errors
    /// Never: a text in memory can be written.
    pub(crate) fn openmetrics(&mut self, cache: Option<Totals>) -> anyhow::Result<String> {
        let start = Instant::now();
        let mut samples = Samples::default();
        let labels = |version: &str| Arc::new(vec![("version", version.to_owned())]);
        samples.add(
            &family::BUILD_INFO,
            &labels(env!("CARGO_PKG_VERSION")),
            true,
        );
        let snapshot = Snapshot::take(&self.places, &Processes::default(), &mut self.drivers);
        machine::remember(&mut self.indexes, &snapshot.cards);
        machine::add_warnings(&mut samples, &snapshot);
        slices::add(&mut samples, &snapshot.slices, &self.indexes);
        machine::add_cards(&mut samples, &snapshot.cards);
        machine::add_host(&mut samples, &self.places, &snapshot);
        machine::add_guard(&mut samples, &self.places);
        for dialect in &self.compatible {
            compatible::add(&mut samples, *dialect, &snapshot, &self.indexes);
        }
        let none = Arc::default();
        if let Some(totals) = cache {
            samples.add(&family::CACHE_DROPPED, &none, totals.dropped);
            samples.add(&family::CACHE_DROPS, &none, totals.drops);
            samples.add(&family::CACHE_KEPT, &none, totals.kept);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        samples.add(
            &family::COLLECTED,
            &none,
            now.unwrap_or_default().as_secs_f64(),
        );
        samples.add(&family::COLLECTION, &none, start.elapsed().as_secs_f64());
        samples.openmetrics().context("cannot write the metrics")
    }
}

/// Returns `OpenMetrics` in another format.
pub(crate) fn in_format(openmetrics: String, format: Format) -> String {
    match format {
        Format::Openmetrics => openmetrics,
        Format::Prometheus => exposition::prometheus_text(&openmetrics),
    }
}

/// Collects the metrics once.
///
/// # Errors
/// When they cannot be written.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let places = args.root.as_ref().map(HostPaths::below).unwrap_or_default();
    let mut collector = Collector::new(places, args.compatible.clone());
    let text = in_format(collector.openmetrics(None)?, args.format);
    match &args.output {
        // A file of this minute need not survive a power failure.
        Some(path) => {
            atomic_write::replace_with(path, text.as_bytes(), atomic_write::Durability::Cached)?;
        }
        None => streams::print(text.as_bytes())?,
    }
    Ok(exit::SUCCESS)
}
