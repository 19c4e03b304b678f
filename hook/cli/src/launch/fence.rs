//! Decides whether the driver enforces the limit of a run, and has it do so.
//! Touches: `decide` its arguments; `raise` the run's cgroup, and the driver (in a child).
//! Law: a limit is in force before the program's first instruction. Where the driver does not hold
//! it, the library does, unless the user asked for the driver: then the run does not start.

use crate::driver::inventory::{Inventory, Target};
use crate::driver::limit_probe::{self, Beside, Limit, LimitError};
use crate::launch::plan::Plan;
use crate::runs::leaf::Leaf;
use gpuslice_config::slice::{DriverLimit, Fence, Slice, Text, Total};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

/// The fence of a run, as planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FencePlan {
    /// What the user asks for.
    pub(crate) wanted: Fence,
    /// The GPUs whose limit the driver is to hold.
    pub(crate) devices: Vec<(DeviceUuid, Bytes)>,
    /// How the driver limits cgroups, if that is known beforehand.
    pub(crate) backend: Option<DriverLimit>,
    /// Why the driver holds no limit, or not that of every GPU.
    pub(crate) why_not: Option<String>,
}

impl FencePlan {
    /// Returns the fence as a word.
    pub(crate) fn name(&self) -> &'static str {
        match (self.devices.is_empty(), &self.why_not) {
            (false, None) => "driver",
            _ => "preload",
        }
    }
}

/// For `--dry-run`: the fence, and the reason where it is not the driver. One GPU that the driver
/// cannot limit leaves the whole run to the library.
impl fmt::Display for FencePlan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = self.backend.map(DriverLimit::word);
        match (self.devices.is_empty(), &self.why_not, backend) {
            (false, None, Some(backend)) => write!(out, "driver ({backend})")?,
            (false, None, None) => write!(out, "driver")?,
            (_, Some(why), _) => write!(out, "preload ({why})")?,
            (true, None, _) => write!(out, "preload")?,
        }
        match self.devices.is_empty() {
            true => Ok(()),
            false => write!(out, ", for a cgroup of the run if one can be made"),
        }
    }
}

/// The driver cannot enforce the limit of a run that asks for that.
#[derive(Debug, thiserror::Error)]
#[error(
    "the driver cannot enforce the limit of this slice: {0} (with --fence auto, the library holds it)"
)]
pub(crate) struct NoDriverFence(pub(crate) String);

/// Returns why the driver cannot limit cgroups on a device.
pub(crate) fn unable(target: &Target<'_>) -> Option<&'static str> {
    match target.device {
        device if device.integrated => Some("it shares the host's memory"),
        device if target.uuid != device.uuid => Some("it is a MIG instance"),
        device if !device.driver_limits => {
            Some("its driver cannot limit cgroups (R615 and later can)")
        }
        _ => None,
    }
}

/// Plans the fence of a slice. `obstacle`: what keeps the driver from enforcing the limit of any GPU.
///
/// # Errors
/// When the user asks for the driver and it cannot enforce the limit of every GPU of the slice.
pub(crate) fn decide(
    wanted: Fence,
    slice: &Slice,
    inventory: &Inventory,
    obstacle: Option<&'static str>,
) -> Result<FencePlan, NoDriverFence> {
    let mut plan = FencePlan {
        wanted,
        backend: inventory.backend,
        ..FencePlan::default()
    };
    if wanted == Fence::Preload {
        return Ok(plan);
    }
    let of_slice = match (slice.enforce, slice.total, slice.maximum) {
        (false, ..) => Some("the slice refuses no memory (--no-enforce)"),
        (true, Total::Device, _) => {
            Some("programs would see the limit as TOTAL, not the device's total")
        }
        (true, Total::Slice, Some(_)) => {
            Some("programs would see the limit as TOTAL, not the slice's maximum")
        }
        (true, Total::Slice, None) => None,
    };
    let obstacle = obstacle.or(of_slice).map(str::to_owned);
    let limited = inventory.targets().filter_map(|target| {
        let memory = slice.device(target.uuid)?.memory;
        // A limit above the device's memory limits nothing.
        let has_effect = target.total == Bytes::ZERO || memory <= target.total;
        has_effect.then_some((target, memory))
    });
    for (target, memory) in limited {
        match unable(&target) {
            Some(why) => {
                let why = format!("{target}: {why}");
                plan.why_not.get_or_insert(why);
            }
            None => plan.devices.push((target.uuid, memory)),
        }
    }
    if obstacle.is_some() {
        plan.devices.clear();
        plan.why_not = obstacle;
    }
    match (wanted, &plan.why_not) {
        (Fence::Driver, Some(why)) => Err(NoDriverFence(why.clone())),
        _ => Ok(plan),
    }
}

/// Has the driver enforce the limits of a run: in a cgroup of the run's own, which this process then
/// enters. None: the library holds them.
///
/// # Errors
/// When the user asks for the driver, and it does not enforce the limits.
pub(crate) fn raise(
    plan: &mut Plan,
    private: &Path,
    machine: &Machine,
) -> Result<Option<Leaf>, NoDriverFence> {
    let (fence, Some(slice)) = (&plan.fence, &mut plan.slice) else {
        return Ok(None);
    };
    if fence.devices.is_empty() {
        return Ok(None);
    }
    match limit(fence, private, machine) {
        Ok((leaf, backend)) => {
            slice.driver_cgroup = Some(Text::new(leaf.path()));
            for (uuid, _) in &fence.devices {
                slice.set_driver_limit(*uuid, Some(backend));
            }
            Ok(Some(leaf))
        }
        Err(NotHeld { why, .. }) if fence.wanted == Fence::Driver => Err(NoDriverFence(why)),
        Err(NotHeld { why, is_expected }) => {
            if !is_expected {
                let warning = format!("{why}: the library alone enforces the limit");
                plan.warnings.push(warning);
            }
            Ok(None)
        }
    }
}

/// The machine whose driver is asked.
pub(crate) struct Machine {
    /// The variables that choose a simulated machine.
    pub(crate) vars: Vec<(OsString, OsString)>,
    pub(crate) is_simulated: bool,
}

/// Why the driver does not hold a limit.
struct NotHeld {
    why: String,
    /// Whether that is normal on many machines, and no reason to warn.
    is_expected: bool,
}

impl NotHeld {
    fn expected(why: impl ToString) -> NotHeld {
        NotHeld {
            why: why.to_string(),
            is_expected: true,
        }
    }
}

/// The longest path of a cgroup that a slice file holds.
const LONGEST: usize = 255;

fn limit(
    fence: &FencePlan,
    private: &Path,
    machine: &Machine,
) -> Result<(Leaf, DriverLimit), NotHeld> {
    if !nix::unistd::geteuid().is_root() {
        return Err(NotHeld::expected("only root can set the limit of a cgroup"));
    }
    // The simulated driver holds its limits in cgroups of any kind.
    let needs_dmem = fence.backend == Some(DriverLimit::Dmem) && !machine.is_simulated;
    let leaf = Leaf::create(private, needs_dmem).map_err(NotHeld::expected)?;
    if leaf.path().len() > LONGEST {
        return Err(NotHeld::expected("the path of its cgroup is too long"));
    }
    let limits: Vec<Limit> = fence
        .devices
        .iter()
        .map(|(uuid, memory)| Limit {
            uuid: *uuid,
            hard: *memory,
            soft: Bytes::ZERO,
        })
        .collect();
    let unusual = |why: String| NotHeld {
        why,
        is_expected: false,
    };
    let answer = limit_probe::ask(leaf.folder(), &limits, Beside::NoneAbove, &machine.vars);
    let answer = answer.map_err(|error| unusual(error.to_string()))?;
    let held = answer.map_err(|error| match &error {
        LimitError::NoLibrary(_) | LimitError::NotThere(_) | LimitError::Above(_) => {
            NotHeld::expected(&error)
        }
        LimitError::Refused { .. } | LimitError::NotInForce(_) => unusual(error.to_string()),
    })?;
    leaf.enter().map_err(NotHeld::expected)?;
    let backend = held.backend.or(fence.backend).unwrap_or(DriverLimit::Misc);
    Ok((leaf, backend))
}

#[cfg(test)]
#[path = "fence_tests.rs"]
mod tests;
