//! Plans everything that is done for one container.
//! Touches: its arguments. Law: pure, so that the plan can be printed and checked before it is
//! carried out.

pub(crate) mod budgets;
mod error;
mod fence;
mod foreign;
mod mounts;
pub(crate) mod neighbours;
mod others;
mod unrequested;

pub use error::PlanError;
pub(crate) use foreign::is_foreign;
pub use mounts::PlannedMount;
pub(crate) use mounts::{PROC_MEMINFO, READ_ONLY, READ_ONLY_DATA};
pub(crate) use unrequested::NO_GPU;

use crate::plan::budgets::Budgets;
use crate::plan::foreign::Foreign;
use crate::plan::others::NamedBy;
use crate::request::annotations::{self, AnnotatedRequest, SliceRequest};
use crate::request::hook_slices::{self, HookSlice};
use crate::request::identity::{Annotations, Identity};
use crate::request::spec::Spec;
use crate::request::state::{State, is_id};
use crate::request::toolkit_limit;
use crate::request::visible_gpus;
use gpuslice_config::ledger::key_of;
use gpuslice_config::slice::{
    self, Fence, ListedDevice, PageCache, PresentAs, Slice, SliceError, Text,
};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::{HostPaths, MOUNT, PRELOAD};
use gpuslice_host::machine::devices::Devices;
use gpuslice_host::machine::meminfo::ShownBy;
use gpuslice_host::machine::pod::Pod;
use gpuslice_host::machine::policy::Policy;
use gpuslice_host::slices::records::{DeviceBudget, unified};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The prefix of the id of a pod's slice.
const POD: &str = "pod-";

/// The prefix of the id of a named slice.
const NAMED: &str = "named-";

/// The id of a pod's slice. Every tenant of unified memory sees this id. If it were the sandbox's
/// id, a tenant could request the slice by a forged annotation. The hash (FNV-1a) need not be a
/// cryptographic one: 64 bits do not determine the 256 that engines draw, and the record compares
/// all of them.
fn pod_slice(sandbox: &str) -> String {
    hashed(POD, sandbox)
}

/// The id of the slice of these names. The record compares the names.
fn named_slice(names: &str) -> String {
    hashed(NAMED, names)
}

/// Whether a slice of this id may be that of a container: its own, its pod's, or a named one.
#[must_use]
pub fn may_be_of(slice: &str, container: &str, sandbox: &str) -> bool {
    slice == container || slice == pod_slice(sandbox) || slice.starts_with(NAMED)
}

fn hashed(prefix: &str, text: &str) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{prefix}{hash:016x}")
}

/// Whether a container's id could be taken for the id of a slice that is shared, or of a run's
/// promise (`run.PID.START.NAME`).
pub(crate) fn is_reserved(id: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let shared = id.strip_prefix(POD).or_else(|| id.strip_prefix(NAMED));
    let mut parts = id.splitn(4, '.');
    let run = parts.next() == Some("run")
        && parts.next().is_some_and(digits)
        && parts.next().is_some_and(digits);
    run || shared
        .is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The inputs of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The runtime's state of the container.
    pub state: &'a State,
    /// The container's configuration.
    pub spec: &'a Spec,
    /// The operator's policy.
    pub policy: &'a Policy,
    /// The host's GPUs.
    pub devices: &'a Devices,
    /// The paths on the host.
    pub paths: &'a HostPaths,
    /// The slice that this hook's own arguments give.
    pub own: &'a HookSlice,
}

/// The decision about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is left alone, for this reason.
    Nothing(&'static str),
    /// It gets a slice.
    Slice(Box<ContainerPlan>),
}

/// A container's slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContainerPlan {
    /// The container.
    pub container: String,
    /// Its display name.
    pub name: String,
    /// The slice: the container's own, its pod's, or a named one.
    pub slice: String,
    /// Whether other containers may share it.
    pub shared: bool,
    /// The names by which they share it, with commas between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named: Option<String>,
    /// The id of that pod's sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The namespace whose share it counts against.
    pub namespace: Option<String>,
    /// Its place in Kubernetes, which only its record needs.
    #[serde(skip)]
    pub pod: Option<Pod>,
    /// The budgets to admit.
    pub devices: Vec<DeviceBudget>,
    /// Whether the container certainly has no GPU.
    #[serde(skip)]
    pub has_no_gpu: bool,
    /// The mechanism that enforces the limit.
    pub fence: Fence,
    /// The files written on the host.
    pub files: Vec<PlannedFile>,
    /// The mounts made in the container, in this order.
    pub mounts: Vec<PlannedMount>,
    /// The host's folders whose resident pages are dropped before it starts and after it stops.
    pub drops: Vec<PathBuf>,
    /// A note for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The requests in the words of other systems that the container does not get.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unheld: Vec<String>,
}

/// A file on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedFile {
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
}

/// Decides whether a container gets a slice, and plans it.
///
/// # Errors
/// [`PlanError`] says why the container cannot have the slice that it requests.
pub fn decide(given: &PlanInput<'_>) -> Result<Decision, PlanError> {
    let annotations = both(given);
    let mut who = Identity::of(&given.state.id, &annotations);
    if who.is_sandbox {
        return Ok(Decision::Nothing("it only holds a pod's namespaces"));
    }
    let by_hooks = hook_slices::of(given.spec, given.own)?;
    // An image can write annotations, but no hooks.
    if let Some(namespace) = by_hooks.as_ref().and_then(|given| given.namespace.as_ref()) {
        who.namespace = Some(namespace.clone());
    }
    let visible = visible_gpus::of(given.spec, given.devices);
    let foreign = Foreign::of(given, &annotations, &who, visible.as_deref())?;
    let sized = by_hooks.is_some() || foreign.asks();
    let annotated = annotations::read_beside(&annotations, &who, sized)?;
    let asked = match (annotated, &by_hooks) {
        (AnnotatedRequest::Slice(request), None) => request,
        (AnnotatedRequest::Slice(request), Some(by_hooks)) => {
            by_hooks.with(request, given.devices)?
        }
        (_, Some(by_hooks)) => by_hooks.request.clone(),
        (_, None) if foreign.asks() => SliceRequest::default(),
        (_, None) if given.policy.deny_unannotated && given.policy.default.is_none() => {
            return Err(PlanError::Unannotated);
        }
        (_, None) => match unrequested::of(given, &who, &foreign, visible.as_deref()) {
            Ok(request) => request,
            Err(why) => return Ok(Decision::Nothing(why)),
        },
    };
    let asked = foreign.join(asked, by_hooks.is_some(), given)?;
    let by = NamedBy::of(by_hooks.as_ref(), foreign.asks());
    let budgets = budgets::of(&asked, given, &who, visible.as_deref(), by)?;
    if !asked.limits_something() && budgets.each.is_empty() && budgets.elsewhere.is_none() {
        return Ok(Decision::Nothing(unrequested::UNBOUNDED));
    }
    let named = by_hooks.and_then(|by_hooks| by_hooks.named);
    let plan = plan(asked, named, budgets, given, who, foreign)?;
    Ok(Decision::Slice(Box::new(plan)))
}

/// The annotations of the state and of the configuration together. Some runtimes pass on only one
/// of them.
fn both(given: &PlanInput<'_>) -> Annotations {
    let mut annotations = given.state.annotations.clone();
    let spec = given.spec.annotations.iter();
    annotations.extend(spec.map(|(key, value)| (key.clone(), value.clone())));
    annotations
}

fn plan(
    mut asked: SliceRequest,
    named: Option<String>,
    budgets: Budgets,
    given: &PlanInput<'_>,
    who: Identity,
    foreign: Foreign,
) -> Result<ContainerPlan, PlanError> {
    let Budgets {
        each: mut devices,
        note,
        elsewhere,
        has_no_gpu,
    } = budgets;
    // Of two sizes for a GPU that is not listed, the smaller one is safe on each.
    asked.memory = asked.memory.into_iter().chain(elsewhere).min();
    let lowered = match asked.shared || named.is_some() {
        false => toolkit_limit::lower(given.spec, &mut devices).map(|limit| {
            format!(
                "its slice is no larger than NVIDIA_GPU_MEMORY_LIMIT, {limit}, which NVIDIA's \
                toolkit enforces"
            )
        }),
        // Other containers share the slice. If this container's limit lowered it, their memory could
        // use up what this one may still allocate.
        true => toolkit_limit::lower(given.spec, &mut devices.clone()).map(|limit| {
            format!(
                "NVIDIA's toolkit limits this container alone to {limit} \
                 (NVIDIA_GPU_MEMORY_LIMIT); it shares the pod's or the claim's larger slice"
            )
        }),
    };
    let is_shared = asked.shared || named.is_some();
    let bounded = foreign.lower(&mut asked, is_shared, &mut devices);
    let notes: Vec<String> = note.into_iter().chain(lowered).chain(bounded).collect();
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    let id = given.state.id.clone();
    if is_reserved(&id) {
        return Err(PlanError::Reserved(id));
    }
    let slice = match (&named, asked.shared, &who.sandbox) {
        (Some(names), ..) => named_slice(names),
        (None, false, _) => id.clone(),
        // A short id could be guessed.
        (None, true, Some(sandbox)) if is_id(sandbox) && sandbox.len() >= 16 => pod_slice(sandbox),
        (None, true, _) => return Err(PlanError::NoPod),
    };
    let text = slice_file(&asked, &devices, given.policy, &who, ledger_id(&slice))?;
    let fence = fence::of(&asked, &devices, given)?;
    let root = given.paths.container_root(&id);
    let file = |name: &str, text: String| PlannedFile {
        path: root.join(name),
        text,
    };
    let files = vec![file("slice.json", text), file(PRELOAD, preload_list())];
    let promised = unified(&devices);
    let place = who.place();
    let shown = asked.meminfo.or(given.policy.meminfo);
    let presented = asked.present_as.unwrap_or_default();
    let has_page =
        shown == Some(ShownBy::Mount) && presented == PresentAs::Uma && promised > Bytes::ZERO;
    Ok(ContainerPlan {
        name: who.title(),
        // The driver limits each container by itself, so that no other container can share a slice
        // that it holds.
        shared: asked.shared || (named.is_some() && fence != Fence::Driver),
        named,
        sandbox: who.sandbox.filter(|_| asked.shared),
        pod: place,
        namespace: who.namespace,
        has_no_gpu,
        fence,
        files,
        mounts: mounts::mounts(given, &id, &slice, promised, has_page),
        drops: drops(&asked, given, promised > Bytes::ZERO),
        container: id,
        slice,
        devices,
        note,
        unheld: foreign.unheld(),
    })
}

/// The loader's list for an image that has none.
#[must_use]
pub fn preload_list() -> String {
    format!("/{MOUNT}/libgpuslice.so\n")
}

/// The id of a slice's ledger. No two containers or pods share an id, so neither do ledgers.
#[must_use]
pub fn ledger_id(slice: &str) -> u64 {
    key_of(slice.as_bytes()).max(1)
}

fn slice_file(
    asked: &SliceRequest,
    devices: &[DeviceBudget],
    policy: &Policy,
    who: &Identity,
    ledger: u64,
) -> Result<String, PlanError> {
    let mut slice = Slice::default();
    slice.ledger_id = Some(ledger);
    slice.name = Text::new(&who.title());
    slice.total = asked.total.unwrap_or_default();
    slice.present_as = asked.present_as.unwrap_or_default();
    slice.reserve = policy.reserve.filter(|_| unified(devices) > Bytes::ZERO);
    slice.host_allowance = asked.host_allowance;
    slice.managed = asked.managed.unwrap_or_default();
    slice.pressure = asked.pressure.unwrap_or_default();
    slice.thresholds = policy.thresholds;
    slice.page_cache = page_cache(asked, policy, unified(devices) > Bytes::ZERO);
    slice.memory = asked.memory;
    slice.headroom = asked.headroom.unwrap_or(Bytes::ZERO);
    slice.maximum = asked.maximum;
    for budget in devices {
        // This fails if there are more GPUs than a slice file can list.
        let listed = slice.list(ListedDevice {
            uuid: budget.uuid,
            memory: Some(budget.memory),
            headroom: None,
            integrated: Some(budget.integrated),
            driver_limit: None,
            driver_backstop: false,
        });
        if let Err(fault) = listed {
            return Err(PlanError::Slice(SliceError { line: 1, fault }));
        }
    }
    let text = slice.to_json();
    slice::parse(text.as_bytes()).map_err(PlanError::Slice)?;
    Ok(text)
}

impl ContainerPlan {
    /// The message of the container's start.
    pub(crate) fn started(&self) -> String {
        let unheld = self.unheld.iter().map(String::as_str);
        let parts: Vec<&str> = std::iter::once("started").chain(unheld).collect();
        parts.join("; ")
    }

    /// Sets the host memory that the slice is promised, which may be less than its budget.
    pub fn is_promised(&mut self, promised: Bytes, paths: &HostPaths) {
        let target = Path::new("/").join(MOUNT).join(mounts::PROMISE);
        let own = self.mounts.iter_mut().find(|mount| mount.target == target);
        if let Some(own) = own {
            own.source = mounts::promise(paths, promised, &self.slice);
        }
    }
}

/// The policy's mounts that are bind mounts of host folders in this container.
fn drops(asked: &SliceRequest, given: &PlanInput<'_>, is_unified: bool) -> Vec<PathBuf> {
    match page_cache(asked, given.policy, is_unified) {
        PageCache::Keep => Vec::new(),
        PageCache::Drop | PageCache::DropBehind => {
            let named = given.policy.page_cache.mounts.iter();
            let sources = named.filter_map(|mount| given.spec.source_of(mount));
            sources.map(Path::to_owned).collect()
        }
    }
}

/// The requested page-cache mode, or else the policy's. The page cache takes memory from a GPU only
/// where it shares the host's memory.
fn page_cache(asked: &SliceRequest, policy: &Policy, is_unified: bool) -> PageCache {
    let unsaid = match is_unified {
        true => PageCache::Drop,
        false => PageCache::Keep,
    };
    asked
        .page_cache
        .or(policy.page_cache.mode)
        .unwrap_or(unsaid)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
