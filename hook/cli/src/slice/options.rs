//! The options that describe a slice and the machine it is on, shared by `run` and `check`.
//! Touches: its arguments.

use crate::slice::choices::{
    FenceChoice, ManagedChoice, MeminfoChoice, PageCacheChoice, PresentAsChoice, PressureChoice,
    TotalChoice,
};
use clap::{ArgGroup, Args};
use gpuslice_config::slice::threshold::Threshold;
use gpuslice_config::words::device::Selector;
use gpuslice_config::words::units::Bytes;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

/// A slice, as the command line describes it.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(group = ArgGroup::new("limit").args(["memory", "device"]).multiple(true))]
#[command(group = ArgGroup::new("slice").args(["memory", "device", "config"]).multiple(true))]
pub struct SliceOptions {
    /// Limit every GPU to this much memory, for example 24GiB or 24576MiB. All units are binary:
    /// 24G and 24GB are 24GiB. A number without a unit counts bytes
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = limit,
        allow_hyphen_values = true,
        help_heading = LIMITS
    )]
    pub memory: Option<Bytes>,

    /// Limit one GPU, named by its index in nvidia-smi or by its uuid. May be repeated
    #[arg(long, value_name = "GPU=SIZE", value_parser = device_limit, help_heading = LIMITS)]
    pub device: Vec<DeviceLimit>,

    /// The total memory that programs see: the limit of the slice, or the device's own total for
    /// programs whose flags are percentages of the machine [default: slice]
    #[arg(
        long,
        value_name = "slice|device",
        requires = "limit",
        hide_possible_values = true,
        help_heading = SEEN
    )]
    pub total: Option<TotalChoice>,

    /// How a GPU with unified memory presents itself: as integrated (uma), or as a discrete card.
    /// Some programs read /proc/meminfo only for integrated GPUs [default: uma]
    #[arg(
        long,
        value_name = "uma|discrete",
        requires = "limit",
        hide_possible_values = true,
        help_heading = SEEN
    )]
    pub present_as: Option<PresentAsChoice>,

    /// Report this much less memory than the limit. With "learned", it is the largest shortfall of
    /// earlier runs of this --name with the same option
    #[arg(
        long,
        value_name = "SIZE|learned",
        requires = "limit",
        requires_if("learned", "name"),
        value_parser = headroom,
        allow_hyphen_values = true,
        help_heading = SEEN
    )]
    pub headroom: Option<Headroom>,

    /// The largest limit that gpuslice resize may give the slice. TOTAL shows it from the start, for
    /// programs that reserve addresses or plan by TOTAL; FREE follows the limit
    #[arg(
        long,
        value_name = "SIZE",
        requires = "limit",
        value_parser = limit,
        allow_hyphen_values = true,
        help_heading = SEEN
    )]
    pub maximum: Option<Bytes>,

    /// Keep this much memory free for the host [default: by the machine's size]
    #[arg(
        long,
        value_name = "SIZE",
        requires = "limit",
        value_parser = amount,
        allow_hyphen_values = true,
        help_heading = UNIFIED
    )]
    pub reserve: Option<Bytes>,

    /// Charge the slice only for host memory of its processes beyond this amount [default: 4GiB]
    #[arg(
        long,
        value_name = "SIZE",
        requires = "limit",
        value_parser = amount,
        allow_hyphen_values = true,
        help_heading = UNIFIED
    )]
    pub host_allowance: Option<Bytes>,

    /// Count managed memory (cuMemAllocManaged) when it is allocated, or allow any amount of it
    /// without counting, for programs that oversubscribe on purpose [default: count]
    #[arg(
        long,
        value_name = "count|allow",
        requires = "limit",
        hide_possible_values = true,
        help_heading = LIMITS
    )]
    pub managed: Option<ManagedChoice>,

    /// While the host is short of memory, refuse requests that would leave less than twice the
    /// reserve, or before that make PyTorch and malloc release cached memory [default: refuse]
    #[arg(
        long,
        value_name = "refuse|release",
        requires = "limit",
        hide_possible_values = true,
        help_heading = UNIFIED
    )]
    pub pressure: Option<PressureChoice>,

    /// Set when the host counts as short of memory. May be repeated. WHAT is full (percent of time
    /// in which all tasks wait for memory), available (memory that is left), request (the largest
    /// request that is still granted), used (percent of the slice) or freed (the least memory that
    /// is worth releasing)
    #[arg(long, value_name = "WHAT=AMOUNT", requires = "limit", help_heading = UNIFIED)]
    pub threshold: Vec<Threshold>,

    /// How /proc/meminfo shows the slice: preload, by the library; or mount, by a mounted file, which
    /// static, musl and Go programs read, too, and which requires root [default: preload]
    #[arg(
        long,
        value_name = "preload|mount",
        requires = "limit",
        hide_possible_values = true,
        help_heading = UNIFIED
    )]
    pub meminfo: Option<MeminfoChoice>,

    /// Keep model files in the page cache, drop each one after the program has closed and unmapped
    /// it, or drop its pages also while it is loaded (drop-behind) [default: drop on unified
    /// memory, else keep]
    #[arg(
        long,
        value_name = "keep|drop|drop-behind",
        requires = "limit",
        hide_possible_values = true,
        help_heading = PAGE_CACHE
    )]
    pub page_cache: Option<PageCacheChoice>,

    /// Do not drop pages of a model file that another slice still needs. Slices with this option
    /// tell each other by locks on the file
    #[arg(long, requires = "limit", help_heading = PAGE_CACHE)]
    pub page_cache_share: bool,

    /// Start even if other slices leave too little room on a GPU (or, with unified memory, on the
    /// host). FREE is then the memory that is left, and allocations can be refused below the limit
    #[arg(long, requires = "slice", help_heading = LIMITS)]
    pub overcommit: bool,

    /// The mechanism that enforces the limit: the driver, for a cgroup of this run alone (R615 and
    /// later, as root; not MIG, unified memory, --total device, --maximum or a slice file that names
    /// a ledger), or the preloaded library. With "driver", a run that the driver cannot limit is
    /// refused [default: auto, which is the driver where it can]
    #[arg(
        long,
        value_name = "auto|driver|preload",
        requires = "slice",
        hide_possible_values = true,
        help_heading = LIMITS
    )]
    pub fence: Option<FenceChoice>,

    /// Count memory, and refuse nothing. `gpuslice status` shows the excess over the limit
    #[arg(long, requires = "limit", help_heading = LIMITS)]
    pub no_enforce: bool,

    /// The name of the slice in logs and lists [default: run-PID]
    #[arg(long, value_name = "NAME", requires = "limit", value_parser = name, help_heading = STARTING)]
    pub name: Option<String>,

    /// Read the slice from this file [env: GPUSLICE_CONFIG]
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["memory", "device"],
        help_heading = LIMITS
    )]
    pub config: Option<PathBuf>,

    /// Use a simulated machine: rtx3090, h200, h200-mig, gb10, gb10-nvml-answers, orin, thor, n1x,
    /// several (2xh200, rtx3090+h200) or a scenario file (machine.toml)
    #[arg(long, value_name = "MACHINE", help_heading = STARTING)]
    pub sim: Option<String>,

    /// Log messages of the preloaded library: warn, info or debug [env: GPUSLICE_LOG]
    #[arg(
        long,
        value_name = "LEVEL",
        value_parser = ["warn", "info", "debug"],
        hide_possible_values = true,
        help_heading = DIAGNOSTICS
    )]
    pub log: Option<String>,

    /// Append log messages to this file instead of standard error. Without --log and GPUSLICE_LOG,
    /// the level is warn then [env: GPUSLICE_LOG_FILE]
    #[arg(long, value_name = "FILE", help_heading = DIAGNOSTICS)]
    pub log_file: Option<PathBuf>,

    /// Use neither a slice nor the preloaded library, for comparisons
    #[arg(long, conflicts_with_all = ["memory", "device", "config"], help_heading = STARTING)]
    pub bare: bool,

    /// The variables that a slices file sets for the command.
    #[arg(skip)]
    pub env: Vec<(OsString, OsString)>,
}

/// The heading of options that set limits.
pub(crate) const LIMITS: &str = "Limits";
/// The heading of options that change what programs see.
const SEEN: &str = "What programs see";
/// The heading of options for GPUs that share the host's memory.
const UNIFIED: &str = "Unified memory";
/// The heading of options for model files.
const PAGE_CACHE: &str = "Page cache";
/// The heading of options about the start of a program.
pub(crate) const STARTING: &str = "Starting";
/// The heading of options about messages and results.
pub(crate) const DIAGNOSTICS: &str = "Diagnostics";

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

/// A limit that some program could live with: `--memory 8` is a forgotten unit.
pub(crate) fn limit(text: &str) -> Result<Bytes, String> {
    let limit = size(text)?;
    if limit >= Bytes::mib(1) {
        return Ok(limit);
    }
    // Below this number, the error suggests GiB.
    const MOST_GIB: Bytes = Bytes::new(1 << 10);
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{limit} is too little for any program (try 12GiB)"));
    }
    let unit = if limit < MOST_GIB { "GiB" } else { "MiB" };
    Err(format!(
        "{text} without a unit is {limit}, too little for any program (did you mean {text}{unit}?)"
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

pub(crate) fn headroom(text: &str) -> Result<Headroom, String> {
    match text {
        "learned" => Ok(Headroom::Learned),
        _ => amount(text).map(Headroom::Set),
    }
}

pub(crate) fn device_limit(text: &str) -> Result<DeviceLimit, String> {
    let (device, limit) = text
        .split_once('=')
        .ok_or("no size given (write 0=8GiB or GPU-…=8GiB)")?;
    Ok(DeviceLimit {
        selector: selector(device, "0=8GiB or GPU-…=8GiB")?,
        memory: self::limit(limit)?,
    })
}

/// Parses the index or uuid of a GPU. `form` is the form of a limit, for the error.
pub(crate) fn selector(device: &str, form: &str) -> Result<Selector, String> {
    let is_index = device.bytes().all(|byte| byte.is_ascii_digit()) && !device.is_empty();
    match is_index {
        true => device
            .parse()
            .map(Selector::Index)
            .map_err(|_| "no machine has that many GPUs".to_owned()),
        false => device
            .parse()
            .map(Selector::Uuid)
            .map_err(|_| format!("\"{device}\" is neither an index nor a uuid (write {form})")),
    }
}

/// The longest name that a slice file can hold.
const NAME_LIMIT: usize = 128;

pub(crate) fn name(text: &str) -> Result<String, String> {
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
