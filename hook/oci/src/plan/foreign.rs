//! Joins what other systems' keys request with what gpuslice's own keys and hooks request.
//! Touches: its arguments.
//! Law: two requests for one GPU that differ are refused, and both keys are named. A variable only
//! lowers.

use crate::plan::{PlanError, PlanInput};
use crate::request::annotations::{self, SliceRequest};
use crate::request::dialects::{self, Amount, Asked, DialectError, Given, Portion, Translation};
use crate::request::identity::{Annotations, Identity};
use crate::request::spec::Spec;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::devices::SliceTarget;
use gpuslice_host::machine::policy::Policy;
use gpuslice_host::slices::records::DeviceBudget;

/// Whether the container requests memory in another system's words, as the policy understands them.
pub(crate) fn is_foreign(policy: &Policy, annotations: &Annotations, spec: Option<&Spec>) -> bool {
    let asks = |annotations| {
        dialects::any(&Given {
            dialects: policy.dialects,
            annotations,
            env: spec.map(Spec::env).unwrap_or_default(),
            name: None,
            visible: None,
        })
    };
    asks(annotations) || spec.is_some_and(|spec| asks(&spec.annotations))
}

/// The requests of other systems' keys for one container.
pub(super) struct Foreign(Translation);

impl Foreign {
    /// Translates the keys of the dialects that the policy switches on.
    pub(super) fn of(
        given: &PlanInput<'_>,
        annotations: &Annotations,
        who: &Identity,
        visible: Option<&[DeviceUuid]>,
    ) -> Result<Foreign, DialectError> {
        let read = |visible| {
            dialects::read(&Given {
                dialects: given.policy.dialects,
                annotations,
                env: given.spec.env(),
                name: who.name.as_deref(),
                visible,
            })
        };
        let has_none = visible.is_some_and(<[_]>::is_empty);
        // Without a list of GPUs none is known.
        let known = visible.filter(|_| !given.devices.devices.is_empty());
        let translated = match read(known) {
            // A container without a GPU has no share.
            Err(DialectError::WhichShare(_)) if has_none => read(visible),
            translated => translated,
        };
        translated.map(Foreign)
    }

    /// Whether annotations of other systems request a slice.
    pub(super) fn asks(&self) -> bool {
        self.0.asked.is_some()
    }

    /// The upper bound that variables set.
    pub(super) fn ceiling(&self) -> Option<Bytes> {
        self.0.ceiling.as_ref().map(|(_, ceiling)| *ceiling)
    }

    /// Puts the amounts into a request that gives no size. Checks that they agree with one that does.
    /// `by_hooks`: its sizes are those of the container's hooks.
    pub(super) fn join(
        &self,
        mut asked: SliceRequest,
        by_hooks: bool,
        given: &PlanInput<'_>,
    ) -> Result<SliceRequest, PlanError> {
        let Some(foreign) = &self.0.asked else {
            return Ok(asked);
        };
        if asked.limits_something() {
            agree(&asked, foreign, by_hooks, given)?;
            // A request that names some GPUs leaves the others to these amounts.
            if asked.memory.is_some() || asked.portion.is_some() || by_hooks {
                return Ok(asked);
            }
        }
        match &foreign.amount {
            Amount::Size(size) => asked.memory = Some(*size),
            Amount::Portion(portion) => {
                // A GPU in no list has the smallest part. Without a list, any size will do.
                let targets = given.devices.targets();
                let least = targets.map(|target| portion.of(target.memory)).min();
                asked.memory = Some(least.unwrap_or(Bytes::mib(1)));
                asked.portion = Some(*portion);
            }
            Amount::Shares(shares) if asked.devices.is_empty() => {
                asked.devices = annotations::named(shares);
            }
            Amount::Shares(_) => {}
        }
        Ok(asked)
    }

    /// Lowers a request and its budgets to the upper bound of variables. Returns a note if a budget
    /// was larger.
    pub(super) fn lower(
        &self,
        asked: &mut SliceRequest,
        is_shared: bool,
        budgets: &mut [DeviceBudget],
    ) -> Option<String> {
        let (key, ceiling) = self.0.ceiling.as_ref()?;
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
            true => format!("{key}, {ceiling}, does not lower the slice that it shares"),
        })
    }

    /// The requests that cannot be honoured.
    pub(super) fn unheld(self) -> Vec<String> {
        self.0.unheld
    }
}

/// Checks that gpuslice's own request and a foreign one give each GPU the same.
fn agree(
    own: &SliceRequest,
    foreign: &Asked,
    by_hooks: bool,
    given: &PlanInput<'_>,
) -> Result<(), DialectError> {
    let key = |name: String| match by_hooks {
        true => "a hook in config.json".to_owned(),
        false => format!("{}{name}", annotations::PREFIX),
    };
    let by_name = |target: &SliceTarget<'_>| {
        let mut named = own.devices.iter();
        let named = named.find(|named| {
            let selected = given.devices.select(named.selector);
            selected.iter().any(|selected| selected.uuid == target.uuid)
        })?;
        let name = format!("memory.{}", named.selector);
        Some((key(name), named.memory))
    };
    let everywhere = || Some((key("memory".to_owned()), own.memory?));
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
