//! The options that describe a slice and the machine it is on, shared by `run` and `check`.
//! Touches: its arguments.

use crate::slice::pressure_options::PressureChoice;
use clap::{ArgGroup, Args, ValueEnum};
use gpuslice_config::slice::threshold::Threshold;
use gpuslice_config::slice::{Managed, PageCache, PresentAs, Total};
use gpuslice_config::words::device::Selector;
use gpuslice_config::words::units::Bytes;
use std::path::PathBuf;
use std::str::FromStr;

/// A slice, as the command line describes it.
#[derive(Args, Clone, Debug, Default)]
#[command(group = ArgGroup::new("limit").args(["memory", "device"]).multiple(true))]
#[command(group = ArgGroup::new("slice").args(["memory", "device", "config"]).multiple(true))]
pub struct SliceOptions {
    /// Limit every GPU to this much memory: 24GiB or 24576MiB (24Gi, 24G and 24GB are 24GiB; a
    /// number without a unit counts bytes)
    #[arg(long, value_name = "SIZE", value_parser = limit, allow_hyphen_values = true)]
    pub memory: Option<Bytes>,

    /// Limit one GPU, named by its index in nvidia-smi or its uuid; may be repeated
    #[arg(long, value_name = "GPU=SIZE", value_parser = device_limit)]
    pub device: Vec<DeviceLimit>,

    /// What TOTAL shows: the slice, or the device's own total (for flags that are percentages
    /// of the machine) [default: slice]
    #[arg(
        long,
        value_name = "slice|device",
        requires = "limit",
        hide_possible_values = true
    )]
    pub total: Option<TotalChoice>,

    /// On unified memory, how the GPU presents itself: as uma, or as a discrete card, for programs
    /// that read /proc/meminfo of an integrated one [default: uma]
    #[arg(
        long,
        value_name = "uma|discrete",
        requires = "limit",
        hide_possible_values = true
    )]
    pub present_as: Option<PresentAsChoice>,

    /// Report this much less than the limit, or, with "learned", the largest shortfall of earlier
    /// runs of this --name with the same option
    #[arg(
        long,
        value_name = "SIZE|learned",
        requires = "limit",
        requires_if("learned", "name"),
        value_parser = headroom,
        allow_hyphen_values = true
    )]
    pub headroom: Option<Headroom>,

    /// On unified memory, what the host keeps for itself [default: by the machine's size]
    #[arg(long, value_name = "SIZE", requires = "limit", value_parser = amount, allow_hyphen_values = true)]
    pub reserve: Option<Bytes>,

    /// On unified memory, how much host memory of the slice's processes is not charged to it
    /// [default: 4GiB]
    #[arg(long, value_name = "SIZE", requires = "limit", value_parser = amount, allow_hyphen_values = true)]
    pub host_allowance: Option<Bytes>,

    /// Managed memory (cuMemAllocManaged): count it at the call, or allow any amount, for programs
    /// that oversubscribe on purpose; it is then neither counted nor limited [default: count]
    #[arg(
        long,
        value_name = "count|allow",
        requires = "limit",
        hide_possible_values = true
    )]
    pub managed: Option<ManagedChoice>,

    /// On unified memory, what happens when the host runs short: refuse what would go below the
    /// reserve, or before that let PyTorch and malloc release what they only keep [default: refuse]
    #[arg(
        long,
        value_name = "refuse|release",
        requires = "limit",
        hide_possible_values = true
    )]
    pub pressure: Option<PressureChoice>,

    /// When the host counts as short of memory; may be repeated. full: percent of time in which
    /// everything waits for memory; available: memory that is left; request: the largest request
    /// that is still granted then; used: percent of the slice; freed: the least memory that is
    /// worth releasing
    #[arg(long, value_name = "WHAT=AMOUNT", requires = "limit")]
    pub threshold: Vec<Threshold>,

    /// What becomes of model files' pages in the page cache: they stay, go when the file is closed
    /// and unmapped, or go while it is loaded [default: drop on unified memory, else keep]
    #[arg(
        long,
        value_name = "keep|drop|drop-behind",
        requires = "limit",
        hide_possible_values = true
    )]
    pub page_cache: Option<PageCacheChoice>,

    /// Tell other slices, by locks on a model's file, which of its bytes are still needed, and
    /// drop none that they need
    #[arg(long, requires = "limit")]
    pub page_cache_share: bool,

    /// Start even if other slices leave no room for this one on a GPU (or on the host, on unified
    /// memory). FREE is then the memory that is left, and allocations can be refused below the
    /// limit
    #[arg(long, requires = "slice")]
    pub overcommit: bool,

    /// Only count: nothing is refused, and `gpuslice status` shows what is over the limit
    #[arg(long, requires = "limit")]
    pub no_enforce: bool,

    /// What logs and lists call the slice [default: run-PID]
    #[arg(long, value_name = "NAME", requires = "limit", value_parser = name)]
    pub name: Option<String>,

    /// Read the slice from this file [env: GPUSLICE_CONFIG]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["memory", "device"])]
    pub config: Option<PathBuf>,

    /// Run on a simulated machine: rtx3090, h200, h200-mig, gb10, gb10-nvml-answers, orin, thor,
    /// n1x, several (2xh200, rtx3090+h200) or a scenario file (machine.toml)
    #[arg(long, value_name = "MACHINE")]
    pub sim: Option<String>,

    /// Let the preloaded library say what it does: warn, info or debug [env: GPUSLICE_LOG]
    #[arg(long, value_name = "LEVEL", value_parser = ["warn", "info", "debug"], hide_possible_values = true)]
    pub log: Option<String>,

    /// Append that to a file instead of standard error [env: GPUSLICE_LOG_FILE]
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// No slice and no preload at all, for comparisons
    #[arg(long, conflicts_with_all = ["memory", "device", "config"])]
    pub bare: bool,
}

impl SliceOptions {
    /// Whether the options describe a slice themselves.
    #[must_use]
    pub fn limits_something(&self) -> bool {
        self.memory.is_some() || !self.device.is_empty()
    }
}

/// `--headroom`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// This many bytes.
    Set(Bytes),
    /// The headroom learned from earlier runs.
    Learned,
}

/// `--total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TotalChoice {
    /// The slice's.
    Slice,
    /// The device's own.
    Device,
}

/// `--managed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ManagedChoice {
    /// Counted at the call.
    Count,
    /// Neither counted nor limited.
    Allow,
}

impl From<ManagedChoice> for Managed {
    fn from(choice: ManagedChoice) -> Managed {
        match choice {
            ManagedChoice::Count => Managed::Count,
            ManagedChoice::Allow => Managed::Allow,
        }
    }
}

impl From<TotalChoice> for Total {
    fn from(choice: TotalChoice) -> Total {
        match choice {
            TotalChoice::Slice => Total::Slice,
            TotalChoice::Device => Total::Device,
        }
    }
}

/// `--present-as`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PresentAsChoice {
    /// An integrated device.
    Uma,
    /// A discrete one.
    Discrete,
}

impl From<PresentAsChoice> for PresentAs {
    fn from(choice: PresentAsChoice) -> PresentAs {
        match choice {
            PresentAsChoice::Uma => PresentAs::Uma,
            PresentAsChoice::Discrete => PresentAs::Discrete,
        }
    }
}

/// `--page-cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PageCacheChoice {
    /// They stay.
    Keep,
    /// They go at the end.
    Drop,
    /// They go while the file is loaded.
    DropBehind,
}

impl From<PageCacheChoice> for PageCache {
    fn from(choice: PageCacheChoice) -> PageCache {
        match choice {
            PageCacheChoice::Keep => PageCache::Keep,
            PageCacheChoice::Drop => PageCache::Drop,
            PageCacheChoice::DropBehind => PageCache::DropBehind,
        }
    }
}

/// The limit of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimit {
    pub selector: Selector,
    pub memory: Bytes,
}

fn size(text: &str) -> Result<Bytes, String> {
    // In `--memory --device 0=8GiB`, the size of `--memory` is missing.
    if text.starts_with("--") {
        return Err("no size given (try 12GiB)".to_owned());
    }
    Bytes::from_str(text).map_err(|error| error.to_string())
}

/// Parses a limit of at least 1 MiB. In `--memory 8`, the user has forgotten the unit.
fn limit(text: &str) -> Result<Bytes, String> {
    let limit = size(text)?;
    if limit >= Bytes::mib(1) {
        return Ok(limit);
    }
    // Below this number, a size without a unit is taken to mean GiB.
    const MOST_GIB: Bytes = Bytes::new(1 << 10);
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("no program can live in {limit} (try 12GiB)"));
    }
    let unit = if limit < MOST_GIB { "GiB" } else { "MiB" };
    Err(format!(
        "{text} without a unit is {limit}, in which no program can live (did you mean {text}{unit}?)"
    ))
}

/// Parses a size that may be zero.
pub(crate) fn amount(text: &str) -> Result<Bytes, String> {
    match text {
        "0" => Ok(Bytes::ZERO),
        _ => {
            size(text)?;
            Bytes::configured(text).map_err(|error| error.to_string())
        }
    }
}

fn headroom(text: &str) -> Result<Headroom, String> {
    match text {
        "learned" => Ok(Headroom::Learned),
        _ => amount(text).map(Headroom::Set),
    }
}

fn device_limit(text: &str) -> Result<DeviceLimit, String> {
    let (device, limit) = text
        .split_once('=')
        .ok_or("no size given (write 0=8GiB or GPU-…=8GiB)")?;
    let selector = if device.bytes().all(|byte| byte.is_ascii_digit()) && !device.is_empty() {
        Selector::Index(
            device
                .parse()
                .map_err(|_| "no machine has that many GPUs")?,
        )
    } else {
        Selector::Uuid(device.parse().map_err(|_| {
            format!("\"{device}\" is neither an index nor a uuid (write 0=8GiB or GPU-…=8GiB)")
        })?)
    };
    Ok(DeviceLimit {
        selector,
        memory: self::limit(limit)?,
    })
}

/// The longest name that a slice file can hold.
const NAME_LIMIT: usize = 128;

fn name(text: &str) -> Result<String, String> {
    let strange = |letter: char| letter.is_control() || letter == '"' || letter == '\\';
    match () {
        () if text.is_empty() => Err("a name must not be empty".to_owned()),
        () if text.len() > NAME_LIMIT => Err(format!("longer than {NAME_LIMIT} bytes")),
        () if text.contains(strange) => {
            Err("no quotes, backslashes or control characters".to_owned())
        }
        () => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_named_by_index_or_by_uuid() {
        let uuid = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
        assert_eq!(
            device_limit("0=8GiB"),
            Ok(DeviceLimit {
                selector: Selector::Index(0),
                memory: Bytes::gib(8)
            })
        );
        assert_eq!(
            device_limit(&format!("{uuid}=4Gi")),
            Ok(DeviceLimit {
                selector: Selector::Uuid(uuid.parse().unwrap()),
                memory: Bytes::gib(4)
            })
        );
    }

    #[test]
    fn what_names_no_gpu_or_no_size_is_refused() {
        for text in [
            "",
            "0",
            "=8GiB",
            "0=",
            "0=0",
            "0=-1",
            "a=8GiB",
            "-1=8GiB",
            "99999999999=8GiB",
            "0=8=9",
        ] {
            assert!(device_limit(text).is_err(), "{text} was taken");
        }
    }

    #[test]
    fn a_name_that_the_slice_file_could_not_hold_is_refused() {
        assert_eq!(name("llama-7b"), Ok("llama-7b".to_owned()));
        for text in ["", "a\"b", "a\\b", "a\nb", &"x".repeat(129)] {
            assert!(name(text).is_err(), "{text} was taken");
        }
    }
}
