//! Another size of the slice of a container, or of a pod.
//! Touches: the hook's lock, records and promises; the policy, the list of GPUs, the host's meminfo;
//! standard error.

use super::{Size, SizeError};
use crate::base::streams;
use crate::runs::tenancy::Card;
use anyhow::Context;
use gpuslice_config::promises;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::devices::Devices;
use gpuslice_host::machine::policy::{self, Policy};
use gpuslice_host::slices::admission::{Asking, admit};
use gpuslice_host::slices::records::{self, DeviceBudget, Registry, SliceRecord, unified};
use gpuslice_host::slices::{gc, host_state, tenants};
use std::path::PathBuf;

/// The slice of a container.
#[derive(Clone, Debug)]
pub(crate) struct ContainerSlice {
    /// The paths on the host.
    pub(crate) places: HostPaths,
    /// The id of one of its containers.
    pub(crate) container: String,
    /// The host's GPUs.
    pub(crate) devices: Devices,
}

impl ContainerSlice {
    /// Reads its record.
    ///
    /// # Errors
    /// When the record cannot be read, or the container has ended.
    pub(crate) fn record(&self) -> anyhow::Result<SliceRecord> {
        self.own(records::records(&self.places)?)
    }

    /// Returns the slice files of its containers.
    ///
    /// # Errors
    /// As [`ContainerSlice::record`].
    pub(crate) fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let members = self.record()?.containers.into_iter();
        let roots = members.map(|member| self.places.container_root(&member.id));
        Ok(roots.map(|root| root.join("slice.json")).collect())
    }

    fn own(&self, records: Vec<SliceRecord>) -> anyhow::Result<SliceRecord> {
        let is_own = |record: &SliceRecord| {
            let mut members = record.containers.iter();
            members.any(|member| member.id == self.container)
        };
        let own = records.into_iter().find(is_own);
        own.with_context(|| format!("container {} has ended", self.container))
    }
}

/// Checks sizes against the most that one container may have. A slice that is above it already, because
/// the policy has changed since, can still become smaller.
fn is_allowed(own: &SliceRecord, asked: &[DeviceBudget], policy: &Policy) -> Result<(), SizeError> {
    let maximum = policy.container_maximum(own.namespace.as_deref());
    let grows = |budget: &&DeviceBudget| {
        let mut held = own.devices.iter().filter(|held| held.uuid == budget.uuid);
        held.all(|held| budget.memory > held.memory)
    };
    let above = asked.iter().filter(grows).map(|budget| budget.memory).max();
    match (above, maximum) {
        (Some(asked), Some(maximum)) if asked > maximum => {
            Err(SizeError::AboveMaximum { asked, maximum })
        }
        _ => Ok(()),
    }
}

/// The hook's lock, and the records read under it.
pub(crate) struct ContainerAdmission<'a> {
    of: &'a ContainerSlice,
    registry: Registry<'a>,
    own: SliceRecord,
    living: Vec<SliceRecord>,
}

impl ContainerAdmission<'_> {
    pub(super) fn begin(of: &ContainerSlice) -> anyhow::Result<ContainerAdmission<'_>> {
        let registry = Registry::lock(&of.places)?;
        let living = gc::without_dead(&of.places, registry.records()?);
        Ok(ContainerAdmission {
            own: of.own(registry.records()?)?,
            of,
            registry,
            living,
        })
    }

    pub(super) fn admit(&self, cards: &[Card]) -> Result<(), SizeError> {
        let policy = policy::read(&self.of.places).map_err(anyhow::Error::new);
        let policy = policy.map_err(SizeError::Unusable)?;
        let asked = |budget: &DeviceBudget| {
            let card = cards.iter().find(|card| card.uuid == budget.uuid)?;
            let memory = card.asked;
            Some(DeviceBudget { memory, ..*budget })
        };
        let budgets: Vec<DeviceBudget> = self.own.devices.iter().filter_map(asked).collect();
        is_allowed(&self.own, &budgets, &policy)?;
        let host = match unified(&budgets) {
            Bytes::ZERO => None,
            _ => {
                let read = host_state::read(&self.of.places, &self.living);
                let mut host = read.map_err(SizeError::Unusable)?;
                // The slice's own spent memory counts as available to it.
                host.memory.available = host.memory.available.plus(self.spent());
                Some(host)
            }
        };
        let asking = Asking {
            slice: &self.own.slice,
            namespace: self.own.namespace.as_deref(),
            budgets: &budgets,
        };
        let runs = tenants::runs(&self.of.places);
        let devices = &self.of.devices;
        let admitted = admit(
            &asking,
            &self.living,
            &runs,
            devices,
            &policy,
            host.as_ref(),
        );
        // A running slice is not overcommitted: it could use memory that others were promised.
        match admitted {
            Err(error) => Err(SizeError::NoRoom(error.to_string())),
            Ok(Some(left)) => Err(SizeError::NoRoom(format!(
                "this host can promise the slice {left} of {}",
                unified(&budgets)
            ))),
            Ok(None) => Ok(()),
        }
    }

    fn spent(&self) -> Bytes {
        let own = host_state::promise(&self.of.places, &self.own.slice);
        let own = own.ok().flatten();
        own.map_or(Bytes::ZERO, |own| own.budget.minus(own.unused))
    }

    pub(super) fn record(&mut self, sizes: &[(DeviceUuid, Size)]) -> anyhow::Result<()> {
        let own = &mut self.own;
        let after = |budget: &DeviceBudget| DeviceBudget {
            memory: Size::of(sizes, budget.uuid, budget.memory),
            ..*budget
        };
        let budgets: Vec<DeviceBudget> = own.devices.iter().map(after).collect();
        let (places, promised) = (&self.of.places, unified(&budgets));
        let grows = sizes
            .iter()
            .any(|(_, size)| matches!(size, Size::Larger(_)));
        if promised > Bytes::ZERO
            && let Some(promise) = host_state::promise(places, &own.slice)?
        {
            let to = match grows {
                true => promised,
                false => promised.at_most(promise.budget),
            };
            let folder = places.promises();
            promises::rename(&folder, &own.slice, promise.budget, to)
                .with_context(|| format!("cannot change the promise in {}", folder.display()))?;
            own.promised = Some(to).filter(|to| *to != promised);
        }
        if budgets != own.devices {
            let before = own.devices.clone();
            own.before_resize.get_or_insert(before);
            own.devices = budgets;
            if let Some(uncounted) = self.registry.write(own)? {
                streams::tell(&format!("warning: {}: {uncounted}", own.name));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_cannot_grow_beyond_what_one_container_may_have() {
        let uuid = "GPU-3090aaaa-1111-4222-8333-444455550000".parse().unwrap();
        let of = |gib| DeviceBudget {
            uuid,
            memory: Bytes::gib(gib),
            integrated: false,
        };
        let own = SliceRecord {
            version: 1,
            slice: "c1".to_owned(),
            name: "c1".to_owned(),
            namespace: Some("team".to_owned()),
            shared: false,
            sandbox: None,
            named: None,
            devices: vec![of(12)],
            promised: None,
            before_resize: None,
            containers: Vec::new(),
        };
        for (policy, gib, is_granted) in [
            ("", 20, true),
            ("[maximum]\ncontainer = \"16GiB\"", 16, true),
            ("[maximum]\ncontainer = \"16GiB\"", 17, false),
            ("[namespaces.team]\ncontainer = \"13GiB\"", 14, false),
            // The policy was tightened after the container had started.
            ("[maximum]\ncontainer = \"8GiB\"", 10, true),
            ("[maximum]\ncontainer = \"8GiB\"", 13, false),
        ] {
            let policy = policy::parse(policy).unwrap();
            let result = is_allowed(&own, &[of(gib)], &policy);
            assert_eq!(result.is_ok(), is_granted, "{gib}: {result:?}");
        }
    }
}
