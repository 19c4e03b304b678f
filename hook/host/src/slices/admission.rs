//! Decides whether one more slice fits.
//! Touches: its arguments.
//! Law: memory is promised beyond what exists only where the operator's policy allows it. A refusal
//! names the slices that hold the memory.

use crate::base::text::shown;
use crate::machine::devices::{Devices, SliceTarget};
use crate::machine::policy::Policy;
use crate::slices::records::{DeviceBudget, SliceRecord, unified};
use crate::slices::tenants::Tenant;
use gpuslice_config::answer::room::HostRoom;
use gpuslice_config::host::meminfo::HostMemory;
use gpuslice_config::slice::host_reserve::default_reserve;
use gpuslice_config::words::units::Bytes;
use std::fmt;

/// The slice that requests admission.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// The slice's id.
    pub slice: &'a str,
    /// The namespace whose share it counts against.
    pub namespace: Option<&'a str>,
    /// The budgets that it requests.
    pub budgets: &'a [DeviceBudget],
}

/// The host's own memory, where a GPU shares it.
#[derive(Clone, Debug)]
pub struct HostState {
    /// The kernel's current reading.
    pub memory: HostMemory,
    /// The promises that are not yet used up.
    pub unused: Vec<Unused>,
}

/// The part of a slice's promise that the slice does not use yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// The slice's id.
    pub slice: String,
    /// Its display name.
    pub name: String,
    /// The unused bytes.
    pub memory: Bytes,
}

/// The slices that hold memory, with their sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holders(pub Vec<(String, Bytes)>);

impl fmt::Display for Holders {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return out.write_str("no slice holds any");
        }
        // A machine may have hundreds of slices, but a runtime shows only a few lines of an error.
        const SHOWN: usize = 12;
        out.write_str("held by ")?;
        for (place, (name, memory)) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(out, "{comma}{name} {memory}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(out, " and {more} more"),
        }
    }
}

/// Why a slice is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The GPU is smaller than the slice.
    #[error("{asked} is more than {device} has")]
    Device {
        /// The GPU.
        device: String,
        /// The requested size.
        asked: Bytes,
    },
    /// The GPU is full.
    #[error(
        "{device} has {} left, {} requested; {holders}",
        .left.beside(*.asked),
        .asked.beside(*.left)
    )]
    Full {
        /// The GPU.
        device: String,
        /// The bytes left on it.
        left: Bytes,
        /// The requested size.
        asked: Bytes,
        /// The slices that hold the rest.
        holders: Holders,
    },
    /// The namespace would exceed its share.
    #[error(
        "namespace {namespace} may have {maximum} of {device} (this host's policy), {asked} requested; \
         {holders}"
    )]
    Namespace {
        /// The namespace.
        namespace: String,
        /// The policy's bound.
        maximum: Bytes,
        /// The GPU.
        device: String,
        /// The requested size.
        asked: Bytes,
        /// The slices that hold the rest.
        holders: Holders,
    },
    /// The host's memory is already promised.
    #[error(
        "a slice of {asked} does not fit on this host, which can promise {left}: {available} is \
         available, {reserve} of it stays the host's, {promised} is promised and not used yet \
         ({holders})"
    )]
    Host {
        /// `MemAvailable`.
        available: Bytes,
        /// The reserve R.
        reserve: Bytes,
        /// Unused promises of the other slices.
        promised: Bytes,
        /// The bytes left.
        left: Bytes,
        /// The requested size.
        asked: Bytes,
        /// The slices with those promises.
        holders: Holders,
    },
    /// The host's memory cannot be read.
    #[error("cannot read this host's meminfo, so no slice of its memory is admitted")]
    NoHost,
}

/// Checks that the slice fits beside the containers, and beside the runs on GPUs with memory of
/// their own. If `overcommit` admits a slice larger than the remaining host memory, returns the
/// amount that it can be promised. A larger promise would take memory from the slices admitted
/// before.
///
/// # Errors
/// [`AdmissionError`] names the memory that is short.
pub fn admit(
    asking: &Asking<'_>,
    held: &[SliceRecord],
    runs: &[Tenant],
    devices: &Devices,
    policy: &Policy,
    host: Option<&HostState>,
) -> Result<Option<Bytes>, AdmissionError> {
    let others = || held.iter().filter(|record| record.slice != asking.slice);
    for budget in asking.budgets {
        let target = devices.targets().find(|target| target.uuid == budget.uuid);
        let Some(target) = target else { continue };
        if budget.memory > target.memory {
            return Err(AdmissionError::Device {
                device: target.to_string(),
                asked: budget.memory,
            });
        }
        if !policy.overcommit && !budget.integrated {
            fits(budget, &target, others(), runs)?;
        }
        namespace_fits(asking, budget, &target, others(), policy)?;
    }
    match unified(asking.budgets) {
        Bytes::ZERO => Ok(None),
        asked => {
            let fits = host_fits(asked, asking, policy, host.ok_or(AdmissionError::NoHost)?);
            match fits {
                // A promise of 0 bytes cannot be encoded in a file name, so the minimum is one
                // byte.
                Err(AdmissionError::Host { left, .. }) if policy.overcommit => {
                    Ok(Some(left.at_least(Bytes::new(1))))
                }
                fits => fits.map(|()| None),
            }
        }
    }
}

fn holders<'a>(
    budget: &DeviceBudget,
    others: impl Iterator<Item = &'a SliceRecord>,
) -> (Bytes, Holders) {
    let of = |record: &SliceRecord| {
        let same = record
            .devices
            .iter()
            .filter(|held| held.uuid == budget.uuid);
        same.fold(Bytes::ZERO, |sum, held| sum.plus(held.memory))
    };
    let held = others.map(|record| (record.name.clone(), of(record)));
    let holders: Vec<_> = held.filter(|(_, memory)| *memory > Bytes::ZERO).collect();
    let sum = holders
        .iter()
        .fold(Bytes::ZERO, |sum, (_, memory)| sum.plus(*memory));
    (sum, Holders(holders))
}

fn fits<'a>(
    budget: &DeviceBudget,
    target: &SliceTarget<'_>,
    others: impl Iterator<Item = &'a SliceRecord>,
    runs: &[Tenant],
) -> Result<(), AdmissionError> {
    let (sum, mut holders) = holders(budget, others);
    let mut left = target.memory.minus(sum);
    for run in runs {
        let memory = run.of_card(budget.uuid, target.memory);
        if memory > Bytes::ZERO {
            left = left.minus(memory);
            holders.0.push((run.shown(0), memory));
        }
    }
    match budget.memory <= left {
        true => Ok(()),
        false => Err(AdmissionError::Full {
            device: target.to_string(),
            left,
            asked: budget.memory,
            holders,
        }),
    }
}

fn namespace_fits<'a>(
    asking: &Asking<'_>,
    budget: &DeviceBudget,
    target: &SliceTarget<'_>,
    others: impl Iterator<Item = &'a SliceRecord>,
    policy: &Policy,
) -> Result<(), AdmissionError> {
    let Some(maximum) = policy.namespace_maximum(asking.namespace) else {
        return Ok(());
    };
    let same = others.filter(|record| record.namespace.as_deref() == asking.namespace);
    let (sum, holders) = holders(budget, same);
    match budget.memory <= maximum.minus(sum) {
        true => Ok(()),
        false => Err(AdmissionError::Namespace {
            namespace: shown(asking.namespace.unwrap_or("(none)")),
            maximum,
            device: target.to_string(),
            asked: budget.memory,
            holders,
        }),
    }
}

/// `MemAvailable` already excludes the memory that the host uses when idle. So admission checks it,
/// not `MemTotal`, and checks it when a container starts.
fn host_fits(
    asked: Bytes,
    asking: &Asking<'_>,
    policy: &Policy,
    host: &HostState,
) -> Result<(), AdmissionError> {
    let reserve = policy.reserve;
    let reserve = reserve.unwrap_or_else(|| default_reserve(host.memory.total));
    let others = host
        .unused
        .iter()
        .filter(|unused| unused.slice != asking.slice && unused.memory > Bytes::ZERO);
    let holders: Vec<_> = others
        .map(|unused| (unused.name.clone(), unused.memory))
        .collect();
    let promised = holders
        .iter()
        .fold(Bytes::ZERO, |sum, (_, unused)| sum.plus(*unused));
    let available = host.memory.available;
    let room = HostRoom {
        available,
        reserve,
        promised,
    };
    let left = room.left();
    match asked <= left {
        true => Ok(()),
        false => Err(AdmissionError::Host {
            available,
            reserve,
            promised,
            left,
            asked,
            holders: Holders(holders),
        }),
    }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
