//! Joins what other systems' keys request with what gpuslice's own keys and hooks request.
//! Touches: its arguments.
//! Law: two requests for one GPU that differ are refused, and both keys are named. A variable only
//! lowers.

use crate::plan::{PlanError, PlanInput};
use crate::request::annotations::{self, AnnotatedRequest, SliceRequest};
use crate::request::dialects::{self, Amount, Asked, DialectError, Given, Portion, Translation};
use crate::request::identity::{Annotations, Identity};
use crate::request::spec::Spec;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::devices::SliceTarget;
use gpuslice_host::machine::policy::Policy;
use gpuslice_host::slices::records::DeviceBudget;

/// Whether the container requests memory in another system's words, as the policy understands them.
pub(crate) fn is_foreign(policy: &Policy, annotations: &Annotations, spec: &Spec) -> bool {
    let asks = |annotations| {
        dialects::any(&Given {
            dialects: policy.dialects,
            annotations,
            env: spec.env(),
            name: None,
            visible: None,
        })
    };
    asks(annotations) || asks(&spec.annotations)
}

/// What other systems' keys request for one container.
pub(super) struct Foreign(Translation);

impl Foreign {
    /// Translates the keys of the dialects that the policy switches on.
    pub(super) fn of(
        given: &PlanInput<'_>,
        annotations: &Annotations,
        who: &Identity,
        visible: Option<&[DeviceUuid]>,
    ) -> Result<Foreign, DialectError> {
        let translated = dialects::read(&Given {
            dialects: given.policy.dialects,
            annotations,
            env: given.spec.env(),
            name: who.name.as_deref(),
            // Without a list of GPUs none is known.
            visible: visible.filter(|_| !given.devices.devices.is_empty()),
        });
        translated.map(Foreign)
    }

    /// The size that holds on every GPU if gpuslice's own annotations give none.
    pub(super) fn memory(&self, given: &PlanInput<'_>) -> Option<Bytes> {
        let asked = self.0.asked.as_ref()?;
        let targets = given.devices.targets();
        let sizes = targets.filter_map(|target| asked.amount.on(target.uuid, target.memory));
        // The list of GPUs is read only if the container gets a slice. Until then, any size will do.
        Some(sizes.min().unwrap_or(Bytes::mib(1)))
    }

    /// The request of a container that has no other request, and so the whole GPU.
    pub(super) fn lowers_all(&self) -> Option<SliceRequest> {
        let (_, ceiling) = self.0.ceiling.as_ref()?;
        Some(SliceRequest {
            memory: Some(*ceiling),
            portion: Some(Portion::WHOLE),
            ..SliceRequest::default()
        })
    }

    /// Puts the amounts into a request that was read with [`Foreign::memory`].
    pub(super) fn join(
        &self,
        mut asked: SliceRequest,
        hook: Option<Bytes>,
        given: &PlanInput<'_>,
        annotations: &Annotations,
        who: &Identity,
    ) -> Result<SliceRequest, PlanError> {
        if let Some(foreign) = &self.0.asked {
            let own = || annotations::read(annotations, who);
            if hook.is_some() || matches!(own(), Ok(AnnotatedRequest::Slice(_))) {
                agree(&asked, foreign, hook, given)?;
            } else {
                match &foreign.amount {
                    Amount::Size(_) => {}
                    Amount::Portion(portion) => asked.portion = Some(*portion),
                    Amount::Shares(shares) => {
                        asked.memory = None;
                        asked.devices = annotations::named(shares);
                    }
                }
            }
        }
        Ok(asked)
    }

    /// Lowers a request and its budgets to the upper bound of variables. Returns a note if a budget
    /// was larger.
    pub(super) fn lower(
        &self,
        asked: &mut SliceRequest,
        budgets: &mut [DeviceBudget],
    ) -> Option<String> {
        let (key, ceiling) = self.0.ceiling.as_ref()?;
        let is_shared = asked.shared;
        let is_whole = asked.portion == Some(Portion::WHOLE);
        if !is_shared {
            asked.memory = asked.memory.map(|memory| memory.at_most(*ceiling));
        }
        let larger = budgets.iter_mut().filter(|budget| budget.memory > *ceiling);
        let mut count = 0_usize;
        for budget in larger {
            count = count.saturating_add(1);
            if !is_shared {
                budget.memory = *ceiling;
            }
        }
        (count > 0 && !is_whole).then(|| match is_shared {
            false => format!("its slice is no larger than {key}, {ceiling}"),
            // Memory of the other containers could use up what this one may still allocate.
            true => format!("{key}, {ceiling}, does not lower the slice that its pod shares"),
        })
    }

    /// What cannot be honoured.
    pub(super) fn unheld(self) -> Vec<String> {
        self.0.unheld
    }
}

/// Checks that gpuslice's own request and a foreign one give each GPU the same.
fn agree(
    own: &SliceRequest,
    foreign: &Asked,
    hook: Option<Bytes>,
    given: &PlanInput<'_>,
) -> Result<(), DialectError> {
    let by_name = |target: &SliceTarget<'_>| {
        let mut named = own.devices.iter();
        let named = named.find(|named| {
            let selected = given.devices.select(named.selector);
            selected.iter().any(|selected| selected.uuid == target.uuid)
        })?;
        Some((
            format!("{}memory.{}", annotations::PREFIX, named.selector),
            named.memory,
        ))
    };
    let everywhere = || {
        let key = match hook {
            Some(_) => "a hook in config.json".to_owned(),
            None => format!("{}memory", annotations::PREFIX),
        };
        Some((key, own.memory?))
    };
    for target in given.devices.targets() {
        let Some(memory) = foreign.amount.on(target.uuid, target.memory) else {
            continue;
        };
        match by_name(&target).or_else(everywhere) {
            Some((key, size)) if size != memory => {
                return Err(DialectError::Differ {
                    one: (key, size.to_string()),
                    other: (foreign.key.clone(), format!("{} ({memory})", foreign.value)),
                });
            }
            _ => {}
        }
    }
    Ok(())
}
