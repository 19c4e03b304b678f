//! The scenarios: the files that describe simulated machines, and combinations of them.
//! Touches: a scenario file, when a path is given.

use crate::units::bytes;
use serde::Deserialize;
use std::{fmt, fs};

const BUILT_IN: &[(&str, &str)] = &[
    ("rtx3090", include_str!("../../scenarios/rtx3090.toml")),
    ("h200", include_str!("../../scenarios/h200.toml")),
    ("h200-mig", include_str!("../../scenarios/h200-mig.toml")),
    ("gb10", include_str!("../../scenarios/gb10.toml")),
    (
        "gb10-nvml-answers",
        include_str!("../../scenarios/gb10-nvml-answers.toml"),
    ),
    ("orin", include_str!("../../scenarios/orin.toml")),
    ("thor", include_str!("../../scenarios/thor.toml")),
    ("n1x", include_str!("../../scenarios/n1x.toml")),
];

/// The names of the scenarios that are compiled in.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}

/// Driver branches that `NAME@BRANCH` can name: branch, version, CUDA version. 535 and 550 are
/// checked against recordings of NVIDIA's libraries (`tests/sim/recorded/`); 615 is the first with
/// memory limits.
const DRIVERS: &[(&str, &str, i32, MemoryLimits)] = &[
    ("535", "535.261.03", 12_020, MemoryLimits::None),
    ("550", "550.163.01", 12_040, MemoryLimits::None),
    ("580", "580.95.05", 13_000, MemoryLimits::None),
    ("615", "615.71.09", 13_040, MemoryLimits::Dmem),
    ("615-misc", "615.71.09", 13_040, MemoryLimits::Misc),
];

/// Each driver branch once, with its CUDA version (1000 * major + 10 * minor).
pub fn branches() -> impl Iterator<Item = (&'static str, i32)> {
    let branches = DRIVERS.iter().map(|(name, _, cuda, _)| (*name, *cuda));
    branches.filter(|(name, _)| !name.contains('-'))
}

/// A whole machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Driver version, as NVML prints it.
    pub driver: String,
    /// CUDA version of the driver: 1000 * major + 10 * minor.
    pub cuda: i32,
    /// How the driver limits the memory of cgroups.
    #[serde(default)]
    pub memory_limits: MemoryLimits,
    /// The host's memory; needed by every integrated GPU.
    pub host: Option<Host>,
    /// The GPUs, in PCI order.
    pub gpu: Vec<Gpu>,
}

/// The host's memory when no program runs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// MemTotal.
    #[serde(deserialize_with = "bytes")]
    pub mem_total: u64,
    /// MemFree.
    #[serde(deserialize_with = "bytes")]
    pub mem_free: u64,
    /// MemAvailable; the part above `mem_free` is page cache that can be reclaimed.
    #[serde(deserialize_with = "bytes")]
    pub mem_available: u64,
    /// SwapTotal and SwapFree.
    #[serde(default, deserialize_with = "bytes")]
    pub swap: u64,
}

/// How the driver limits the memory of cgroups (`nvmlDeviceSetMemoryLimits_v1`, since 615). The
/// driver chooses when it is loaded: `dmem` where the kernel has that controller (6.14), `misc`
/// elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLimits {
    /// The driver is older, or its limits are switched off.
    #[default]
    None,
    /// The kernel's dmem controller.
    Dmem,
    /// The driver's own table.
    Misc,
}

/// How `nvmlDeviceGetMemoryInfo` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NvmlMemory {
    /// The device's memory.
    #[default]
    Works,
    /// `NVML_ERROR_NOT_SUPPORTED`.
    NotSupported,
    /// `NVML_SUCCESS` with a total of 0.
    Zero,
    /// `NVML_SUCCESS` with a small window (`nvml_total`, `nvml_free`) that never changes.
    CarveOut,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Marketing name.
    pub name: String,
    /// `GPU-...`
    pub uuid: String,
    /// PCI bus id, `00000000:01:00.0`.
    pub pci: String,
    /// PCI device and vendor id as NVML prints them, `0x220410DE`.
    #[serde(default)]
    pub pci_id: u32,
    /// NVML architecture number.
    pub arch: u32,
    /// NVML brand number.
    pub brand: u32,
    /// Compute capability, `[8, 6]`.
    pub compute: [i32; 2],
    /// Multiprocessors.
    pub multiprocessors: i32,
    /// Total as NVML reports it.
    #[serde(default, deserialize_with = "bytes")]
    pub nvml_total: u64,
    /// Free as NVML reports it; only for a carve-out.
    #[serde(default, deserialize_with = "bytes")]
    pub nvml_free: u64,
    /// Total as CUDA reports it.
    #[serde(deserialize_with = "bytes")]
    pub cuda_total: u64,
    /// Memory that is in use although no program runs.
    #[serde(default, deserialize_with = "bytes")]
    pub baseline: u64,
    /// The memory that one context takes.
    #[serde(deserialize_with = "bytes")]
    pub context: u64,
    /// BAR1 window; 0 if NVML does not answer.
    #[serde(default, deserialize_with = "bytes")]
    pub bar1: u64,
    /// Whether the GPU shares the host's memory.
    #[serde(default)]
    pub integrated: bool,
    /// Whether the GPU can read pageable host memory.
    #[serde(default)]
    pub pageable: bool,
    /// How NVML answers queries of memory.
    #[serde(default)]
    pub nvml_memory: NvmlMemory,
    /// Whether NVML has hardly more functions than those for names and ids (Jetson).
    #[serde(default)]
    pub nvml_minimal: bool,
    /// ECC memory.
    #[serde(default)]
    pub ecc: bool,
    /// Fans, 0 for passively cooled cards.
    #[serde(default)]
    pub fans: u32,
    /// Power limit in milliwatts, 0 if NVML does not know it.
    #[serde(default)]
    pub power_limit: u32,
    /// Highest SM and memory clock in MHz.
    #[serde(default)]
    pub clocks: [u32; 2],
    /// Memory bus width in bits.
    #[serde(default)]
    pub bus_width: i32,
    /// MIG instances; an empty list means that MIG is off.
    #[serde(default)]
    pub mig: Vec<Mig>,
}

/// One MIG instance with one compute instance over all of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mig {
    /// `3g.71gb`
    pub profile: String,
    /// `MIG-...`
    pub uuid: String,
    /// GPU instance id.
    pub gpu_instance: u32,
    /// Compute instance id.
    pub compute_instance: u32,
    /// GPU slices.
    pub slices: u32,
    /// Multiprocessors.
    pub multiprocessors: i32,
    /// Total as NVML reports it.
    #[serde(deserialize_with = "bytes")]
    pub nvml_total: u64,
    /// Total as CUDA reports it.
    #[serde(deserialize_with = "bytes")]
    pub cuda_total: u64,
}

/// One memory with an account of its own: a whole GPU or a MIG instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Domain {
    /// Index into [`Scenario::gpu`].
    pub gpu: usize,
    /// Index into [`Gpu::mig`].
    pub mig: Option<usize>,
}

/// Why a scenario cannot be used.
#[derive(Debug)]
pub struct ScenarioError(String);

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = names().collect();
        write!(
            f,
            "{} (scenarios: {}; also 2xNAME, NAME+NAME, or a path; @550 after it chooses the driver)",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads `rtx3090`, `2xh200`, `rtx3090+h200` or the path of a scenario file. `@550` after it
    /// replaces the driver that the file names.
    pub fn load(name: &str) -> Result<Self, ScenarioError> {
        let Some((machine, branch)) = name
            .rsplit_once('@')
            .filter(|(_, branch)| !branch.contains('/'))
        else {
            return Self::machine(name);
        };
        let (_, driver, cuda, limits) = DRIVERS
            .iter()
            .find(|(known, ..)| *known == branch)
            .ok_or_else(|| {
                let known: Vec<_> = DRIVERS.iter().map(|(known, ..)| *known).collect();
                ScenarioError(format!(
                    "there is no driver `{branch}` (drivers: {})",
                    known.join(", ")
                ))
            })?;
        let mut machine = Self::machine(machine)?;
        (*driver).clone_into(&mut machine.driver);
        machine.cuda = *cuda;
        machine.memory_limits = *limits;
        Ok(machine)
    }

    fn machine(name: &str) -> Result<Self, ScenarioError> {
        let mut machine: Option<Self> = None;
        let parts: Vec<&str> = if name.contains('/') {
            vec![name]
        } else {
            name.split('+').collect()
        };
        for part in parts {
            let (count, one) = match part.split_once('x') {
                Some((digits, rest))
                    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
                {
                    (digits.parse::<usize>().map_err(|_| wrong(part))?, rest)
                }
                _ => (1, part),
            };
            let scenario = Self::one(one)?;
            for _ in 0..count {
                match &mut machine {
                    None => machine = Some(scenario.clone()),
                    Some(whole) => {
                        whole.gpu.extend(scenario.gpu.iter().cloned());
                        whole.host = whole.host.take().or_else(|| scenario.host.clone());
                    }
                }
            }
        }
        let mut machine = machine.ok_or_else(|| wrong(name))?;
        machine.tell_apart();
        machine.check(name)?;
        Ok(machine)
    }

    fn one(name: &str) -> Result<Self, ScenarioError> {
        let text = match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => (*text).to_owned(),
            None if name.contains('/') || name.ends_with(".toml") => fs::read_to_string(name)
                .map_err(|error| ScenarioError(format!("cannot read scenario {name}: {error}")))?,
            None => return Err(wrong(name)),
        };
        toml::from_str(&text).map_err(|error| {
            ScenarioError(format!("scenario {name} is wrong: {}", error.message()))
        })
    }

    /// Gives cards of one kind different uuids and PCI buses.
    fn tell_apart(&mut self) {
        for i in 1..self.gpu.len() {
            let (before, rest) = self.gpu.split_at_mut(i);
            let Some(gpu) = rest.first_mut() else { return };
            while before.iter().any(|other| other.uuid == gpu.uuid) {
                bump(&mut gpu.uuid);
                for mig in &mut gpu.mig {
                    bump(&mut mig.uuid);
                }
            }
            while before.iter().any(|other| other.pci == gpu.pci) {
                let bus =
                    u32::from_str_radix(gpu.pci.get(9..11).unwrap_or("0"), 16).unwrap_or(0) + 1;
                gpu.pci = format!("{}:{bus:02X}:00.0", gpu.pci.get(..8).unwrap_or("00000000"));
            }
        }
    }

    fn check(&self, name: &str) -> Result<(), ScenarioError> {
        let fail = |what: String| Err(ScenarioError(format!("scenario {name}: {what}")));
        if self.gpu.is_empty() || self.domains().len() > crate::shared::DOMAINS {
            return fail(format!("needs 1 to {} devices", crate::shared::DOMAINS));
        }
        for gpu in &self.gpu {
            if gpu.integrated && self.host.is_none() {
                return fail(format!(
                    "{} is integrated, so the scenario needs [host]",
                    gpu.name
                ));
            }
            if gpu.nvml_memory == NvmlMemory::Works && gpu.nvml_total < gpu.cuda_total {
                return fail(format!("{}: nvml_total is below cuda_total", gpu.name));
            }
        }
        match &self.host {
            Some(host)
                if host.mem_free > host.mem_available || host.mem_available > host.mem_total =>
            {
                fail("needs mem_free <= mem_available <= mem_total".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// All memories. A GPU with MIG instances counts as its instances.
    #[must_use]
    pub fn domains(&self) -> Vec<Domain> {
        let of = |(gpu, it): (usize, &Gpu)| -> Vec<Domain> {
            if it.mig.is_empty() {
                return vec![Domain { gpu, mig: None }];
            }
            (0..it.mig.len())
                .map(|mig| Domain {
                    gpu,
                    mig: Some(mig),
                })
                .collect()
        };
        self.gpu.iter().enumerate().flat_map(of).collect()
    }

    /// NVML's version string: the driver's, with the CUDA major in front.
    #[must_use]
    pub fn nvml_version(&self) -> String {
        format!("{}.{}", self.cuda / 1000, self.driver)
    }
}

fn wrong(name: &str) -> ScenarioError {
    ScenarioError(format!("there is no scenario `{name}`"))
}

/// Increments the last hexadecimal digits of a uuid.
fn bump(uuid: &mut String) {
    let cut = uuid.len().saturating_sub(4);
    let last = u16::from_str_radix(uuid.get(cut..).unwrap_or("0"), 16).unwrap_or(0);
    let next = format!("{:04x}", last.wrapping_add(1));
    uuid.truncate(cut);
    uuid.push_str(&next);
}

impl Mig {
    /// The instance's uuid as CUDA's 16 bytes.
    #[must_use]
    pub fn uuid_bytes(&self) -> [u8; 16] {
        uuid_bytes(&self.uuid)
    }
}

impl Gpu {
    /// The GPU's uuid as CUDA's 16 bytes.
    #[must_use]
    pub fn uuid_bytes(&self) -> [u8; 16] {
        uuid_bytes(&self.uuid)
    }
}

fn uuid_bytes(uuid: &str) -> [u8; 16] {
    let digits: Vec<u8> = uuid
        .split_once('-')
        .map_or(uuid, |(_, rest)| rest)
        .bytes()
        .filter_map(|b| {
            char::from(b)
                .to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
        })
        .collect();
    let mut out = [0; 16];
    for (to, pair) in out.iter_mut().zip(digits.chunks(2)) {
        *to = pair.iter().fold(0, |byte, digit| (byte << 4) | digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_bytes;

    #[test]
    fn every_built_in_scenario_loads() {
        for name in names() {
            Scenario::load(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn several_cards_of_one_kind_can_be_told_apart() {
        let machine = Scenario::load("2xh200+rtx3090+h200").unwrap();
        assert_eq!(machine.gpu.len(), 4);
        for (i, one) in machine.gpu.iter().enumerate() {
            for other in &machine.gpu[..i] {
                assert_ne!(one.uuid, other.uuid);
                assert_ne!(one.pci, other.pci);
            }
        }
    }

    #[test]
    fn an_unknown_scenario_is_an_error_that_lists_the_known_ones() {
        let text = Scenario::load("rtx9999").unwrap_err().to_string();
        assert!(
            text.contains("rtx9999") && text.contains("h200-mig"),
            "{text}"
        );
    }

    #[test]
    fn a_driver_branch_after_the_name_replaces_the_drivers_version() {
        let machine = Scenario::load("2xrtx3090@550").unwrap();
        assert_eq!(
            (machine.driver.as_str(), machine.cuda),
            ("550.163.01", 12_040)
        );
        assert_eq!(machine.nvml_version(), "12.550.163.01");
        assert_eq!(machine.gpu.len(), 2);
        let text = Scenario::load("rtx3090@1").unwrap_err().to_string();
        assert!(text.contains("535, 550"), "{text}");
    }

    #[test]
    fn gb10_says_the_published_numbers() {
        let gb10 = Scenario::load("gb10").unwrap();
        let host = gb10.host.clone().unwrap();
        assert_eq!(host.mem_total, parse_bytes("127600748 kB").unwrap());
        assert_eq!(gb10.gpu[0].cuda_total, host.mem_total);
        assert_eq!(gb10.gpu[0].nvml_memory, NvmlMemory::NotSupported);
    }
}
