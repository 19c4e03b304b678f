//! The keys of a slice in a slices file. The parser, gpuslice-slices(5) and the handbook use this
//! table.
//! Touches: its arguments.

use super::NamedSlice;
use super::values::{Value, Wrong, argument, flag, list, size, table, text, word};
use crate::slice::options::{DeviceLimit, amount, headroom, limit, selector};
use gpuslice_config::slice::threshold::Threshold;
use gpuslice_config::words::paths;
use std::ffi::OsString;

/// A key of a slice.
pub(crate) struct Key {
    /// The key.
    pub(crate) name: &'static str,
    /// The values that it takes, for messages and pages.
    pub(crate) value: &'static str,
    /// Its meaning.
    pub(crate) meaning: &'static str,
    /// The option of `gpuslice run` that it stands for, if there is one.
    pub(crate) option: Option<&'static str>,
    pub(super) set: fn(&mut NamedSlice, &Value<'_>) -> Result<(), Wrong>,
}

const SIZE: &str = "a size (\"12GiB\") or a number of bytes";

/// All keys, in the order in which they are documented.
pub(crate) static KEYS: [Key; 20] = [
    Key {
        name: "memory",
        value: SIZE,
        meaning: "Limits every GPU to this much memory. A slice has this key, device, or both.",
        option: Some("memory"),
        set: |slice, value| {
            slice.options.memory = Some(size(value, limit)?);
            Ok(())
        },
    },
    Key {
        name: "device",
        value: "a table of GPUs and their limits ({ 0 = \"8GiB\", \"GPU-UUID\" = \"4GiB\" })",
        meaning: "Limits single GPUs, named by their index in nvidia-smi or their uuid.",
        option: Some("device"),
        set: |slice, value| {
            slice.options.device = table(value, |gpu, memory| {
                let at = memory.span();
                let selector = selector(gpu, DEVICE).map_err(|why| Wrong::Value(at, why))?;
                let memory = size(memory, limit)?;
                Ok(DeviceLimit { selector, memory })
            })?;
            Ok(())
        },
    },
    Key {
        name: "total",
        value: "\"slice\" or \"device\"",
        meaning: "Total that programs see: the slice, or the device's own total, for flags that are percentages of the machine. Default: slice.",
        option: Some("total"),
        set: |slice, value| {
            slice.options.total = Some(word(value)?);
            Ok(())
        },
    },
    Key {
        name: "present-as",
        value: "\"uma\" or \"discrete\"",
        meaning: "On unified memory, how the GPU presents itself. Default: uma.",
        option: Some("present-as"),
        set: |slice, value| {
            slice.options.present_as = Some(word(value)?);
            Ok(())
        },
    },
    Key {
        name: "headroom",
        value: "a size (\"512MiB\"), a number of bytes, or \"learned\"",
        meaning: "Reports this much less than the limit, or the largest shortfall of earlier runs of this slice. Default: 0.",
        option: Some("headroom"),
        set: |slice, value| {
            slice.options.headroom = Some(size(value, headroom)?);
            Ok(())
        },
    },
    Key {
        name: "maximum",
        value: SIZE,
        meaning: "The largest limit that gpuslice resize may give the slice, which TOTAL shows from the start. Default: the GPU's memory, and TOTAL shows the limit.",
        option: Some("maximum"),
        set: |slice, value| {
            slice.options.maximum = Some(size(value, limit)?);
            Ok(())
        },
    },
    Key {
        name: "reserve",
        value: SIZE,
        meaning: "On unified memory, what the host keeps for itself. Default: by the machine's size.",
        option: Some("reserve"),
        set: |slice, value| {
            slice.options.reserve = Some(size(value, amount)?);
            Ok(())
        },
    },
    Key {
        name: "host-allowance",
        value: SIZE,
        meaning: "On unified memory, how much host memory of the slice's processes is not charged to it. Default: 4GiB.",
        option: Some("host-allowance"),
        set: |slice, value| {
            slice.options.host_allowance = Some(size(value, amount)?);
            Ok(())
        },
    },
    Key {
        name: "managed",
        value: "\"count\" or \"allow\"",
        meaning: "Managed memory: counted when it is allocated, or neither counted nor limited. Default: count.",
        option: Some("managed"),
        set: |slice, value| {
            slice.options.managed = Some(word(value)?);
            Ok(())
        },
    },
    Key {
        name: "pressure",
        value: "\"refuse\" or \"release\"",
        meaning: "On unified memory, what happens when the host runs short. Default: refuse.",
        option: Some("pressure"),
        set: |slice, value| {
            slice.options.pressure = Some(word(value)?);
            Ok(())
        },
    },
    Key {
        name: "threshold",
        value: "a list of thresholds ([\"available=16GiB\", \"full=5\"])",
        meaning: "When the host counts as short of memory: full, available, request, used and freed, as with gpuslice run --threshold.",
        option: Some("threshold"),
        set: |slice, value| {
            slice.options.threshold = list(value, str::parse::<Threshold>)?;
            Ok(())
        },
    },
    Key {
        name: "meminfo",
        value: "\"preload\" or \"mount\"",
        meaning: "On unified memory, who shows the slice in /proc/meminfo: the library, or a mounted file, which static and Go programs read, too. Default: preload.",
        option: Some("meminfo"),
        set: |slice, value| {
            slice.options.meminfo = Some(word(value)?);
            Ok(())
        },
    },
    Key {
        name: "page-cache",
        value: "\"keep\", \"drop\" or \"drop-behind\"",
        meaning: "Keeps model files in the page cache, or evicts them. Default: drop on unified memory, else keep.",
        option: Some("page-cache"),
        set: |slice, value| {
            slice.options.page_cache = Some(word(value)?);
            Ok(())
        },
    },
    Key {
        name: "page-cache-share",
        value: "true or false",
        meaning: "Tells other slices which bytes of a model's file are still needed, and drops none that they need. Default: false.",
        option: Some("page-cache-share"),
        set: |slice, value| {
            slice.options.page_cache_share = flag(value)?;
            Ok(())
        },
    },
    Key {
        name: "overcommit",
        value: "true or false",
        meaning: "Starts even if other slices leave no room for this one. Default: false.",
        option: Some("overcommit"),
        set: |slice, value| {
            slice.options.overcommit = flag(value)?;
            Ok(())
        },
    },
    Key {
        name: "fence",
        value: "\"auto\", \"driver\" or \"preload\"",
        meaning: "Enforces the limit by the driver, for a cgroup of the run, or by the preloaded library. Default: auto, the driver if it can, else the library.",
        option: Some("fence"),
        set: |slice, value| {
            slice.options.fence = Some(word(value)?);
            Ok(())
        },
    },
    Key {
        name: "enforce",
        value: "true or false",
        meaning: "With false nothing is refused: memory is only counted. Default: true.",
        option: Some("no-enforce"),
        set: |slice, value| {
            slice.options.no_enforce = !flag(value)?;
            Ok(())
        },
    },
    Key {
        name: "command",
        value: "a list of texts ([\"vllm\", \"serve\", \"MODEL\"])",
        meaning: "The command of gpuslice run --slice NAME, where none is given there, and its arguments. No shell reads it.",
        option: None,
        set: |slice, value| {
            slice.command = list(value, argument)?;
            match slice.command.first() {
                Some(program) if !program.is_empty() => Ok(()),
                _ => Err(Wrong::Value(value.span(), NO_PROGRAM.to_owned())),
            }
        },
    },
    Key {
        name: "env",
        value: "a table of variables and their values ({ HF_HOME = \"/models\" })",
        meaning: "Variables that are set for the command, over those of the caller. The command itself is searched in the caller's PATH.",
        option: None,
        set: |slice, value| {
            slice.options.env = table(value, |name, value| {
                let value = text(value, argument)?;
                variable(name).map_err(|why| Wrong::Value(0..0, why))?;
                Ok((OsString::from(name), value))
            })?;
            Ok(())
        },
    },
    Key {
        name: "weights",
        value: SIZE,
        meaning: "The memory of the model's weights on each GPU. Only gpuslice plan uses it, for the size of a vLLM's or SGLang's cache.",
        option: None,
        set: |slice, value| {
            slice.weights = Some(size(value, amount)?);
            Ok(())
        },
    },
];

/// The entries of the table `device`.
const DEVICE: &str = "0 = \"8GiB\" or \"GPU-…\" = \"8GiB\"";

/// Returns the key that is most like an unknown one, if any is.
pub(super) fn similar(unknown: &str) -> Option<&'static str> {
    // The measure and the bound are those of clap.
    const ALIKE: f64 = 0.7;
    let rated = KEYS
        .iter()
        .map(|key| (strsim::jaro(unknown, key.name), key.name));
    let best = rated.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(alike, _)| *alike > ALIKE)
        .map(|(_, name)| name)
}

/// Rewords a message about options of `gpuslice run`, so that it names the keys of a slices file.
#[must_use]
pub(crate) fn named_by_keys(message: &str) -> String {
    let words = message.split(' ').map(|word| {
        let option = word.strip_prefix("--");
        let is_it = |key: &&Key| key.option.is_some() && key.option == option;
        match KEYS.iter().find(is_it) {
            Some(key) if key.name == "enforce" => "enforce = false",
            Some(key) => key.name,
            None => word,
        }
    });
    let text = words.collect::<Vec<_>>().join(" ");
    match text.rsplit_once("give at most ") {
        Some((before, size)) => format!("{before}give at most \"{size}\""),
        None => text,
    }
}

const NO_PROGRAM: &str = "the first text names the program, and there is none";

/// Variables by which gpuslice itself finds a slice or a simulated machine.
const OWN: [&str; 2] = ["GPUSLICE_SIM", "GPUSLICE_SIM_STATE"];

/// Checks the name of a variable.
fn variable(name: &str) -> Result<(), String> {
    let of_slice = [paths::CONFIG, paths::SLICE].map(|name| name.to_str().unwrap_or_default());
    match () {
        () if !is_identifier(name) => Err(format!(
            "\"{name}\" is not the name of a variable (letters, digits and _)"
        )),
        () if OWN.contains(&name) || of_slice.contains(&name) => {
            Err(format!("gpuslice sets {name} itself"))
        }
        () => Ok(()),
    }
}

/// Checks that a shell can set a variable of this name.
fn is_identifier(name: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let starts = name
        .bytes()
        .next()
        .is_some_and(|first| !first.is_ascii_digit());
    starts && name.as_bytes().iter().all(is_letter)
}
