//! Formats a plan for people and for programs.
//! Touches: its arguments.

use super::engine::{self, Estimate};
use crate::base::text::{columns, escaped_path, printable};
use crate::launch::fit::{Fit, Gpu, SliceFit};
use crate::slice::slices_file::places::{Found, Slices};
use gpuslice_config::words::units::Bytes;
use serde::Serialize;
use std::fmt::Write;

/// A plan. The field order is that of the JSON.
#[derive(Serialize)]
pub(super) struct Report {
    schema: u32,
    pub(super) fits: bool,
    files: Vec<String>,
    devices: Vec<DeviceReport>,
    host: Option<HostReport>,
    slices: Vec<SliceReport>,
}

#[derive(Serialize)]
struct DeviceReport {
    device: String,
    index: u32,
    name: String,
    total: u64,
    unified: bool,
    /// The sum of all limits.
    limits: u64,
    left: u64,
    slices: Vec<LimitReport>,
}

#[derive(Serialize)]
struct LimitReport {
    name: String,
    limit: u64,
    /// Whether the GPU, or the host, has no room for the slice.
    #[serde(skip)]
    is_refused: bool,
}

#[derive(Serialize)]
struct HostReport {
    available: u64,
    reserve: u64,
    left: u64,
}

#[derive(Serialize)]
struct SliceReport {
    name: String,
    file: String,
    line: usize,
    fits: bool,
    overcommits: bool,
    refusal: Option<String>,
    fits_with: Option<u64>,
    warnings: Vec<String>,
    engine: Option<EngineReport>,
    #[serde(skip)]
    estimate: Option<Estimate>,
}

#[derive(Serialize)]
struct EngineReport {
    engine: &'static str,
    /// None if no fraction sizes the cache.
    fraction: Option<f64>,
    of: u64,
    taken: u64,
    weights: Option<u64>,
    cache_at_most: Option<u64>,
    fault: Option<String>,
}

impl Report {
    pub(super) fn new(slices: &Slices, fit: &Fit) -> Report {
        let all: Vec<SliceReport> = slices
            .found
            .iter()
            .zip(&fit.slices)
            .map(|(found, fit)| SliceReport::new(found, fit))
            .collect();
        Report {
            schema: 1,
            fits: all.iter().all(|slice| slice.fits),
            files: slices.files.iter().map(|path| escaped_path(path)).collect(),
            devices: fit
                .gpus
                .iter()
                .map(|gpu| DeviceReport::new(gpu, &slices.found, &fit.slices))
                .collect(),
            host: fit.host.as_ref().map(|host| HostReport {
                available: host.available.get(),
                reserve: host.reserve.get(),
                left: host.left().get(),
            }),
            slices: all,
        }
    }

    pub(super) fn json(&self) -> serde_json::Result<String> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for device in &self.devices {
            device.write(&mut text);
        }
        if let Some(host) = &self.host {
            let [available, reserve, left] =
                [host.available, host.reserve, host.left].map(Bytes::new);
            let _ = writeln!(
                text,
                "host: {available} is available without slices, {reserve} of it stays the host's, \
                 {left} is left\n"
            );
        }
        for slice in &self.slices {
            slice.write(&mut text);
        }
        let estimates = || {
            self.slices
                .iter()
                .filter_map(|slice| slice.estimate.as_ref())
        };
        let is_bound =
            |estimate: &Estimate| estimate.fault.is_none() && estimate.sizing.fraction().is_some();
        if estimates().any(is_bound) {
            text.push_str(ASSUMED);
        }
        text.push_str(&self.verdict());
        text.push('\n');
        text
    }

    fn verdict(&self) -> String {
        let named = |is: fn(&SliceReport) -> bool| {
            let names = self.slices.iter().filter(|slice| is(slice));
            let names: Vec<&str> = names.map(|slice| slice.name.as_str()).collect();
            (!names.is_empty()).then(|| printable(&names.join(", ")))
        };
        let refused = named(|slice| slice.refusal.is_some());
        let unstarted = named(|slice| {
            let fault = slice.estimate.as_ref().map(|estimate| &estimate.fault);
            fault.is_some_and(Option::is_some)
        });
        let faults: Vec<String> = [
            refused.map(|names| format!("does not fit: {names}")),
            unstarted.map(|names| format!("the engine does not start: {names}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        let over = named(|slice| slice.overcommits);
        match (faults.is_empty(), over, self.slices.len()) {
            (_, _, 0) => format!("no slices in {}", self.files.join(" and ")),
            (false, _, _) => faults.join("\n"),
            (true, Some(over), _) => format!("starts only by overcommit: {over}"),
            (true, None, 1) => "the slice fits".to_owned(),
            (true, None, count) => format!("all {count} slices fit"),
        }
    }
}

/// A row of a GPU's table.
fn row(name: &str, amount: String, note: Option<String>) -> Vec<String> {
    let cells = [String::new(), printable(name), amount];
    cells.into_iter().chain(note).collect()
}

/// The assumptions behind the sizes of caches.
const ASSUMED: &str = "\
These are upper bounds, by the arithmetic of vLLM 0.33 and SGLang 0.5: activations, CUDA graphs and
what else an engine allocates before it sizes its cache make the cache smaller.

";

impl DeviceReport {
    fn new(gpu: &Gpu, found: &[Found], fits: &[SliceFit]) -> DeviceReport {
        let sum = gpu.limits.iter();
        let sum = sum.fold(Bytes::ZERO, |sum, (_, limit)| sum.plus(*limit));
        let limits = gpu.limits.iter().filter_map(|(place, limit)| {
            Some(LimitReport {
                name: found.get(*place)?.slice.name().to_owned(),
                limit: limit.get(),
                is_refused: fits.get(*place)?.refusal.is_some(),
            })
        });
        DeviceReport {
            device: gpu.uuid.to_string(),
            index: gpu.index,
            name: gpu.name.clone(),
            total: gpu.total.get(),
            unified: gpu.integrated,
            limits: sum.get(),
            left: gpu.left.get(),
            slices: limits.collect(),
        }
    }

    fn write(&self, text: &mut String) {
        let [total, limits, left] = [self.total, self.limits, self.left].map(Bytes::new);
        let name = printable(&self.name);
        let gpu = match self.device.starts_with("MIG-") {
            true => format!("{} of GPU {}", self.device, self.index),
            false => format!("GPU {}", self.index),
        };
        let _ = writeln!(text, "{gpu} ({name}, {total})");
        let mut rows: Vec<Vec<String>> = self
            .slices
            .iter()
            .map(|slice| {
                let limit = Bytes::new(slice.limit).to_string();
                let note = slice.is_refused.then(|| "no room".to_owned());
                row(&slice.name, limit, note)
            })
            .collect();
        let refused = self.slices.iter().filter(|slice| slice.is_refused);
        let refused = refused.map(|slice| Bytes::new(slice.limit));
        let refused = refused.fold(Bytes::ZERO, Bytes::plus);
        let note = (refused > Bytes::ZERO).then(|| format!("including {refused} without room"));
        if self.slices.len() > 1 {
            rows.push(row("together", limits.to_string(), note));
        }
        rows.push(row("left", left.to_string(), None));
        text.push_str(&columns(&rows));
        text.push('\n');
    }
}

impl SliceReport {
    fn new(found: &Found, fit: &SliceFit) -> SliceReport {
        let slice = &found.slice;
        let shown = fit.shown.as_ref();
        let estimate =
            shown.and_then(|shown| engine::estimate(&slice.command, shown, slice.weights));
        let fault = estimate
            .as_ref()
            .and_then(|estimate| estimate.fault.as_ref());
        SliceReport {
            name: slice.name().to_owned(),
            file: escaped_path(&found.file),
            line: slice.line,
            fits: fit.refusal.is_none() && fault.is_none(),
            overcommits: fit.overcommits,
            refusal: fit.refusal.clone(),
            fits_with: fit.fits_with.map(Bytes::get),
            warnings: fit.warnings.clone(),
            engine: estimate.as_ref().map(EngineReport::new),
            estimate,
        }
    }

    fn write(&self, text: &mut String) {
        let name = printable(&self.name);
        let mut lines: Vec<String> = Vec::new();
        if let Some(refusal) = &self.refusal {
            lines.push(format!("{name}: {refusal}"));
            let most = self.fits_with.map(Bytes::new);
            lines.extend(
                most.map(|most| format!("{name} fits with memory = \"{}MiB\"", most.whole_mib())),
            );
        }
        let warnings = self.warnings.iter();
        lines.extend(warnings.map(|warning| format!("{name}: warning: {warning}")));
        let estimate = self.estimate.iter();
        lines.extend(estimate.map(|estimate| format!("{name}: {estimate}")));
        for line in &lines {
            text.push_str(line);
            text.push('\n');
        }
        if !lines.is_empty() {
            text.push('\n');
        }
    }
}

impl EngineReport {
    fn new(estimate: &Estimate) -> EngineReport {
        EngineReport {
            engine: estimate.engine.name(),
            fraction: estimate
                .sizing
                .fraction()
                .and_then(|fraction| fraction.to_string().parse().ok()),
            of: estimate.whole.get(),
            taken: estimate.taken.get(),
            weights: estimate.weights.map(Bytes::get),
            cache_at_most: estimate.cache.map(Bytes::get),
            fault: estimate.fault.clone(),
        }
    }
}
