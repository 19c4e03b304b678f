//! Decides whether a container fits beside the running ones. `--dry-run` calls it too.
//! Touches: the host's meminfo and its promises, by reading them.

use crate::base::outcome::Stage;
use crate::plan::ContainerPlan;
use anyhow::{Context, bail};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::devices::Devices;
use gpuslice_host::machine::policy::Policy;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::admission::{Asking, admit};
use gpuslice_host::slices::host_state;
use gpuslice_host::slices::records::{DeviceBudget, SliceRecord, unified};
use gpuslice_host::slices::tenants;

/// A container that requests a slice.
pub(crate) struct Candidate<'a> {
    pub(crate) plan: &'a ContainerPlan,
    pub(crate) devices: &'a Devices,
    pub(crate) policy: &'a Policy,
    pub(crate) paths: &'a HostPaths,
    /// Its first process, where there is one.
    pub(crate) owner: Option<InitProcess>,
    pub(crate) stage: Stage,
}

/// The decision about a container.
pub(crate) enum Admission {
    /// An earlier stage has recorded the container, with this promise of host memory.
    Existing(Bytes),
    /// The container is admitted.
    New {
        /// Its slice; the container is not a member of it yet.
        record: Box<SliceRecord>,
        /// A message to report.
        note: Option<String>,
    },
}

impl Candidate<'_> {
    /// Decides. `records` are the slices with at least one live process.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub(crate) fn admit_beside(&self, records: &[SliceRecord]) -> anyhow::Result<Admission> {
        let plan = self.plan;
        let known = records.iter().find_map(|record| {
            let mut members = record.containers.iter();
            let member = members.find(|member| member.id == plan.container);
            member.map(|member| (member, host_state::promised(self.paths, record)))
        });
        match known {
            Some((member, promised)) if self.owner.is_some_and(|own| own.is(&member.owner)) => {
                return Ok(Admission::Existing(promised));
            }
            Some((member, _)) => bail!(
                "a container {} is running already (process {}, bundle {})",
                member.id,
                member.owner.pid,
                member.bundle.display()
            ),
            None => {}
        }
        // Mounts made in this stage are visible neither to other containers nor to the host. So
        // every container would be promised all of the memory.
        if self.stage == Stage::Container && unified(&plan.devices) > Bytes::ZERO {
            bail!(
                "{} requests unified memory, which requires the hook at createRuntime: at \
                 createContainer, other containers cannot see its promise",
                plan.name
            );
        }
        let own = records.iter().find(|record| record.slice == plan.slice);
        let shares = |record: &&SliceRecord| {
            let mut own = parts(plan.named.as_deref());
            own.any(|name| parts(record.named.as_deref()).any(|other| other == name))
        };
        match own.or_else(|| records.iter().find(shares)) {
            Some(record) if self.stage == Stage::Container => bail!(
                "slice {} is shared, which requires the hook at createRuntime: at createContainer, \
                 it cannot reach the ledger of the other containers",
                record.slice
            ),
            Some(record) if record.named != plan.named => bail!(
                "{} uses the slices {} together, and {} uses {}: containers that share one of several \
                 slices must share all of them (request one claim with one size for each GPU)",
                plan.name,
                plan.named.as_deref().unwrap_or_default(),
                record.name,
                record.named.as_deref().unwrap_or_default()
            ),
            Some(record) if !may_join(record, plan) && plan.named.is_some() => bail!(
                "slice {} is used by {} alone, which is in another namespace, or whose limit the driver holds",
                plan.named.as_deref().unwrap_or_default(),
                record.name
            ),
            Some(record) if !may_join(record, plan) => bail!(
                "slice {} belongs to another pod ({}): only containers with the same sandbox id and \
                 namespace share a slice",
                record.slice,
                record.name
            ),
            Some(record) if record.annotated() != plan.devices => bail!(
                "slice {} is shared with {}, which has another budget: {}, and not {}",
                plan.named.as_ref().unwrap_or(&record.slice),
                record.name,
                listed(record.annotated()),
                listed(&plan.devices)
            ),
            Some(record) => Ok(Admission::New {
                record: Box::new(record.clone()),
                note: None,
            }),
            None => {
                let promised = self.room(records)?;
                let record = SliceRecord {
                    version: SliceRecord::VERSION,
                    slice: plan.slice.clone(),
                    name: plan.name.clone(),
                    namespace: plan.namespace.clone(),
                    shared: plan.shared,
                    sandbox: plan.sandbox.clone(),
                    named: plan.named.clone(),
                    devices: plan.devices.clone(),
                    promised,
                    before_resize: None,
                    containers: Vec::new(),
                };
                let note = promised.map(|promised| overcommitted(plan, promised));
                let record = Box::new(record);
                Ok(Admission::New { record, note })
            }
        }
    }

    fn room(&self, records: &[SliceRecord]) -> anyhow::Result<Option<Bytes>> {
        let plan = self.plan;
        let host = match unified(&plan.devices) {
            Bytes::ZERO => None,
            _ => Some(host_state::read(self.paths, records).context(HostUnread)?),
        };
        let asking = Asking {
            slice: &plan.slice,
            namespace: plan.namespace.as_deref(),
            budgets: &plan.devices,
        };
        let runs = tenants::runs(self.paths);
        admit(
            &asking,
            records,
            &runs,
            self.devices,
            self.policy,
            host.as_ref(),
        )
        .with_context(|| match &plan.note {
            Some(note) => format!("no room for {} ({note})", plan.name),
            None => format!("no room for {}", plan.name),
        })
    }
}

/// Whether a slice belongs to the plan's pod, or has the plan's names. Its id proves nothing,
/// because tenants can see it.
fn may_join(record: &SliceRecord, plan: &ContainerPlan) -> bool {
    plan.shared
        && record.shared
        && (plan.sandbox.is_some() || plan.named.is_some())
        && (&record.sandbox, &record.named) == (&plan.sandbox, &plan.named)
        && record.namespace == plan.namespace
}

fn parts(names: Option<&str>) -> impl Iterator<Item = &str> {
    names.into_iter().flat_map(|names| names.split(','))
}

/// Budgets, for a message: `8.00 GiB of GPU-1b7d7c5e-...`.
fn listed(budgets: &[DeviceBudget]) -> String {
    let each = budgets.iter();
    let each = each.map(|budget| format!("{} of {}", budget.memory, budget.uuid));
    each.collect::<Vec<_>>().join(", ")
}

/// The message for a slice that policy admits although there is no room for it.
fn overcommitted(plan: &ContainerPlan, promised: Bytes) -> String {
    let asked = unified(&plan.devices);
    format!(
        "{} is over-committed by {}: it requests {asked} and is promised the remaining {promised}",
        plan.name,
        asked.minus(promised)
    )
}

/// The host's available memory, or its promises, cannot be read.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("cannot read this host's memory or its promises, so no slice of it is admitted")]
pub(crate) struct HostUnread;
