//! Determines which GPUs CUDA shows a program, and whether the slice limits them.
//! Touches: its arguments.
//!
//! `CUDA_VISIBLE_DEVICES` names GPUs by CUDA's ordinals. `CUDA_DEVICE_ORDER` may order these
//! differently from nvidia-smi. The driver was queried in the program's environment, so its
//! ordinals are those of the program.

use crate::driver::inventory::{Inventory, Target};
use crate::slice::budget;
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;

/// The variable that hides GPUs from a program.
pub(crate) const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// Returns the GPUs that a value of the variable names. As in CUDA, the list ends at the first
/// unknown name. Returns None if the value has a form that this function cannot read.
#[must_use]
pub(crate) fn named(text: &str, inventory: &Inventory) -> Option<Vec<DeviceUuid>> {
    let mut seen = Vec::new();
    for name in text.split(',').map(str::trim) {
        let of_device: Vec<DeviceUuid> = match name.parse::<u32>() {
            Ok(ordinal) => inventory
                .targets()
                .filter(|target| {
                    let ordinals = [target.cuda_ordinal, target.device.cuda_ordinal];
                    ordinals.contains(&Some(ordinal))
                })
                .map(|target| target.uuid)
                .collect(),
            Err(_) if name.contains('/') => return None,
            Err(_) if name.starts_with("GPU-") || name.starts_with("MIG-") => inventory
                .targets()
                .filter(|target| {
                    let is = |uuid: DeviceUuid| uuid.to_string().starts_with(name);
                    is(target.uuid) || is(target.device.uuid)
                })
                .map(|target| target.uuid)
                .collect(),
            Err(_) => Vec::new(),
        };
        if of_device.is_empty() {
            break;
        }
        seen.extend(of_device);
    }
    Some(seen)
}

/// The error when the slice limits none of the GPUs that the program sees.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the program would not be limited: it sees {seen} ({VARIABLE}{set}), and the slice limits \
     {limited}{fix}"
)]
pub(crate) struct Unseen {
    seen: String,
    set: String,
    limited: String,
    fix: String,
}

/// The GPUs that a program sees.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// The value of `CUDA_VISIBLE_DEVICES`.
    value: Option<&'a str>,
    /// Whether `named` can read the value's form.
    is_known: bool,
    targets: Vec<Target<'a>>,
}

impl<'a> Seen<'a> {
    /// Determines the GPUs that a program sees with this value of the variable.
    #[must_use]
    pub(crate) fn with(value: Option<&'a str>, inventory: &'a Inventory) -> Seen<'a> {
        let names = value.map(|value| named(value, inventory));
        let is_seen = |target: &Target<'_>| match &names {
            Some(Some(names)) => names.contains(&target.uuid),
            Some(None) => true,
            // CUDA lists only one instance of a GPU that MIG divides.
            None => target.cuda_ordinal.or(target.device.cuda_ordinal).is_some(),
        };
        Seen {
            value,
            is_known: !matches!(names, Some(None)),
            targets: inventory.targets().filter(is_seen).collect(),
        }
    }

    /// Checks whether the program sees this GPU.
    #[must_use]
    pub(crate) fn contains(&self, uuid: DeviceUuid) -> bool {
        self.targets.iter().any(|target| target.uuid == uuid)
    }

    /// Checks that the slice limits at least one GPU that the program sees.
    ///
    /// # Errors
    /// When the slice limits none of them.
    pub(crate) fn check(&self, slice: &Slice, inventory: &Inventory) -> Result<(), Unseen> {
        let limited = |target: &Target<'_>| limits(slice, target);
        if !self.is_known || self.targets.is_empty() || self.targets.iter().any(limited) {
            return Ok(());
        }
        let limited: Vec<Target<'_>> = inventory.targets().filter(limited).collect();
        Err(Unseen {
            seen: names(&self.targets),
            set: match self.value {
                Some(value) => format!("={}", crate::base::text::printable(value)),
                None => " is not set".to_owned(),
            },
            limited: match limited.as_slice() {
                [] => "no GPU".to_owned(),
                limited => names(limited),
            },
            fix: match limited.as_slice() {
                [] => String::new(),
                limited => format!("; set {VARIABLE}={}", variable(limited)),
            },
        })
    }

    /// Returns the message about the GPUs that the program sees and the slice does not name; None
    /// if the slice names all of them.
    #[must_use]
    pub(crate) fn gap(&self, slice: &Slice) -> Option<String> {
        let is_named = |target: &&Target<'_>| slice.device(target.uuid).is_some();
        let (limited, rest): (Vec<Target<'_>>, Vec<Target<'_>>) =
            self.targets.iter().partition(is_named);
        let them = match rest.as_slice() {
            [] => return None,
            [_] => "it",
            _ => "them",
        };
        let fix = match limited.as_slice() {
            [] => String::new(),
            limited => format!("; {VARIABLE}={} hides {them}", variable(limited)),
        };
        let (seen, rest) = (names(&self.targets), names(&rest));
        Some(format!(
            "the program sees {seen}, and the slice does not limit {rest}{fix}"
        ))
    }
}

/// Checks whether the slice limits a GPU. A limit that exceeds the GPU's memory does not.
fn limits(slice: &Slice, target: &Target<'_>) -> bool {
    let limit = slice.device(target.uuid).map(|device| device.memory);
    limit.is_some_and(|limit| !budget::over(limit, target))
}

/// Formats GPUs as a list in a sentence.
fn names(targets: &[Target<'_>]) -> String {
    let names: Vec<String> = targets
        .iter()
        .map(|target| match target.uuid == target.device.uuid {
            true => format!("GPU {}", target.device.index),
            false => target.uuid.to_string(),
        })
        .collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Returns the value of `CUDA_VISIBLE_DEVICES` that names these GPUs.
fn variable(targets: &[Target<'_>]) -> String {
    let names = targets.iter().map(|target| {
        let ordinal = target.cuda_ordinal.map(|ordinal| ordinal.to_string());
        ordinal.unwrap_or_else(|| target.uuid.to_string())
    });
    names.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
#[path = "visible_gpus_tests.rs"]
mod tests;
