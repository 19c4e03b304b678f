//! Turns the command-line options into a slice for the GPUs of this machine.
//! Touches: its arguments.

use crate::driver::inventory::{Inventory, Target};
use crate::slice::options::{DeviceLimit, Headroom, SliceOptions};
use gpuslice_config::slice::{ListedDevice, PageCache, Slice, SliceFault, Text};
use gpuslice_config::words::device::{DeviceUuid, Selector};
use gpuslice_config::words::units::Bytes;
use std::collections::BTreeMap;

/// Headroom by device.
pub(crate) type Headrooms = BTreeMap<DeviceUuid, Bytes>;

/// Reasons why the options do not describe a slice on this machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BudgetError {
    /// The driver works but lists no GPU.
    #[error("the NVIDIA driver lists no GPU here")]
    NoDevices,
    /// An option names a GPU that does not exist here.
    #[error("there is no {wanted} here; there are:{devices}")]
    Unknown {
        /// The GPU, as the user named it.
        wanted: String,
        /// The existing GPUs, one per line.
        devices: String,
    },
    /// A GPU that programs cannot allocate from because MIG divides it.
    #[error("GPU {index} is divided by MIG: name one of its instances:{instances}")]
    Divided {
        /// The GPU's index.
        index: u32,
        /// The existing GPUs and instances, one per line.
        instances: String,
    },
    /// A GPU named more than once.
    #[error("{0} is given more than one --device")]
    Twice(String),
    /// A limit that exceeds the GPU's memory and so limits nothing.
    #[error("{option} {limit} is more than {target} has; give at most {most}MiB")]
    OverTheCard {
        /// The option's name.
        option: &'static str,
        /// The option's value, with enough digits to differ from the GPU's memory.
        limit: String,
        target: String,
        /// The GPU's memory in whole MiB.
        most: u64,
    },
    /// A limit that exceeds the memory of every GPU.
    #[error("{option} {limit} is more than any GPU here has:{devices}")]
    OverEveryCard {
        /// The option's name.
        option: &'static str,
        /// The option's value, with enough digits to differ from the memory of the largest GPU.
        limit: String,
        /// The existing GPUs, one per line.
        devices: String,
    },
    /// The headroom is as large as the limit, so no memory is left to report.
    #[error("--headroom {headroom} leaves nothing of a limit of {limit}")]
    Headroom {
        /// The headroom's value.
        headroom: Bytes,
        limit: Bytes,
    },
    /// The limit is larger than the largest one.
    #[error("the limit of {limit} is more than --maximum {maximum}")]
    Maximum {
        /// The largest limit.
        maximum: Bytes,
        limit: Bytes,
    },
    /// More GPUs than one slice file can list.
    #[error(transparent)]
    Slice(#[from] SliceFault),
}

/// A slice, and the warnings about it.
#[derive(Debug, PartialEq)]
pub(crate) struct DescribedSlice {
    /// The slice; the caller fills in its `meminfo`.
    pub slice: Slice,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The GPUs that the slice does not limit although it has a limit for all GPUs.
    pub too_small: Vec<TooSmall>,
}

/// A GPU with less memory than the limit for all GPUs. That limit has no effect on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooSmall {
    pub uuid: DeviceUuid,
    /// The message for the user.
    pub message: String,
}

/// Builds the slice that the options describe on these GPUs. `learned` is the headroom learned from
/// earlier runs of that name.
///
/// # Errors
/// When the options name a GPU that does not exist, or a limit that exceeds a GPU's memory.
pub(crate) fn budget(
    options: &SliceOptions,
    inventory: &Inventory,
    name: &str,
    learned: &Headrooms,
) -> Result<DescribedSlice, BudgetError> {
    if inventory.targets().next().is_none() {
        return Err(BudgetError::NoDevices);
    }
    let named = named(options, inventory)?;
    let headroom = match options.headroom {
        Some(Headroom::Set(headroom)) => headroom,
        Some(Headroom::Learned) | None => Bytes::ZERO,
    };
    let (mut warnings, mut too_small) = (Vec::new(), Vec::new());
    let limits = named.iter().map(|(_, memory)| *memory);
    if let Some(limit) = limits
        .chain(options.memory)
        .find(|limit| *limit <= headroom)
    {
        return Err(BudgetError::Headroom { headroom, limit });
    }
    let limits = named.iter().map(|(_, memory)| *memory);
    if let Some(maximum) = options.maximum
        && let Some(limit) = limits.chain(options.memory).find(|limit| *limit > maximum)
    {
        return Err(BudgetError::Maximum { maximum, limit });
    }
    let mut slice = Slice::default();
    slice.name = Text::new(name);
    slice.total = options.total.map(Into::into).unwrap_or_default();
    slice.present_as = options.present_as.map(Into::into).unwrap_or_default();
    slice.enforce = !options.no_enforce;
    slice.reserve = options.reserve;
    slice.host_allowance = options.host_allowance;
    slice.managed = options.managed.map(Into::into).unwrap_or_default();
    slice.pressure = options.pressure.map(Into::into).unwrap_or_default();
    for threshold in &options.threshold {
        threshold.set(&mut slice.thresholds);
    }
    slice.memory = options.memory;
    slice.headroom = headroom;
    slice.maximum = options.maximum;
    let learned = Learned { name, learned };
    for (target, memory) in &named {
        slice.list(learned.listed(target, *memory, &mut warnings))?;
    }
    if let Some(memory) = options.memory {
        let rest: Vec<Target<'_>> = inventory
            .targets()
            .filter(|target| named.iter().all(|(other, _)| other.uuid != target.uuid))
            .collect();
        too_small = check("--memory", memory, &rest, inventory)?;
        for target in &rest {
            slice.list(learned.listed(target, memory, &mut warnings))?;
        }
        for device in inventory.devices.iter().filter(|gpu| !gpu.mig.is_empty()) {
            slice.list(ListedDevice {
                uuid: device.uuid,
                memory: Some(memory),
                headroom: None,
                integrated: Some(device.integrated),
                driver_limit: None,
                driver_backstop: false,
            })?;
        }
    }
    // On unified memory, the default is to drop a model file's pages. A loaded model would
    // otherwise occupy memory twice: in the page cache and on the GPU.
    let shared = slice
        .devices()
        .any(|device| device.integrated == Some(true));
    if !shared {
        warnings.extend(without_effect(options));
    }
    let usual = match shared {
        true => PageCache::Drop,
        false => PageCache::Keep,
    };
    slice.page_cache = options.page_cache.map_or(usual, Into::into);
    slice.page_cache_share = options.page_cache_share;
    Ok(DescribedSlice {
        slice,
        warnings,
        too_small,
    })
}

/// Returns the warning about options that apply to unified memory only.
fn without_effect(options: &SliceOptions) -> Option<String> {
    let given = [
        ("--reserve", options.reserve.is_some()),
        ("--host-allowance", options.host_allowance.is_some()),
        ("--pressure", options.pressure.is_some()),
        ("--threshold", !options.threshold.is_empty()),
        ("--present-as", options.present_as.is_some()),
        ("--meminfo", options.meminfo.is_some()),
    ];
    let given: Vec<&str> = given
        .iter()
        .filter(|(_, is)| *is)
        .map(|(name, _)| *name)
        .collect();
    let verb = if given.len() == 1 { "has" } else { "have" };
    (!given.is_empty()).then(|| {
        format!(
            "{} {verb} no effect: no GPU of this slice shares the host's memory",
            given.join(", ")
        )
    })
}

/// The headroom learned from earlier runs.
struct Learned<'a> {
    name: &'a str,
    learned: &'a Headrooms,
}

impl Learned<'_> {
    /// Returns the slice file's entry for a device. Every device is listed, even if `memory` is the
    /// limit of all. The file then records which devices share the host's memory, which a program
    /// that only queries NVML cannot find out.
    fn listed(
        &self,
        target: &Target<'_>,
        memory: Bytes,
        warnings: &mut Vec<String>,
    ) -> ListedDevice {
        let learned = self.learned.get(&target.uuid).copied();
        let headroom = learned.filter(|learned| *learned < memory);
        if let (Some(learned), None) = (learned, headroom) {
            let name = self.name;
            warnings.push(format!(
                "the headroom of {learned} that \"{name}\" has learned for {target} leaves nothing \
                 of {memory} and is not used (`gpuslice headroom reset` forgets it)"
            ));
        }
        ListedDevice {
            uuid: target.uuid,
            memory: Some(memory),
            headroom,
            integrated: Some(target.integrated),
            driver_limit: None,
            driver_backstop: false,
        }
    }
}

fn named<'a>(
    options: &SliceOptions,
    inventory: &'a Inventory,
) -> Result<Vec<(Target<'a>, Bytes)>, BudgetError> {
    let mut named: Vec<(Target<'a>, Bytes)> = Vec::new();
    for DeviceLimit { selector, memory } in &options.device {
        let target = find(*selector, inventory)?;
        if named.iter().any(|(other, _)| other.uuid == target.uuid) {
            return Err(BudgetError::Twice(target.to_string()));
        }
        if over(*memory, &target) {
            return Err(over_the_card("--device", *memory, &target));
        }
        named.push((target, *memory));
    }
    Ok(named)
}

/// Finds the GPU or MIG instance that a selector names.
///
/// # Errors
/// When it does not exist, or when it is a GPU that programs cannot allocate from.
pub(crate) fn find(selector: Selector, inventory: &Inventory) -> Result<Target<'_>, BudgetError> {
    let direct = inventory.targets().find(|target| match selector {
        Selector::Uuid(uuid) => target.uuid == uuid,
        Selector::Index(index) => target.device.index == index && target.uuid == target.device.uuid,
    });
    if let Some(target) = direct {
        return Ok(target);
    }
    let divided = inventory.devices.iter().find(|device| match selector {
        Selector::Uuid(uuid) => device.uuid == uuid,
        Selector::Index(index) => device.index == index,
    });
    Err(match (divided, selector) {
        (Some(device), _) => BudgetError::Divided {
            index: device.index,
            instances: inventory.to_string(),
        },
        (None, Selector::Index(index)) => BudgetError::Unknown {
            wanted: format!("GPU {index}"),
            devices: inventory.to_string(),
        },
        (None, Selector::Uuid(uuid)) => BudgetError::Unknown {
            wanted: uuid.to_string(),
            devices: inventory.to_string(),
        },
    })
}

/// Checks whether a limit exceeds the device's memory and so limits nothing. If the device does not
/// report its memory, the limit is assumed to have an effect.
pub(crate) fn over(limit: Bytes, target: &Target<'_>) -> bool {
    limit > target.total && target.total > Bytes::ZERO
}

/// Builds the error for a limit that exceeds its GPU's memory. `option` is the option the user
/// gave.
pub(crate) fn over_the_card(
    option: &'static str,
    limit: Bytes,
    target: &Target<'_>,
) -> BudgetError {
    BudgetError::OverTheCard {
        option,
        limit: limit.beside(target.total).to_string(),
        target: target.to_string(),
        most: target.total.whole_mib(),
    }
}

/// Checks a limit for all GPUs against `rest`, the GPUs without a limit of their own. The limit
/// must have an effect on at least one of them. Returns those on which it has none.
///
/// # Errors
/// When the limit has an effect on none of them.
pub(crate) fn check(
    option: &'static str,
    memory: Bytes,
    rest: &[Target<'_>],
    inventory: &Inventory,
) -> Result<Vec<TooSmall>, BudgetError> {
    let too_small: Vec<&Target<'_>> = rest.iter().filter(|target| over(memory, target)).collect();
    let largest = rest.iter().map(|target| target.total).max();
    let largest = largest.unwrap_or_default();
    match too_small.as_slice() {
        [only] if rest.len() == 1 => Err(over_the_card(option, memory, only)),
        [_, ..] if too_small.len() == rest.len() => Err(BudgetError::OverEveryCard {
            option,
            limit: memory.beside(largest).to_string(),
            devices: inventory.to_string(),
        }),
        some => Ok(some
            .iter()
            .map(|target| TooSmall {
                uuid: target.uuid,
                message: format!(
                    "{option} {} exceeds {target}: that GPU is not limited",
                    memory.beside(target.total)
                ),
            })
            .collect()),
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
