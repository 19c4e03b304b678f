//! Plans everything that is done for one container.
//! Touches: its arguments. Law: pure, so that the plan can be printed and checked before it is
//! carried out.

use crate::annotations::{self, AnnotationError, Asked, Request};
use crate::budgets::{self, Budgets};
use crate::devices::Devices;
use crate::hook_sizes::{self, SizeError};
use crate::identity::{Annotations, Identity};
use crate::inject::preload;
use crate::place::Places;
use crate::policy::Policy;
use crate::registry::{Budget, unified};
use crate::spec::Spec;
use crate::state::{State, is_id};
use crate::toolkit_limit;
use gpuslice_config::ledger::key_of;
use gpuslice_config::promises;
use gpuslice_config::slice::{self, ListedDevice, PageCache, Slice, SliceError, Text};
use gpuslice_config::words::units::Bytes;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The folder in which a container sees its slice.
pub const MOUNT: &str = ".gpuslice";

/// The file in which the container's loader finds the library.
pub const PRELOAD: &str = "etc/ld.so.preload";

/// Below [`MOUNT`]: the slice's own promise.
const PROMISE: &str = "promise";

/// The prefix of the id of a pod's slice.
const POD: &str = "pod-";

/// The id of a pod's slice. Every tenant of unified memory sees this id. If it were the sandbox's
/// id, a tenant could request the slice by a forged annotation. The hash (FNV-1a) need not be a
/// cryptographic one: 64 bits do not determine the 256 that engines draw, and the record compares
/// all of them.
fn pod_slice(sandbox: &str) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = sandbox.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{POD}{hash:016x}")
}

/// Whether a container's id could be taken for the id of a pod's slice, or of a run's promise
/// (`run.PID.START.NAME`).
pub(crate) fn is_reserved(id: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let pod = id.strip_prefix(POD);
    let mut parts = id.splitn(4, '.');
    let run = parts.next() == Some("run")
        && parts.next().is_some_and(digits)
        && parts.next().is_some_and(digits);
    run || pod
        .is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The inputs of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The runtime's state of the container.
    pub state: &'a State,
    /// The container's configuration.
    pub spec: &'a Spec,
    /// The operator's policy.
    pub policy: &'a Policy,
    /// The host's GPUs.
    pub devices: &'a Devices,
    /// The paths on the host.
    pub places: &'a Places,
    /// The size that this hook's own arguments give.
    pub memory: Option<Bytes>,
}

/// The decision about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is left alone, for this reason.
    Nothing(&'static str),
    /// It gets a slice.
    Slice(Box<Plan>),
}

/// A container's slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The container.
    pub container: String,
    /// Its display name.
    pub name: String,
    /// The slice: the container's own, or its pod's.
    pub slice: String,
    /// Whether it is the pod's.
    pub shared: bool,
    /// The id of that pod's sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The namespace whose share it counts against.
    pub namespace: Option<String>,
    /// The budgets to admit.
    pub devices: Vec<Budget>,
    /// The files written on the host.
    pub files: Vec<File>,
    /// The mounts made in the container, in this order.
    pub mounts: Vec<Mount>,
    /// The host's folders whose resident pages are dropped before it starts and after it stops.
    pub drops: Vec<PathBuf>,
    /// A note for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A file on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct File {
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub text: String,
}

/// A mount in the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The source, on the host.
    pub source: PathBuf,
    /// The target, in the container.
    pub target: PathBuf,
    /// The mount options.
    pub options: &'static str,
}

/// Why a container cannot have the slice that it requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An annotation is wrong.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// The sizes of hooks and annotations differ.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The policy requires every container to request a size.
    #[error(
        "this host's policy refuses containers that do not say how much GPU memory they need \
         (annotation {}memory, for example 8GiB)",
        annotations::PREFIX
    )]
    Unannotated,
    /// The request exceeds the policy's maximum.
    #[error(
        "{asked} is more than this host's policy allows a container to have of a GPU ({maximum})"
    )]
    Maximum {
        /// The requested size.
        asked: Bytes,
        /// The maximum.
        maximum: Bytes,
    },
    /// The host has no such GPU.
    #[error("there is no GPU {0} (this host has {1}; see gpuslice devices)")]
    NoSuchDevice(String, String),
    /// The GPU exists, but the policy does not slice it.
    #[error("this host's policy gives no slices of GPU {0}")]
    NotForSlices(String),
    /// The host has no GPU.
    #[error("this host has no GPU")]
    NoDevices,
    /// The policy slices none of the container's GPUs.
    #[error(
        "this host's policy slices none of the container's GPUs (this host has {0}; see devices in \
         config.toml)"
    )]
    NoneForSlices(String),
    /// One GPU is requested with two sizes.
    #[error(
        "{uuid} is asked for twice: {}memory.{} says {}, {}memory.{} says {}",
        annotations::PREFIX, one.0, one.1, annotations::PREFIX, other.0, other.1
    )]
    Twice {
        /// The GPU.
        uuid: String,
        /// One key, and its size.
        one: (String, Bytes),
        /// The other key, and its size.
        other: (String, Bytes),
    },
    /// A pod's slice is requested outside a pod.
    #[error("{}share: pod requires a container of a pod", annotations::PREFIX)]
    NoPod,
    /// The container's id is reserved.
    #[error(
        "container id {0:?} is reserved for gpuslice's own slices and runs (start the container with \
         another id)"
    )]
    Reserved(String),
    /// The slice file would be invalid.
    #[error("the slice file would not be valid: {0}")]
    Slice(SliceError),
}

/// Decides whether a container gets a slice, and plans it.
///
/// # Errors
/// [`PlanError`] says why the container cannot have the slice that it requests.
pub fn decide(given: &Given<'_>) -> Result<Decision, PlanError> {
    let annotations = both(given);
    let who = Identity::of(&given.state.id, &annotations);
    if who.is_sandbox {
        return Ok(Decision::Nothing("it only holds a pod's namespaces"));
    }
    let memory = hook_sizes::of(given.spec, given.memory)?;
    let asked = match (
        annotations::read_beside(&annotations, &who, memory)?,
        memory,
    ) {
        (Asked::Slice(request), None) => request,
        (Asked::Slice(request), Some(memory)) => {
            hook_sizes::agree(&request, memory)?;
            Request {
                memory: Some(memory),
                devices: Vec::new(),
                ..request
            }
        }
        (_, Some(memory)) => Request {
            memory: Some(memory),
            ..Request::default()
        },
        (_, None) => match &given.policy.default {
            Some(default) if !given.devices.devices.is_empty() => default.request(),
            Some(_) => return Ok(Decision::Nothing("this host has no GPU")),
            None if given.policy.deny_unannotated => return Err(PlanError::Unannotated),
            None => return Ok(Decision::Nothing("it asks for no slice")),
        },
    };
    let budgets = budgets::of(&asked, given, &who)?;
    plan(&asked, budgets, given, who).map(|plan| Decision::Slice(Box::new(plan)))
}

/// The annotations of the state and of the configuration together. Some runtimes pass on only one
/// of them.
fn both(given: &Given<'_>) -> Annotations {
    let mut annotations = given.state.annotations.clone();
    let spec = given.spec.annotations.iter();
    annotations.extend(spec.map(|(key, value)| (key.clone(), value.clone())));
    annotations
}

fn plan(
    asked: &Request,
    budgets: Budgets,
    given: &Given<'_>,
    who: Identity,
) -> Result<Plan, PlanError> {
    let Budgets {
        each: mut devices,
        note,
    } = budgets;
    let lowered = match asked.shared {
        false => toolkit_limit::lower(given.spec, &mut devices).map(|limit| {
            format!(
                "its slice is no larger than NVIDIA_GPU_MEMORY_LIMIT, {limit}, which NVIDIA's \
                toolkit enforces"
            )
        }),
        // The containers of a pod must agree on their slice: a smaller one would refuse this
        // container what it may still take beside the others.
        true => toolkit_limit::lower(given.spec, &mut devices.clone()).map(|limit| {
            format!(
                "NVIDIA's toolkit limits this container alone to {limit} \
                 (NVIDIA_GPU_MEMORY_LIMIT); it shares the pod's larger slice"
            )
        }),
    };
    let notes: Vec<String> = note.into_iter().chain(lowered).collect();
    let note = (!notes.is_empty()).then(|| notes.join("; "));
    let id = given.state.id.clone();
    if is_reserved(&id) {
        return Err(PlanError::Reserved(id));
    }
    let slice = match (asked.shared, &who.sandbox) {
        (false, _) => id.clone(),
        // A short id could be guessed.
        (true, Some(sandbox)) if is_id(sandbox) && sandbox.len() >= 16 => pod_slice(sandbox),
        (true, _) => return Err(PlanError::NoPod),
    };
    let text = slice_file(asked, &devices, given.policy, &who, ledger_id(&slice))?;
    let root = given.places.container_root(&id);
    let file = |name: &str, text: String| File {
        path: root.join(name),
        text,
    };
    let files = vec![file("slice.json", text), file(PRELOAD, preload::planned())];
    let promised = unified(&devices);
    Ok(Plan {
        name: who.title(),
        shared: asked.shared,
        sandbox: who.sandbox.filter(|_| asked.shared),
        namespace: who.namespace,
        files,
        mounts: mounts(given, &id, &slice, promised),
        drops: drops(asked, given, promised > Bytes::ZERO),
        container: id,
        slice,
        devices,
        note,
    })
}

/// The id of a slice's ledger. No two containers or pods share an id, so neither do ledgers.
#[must_use]
pub fn ledger_id(slice: &str) -> u64 {
    key_of(slice.as_bytes()).max(1)
}

fn slice_file(
    asked: &Request,
    devices: &[Budget],
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
    for budget in devices {
        // More than a slice file lists: those that are like all others need not stand in it.
        let listed = slice.list(ListedDevice {
            uuid: budget.uuid,
            memory: Some(budget.memory),
            headroom: None,
            integrated: Some(budget.integrated),
        });
        if let Err(fault) = listed {
            return Err(PlanError::Slice(SliceError { line: 1, fault }));
        }
    }
    let text = slice.to_json();
    slice::parse(text.as_bytes()).map_err(PlanError::Slice)?;
    Ok(text)
}

impl Plan {
    /// Sets the host memory that the slice is promised, which may be less than its budget.
    pub fn is_promised(&mut self, promised: Bytes, places: &Places) {
        let target = Path::new("/").join(MOUNT).join(PROMISE);
        let own = self.mounts.iter_mut().find(|mount| mount.target == target);
        if let Some(own) = own {
            own.source = promise(places, promised, &self.slice);
        }
    }
}

/// The path of a slice's promise on the host.
fn promise(places: &Places, promised: Bytes, slice: &str) -> PathBuf {
    let name = promises::file_name(promised, slice).unwrap_or_default();
    places.promises().join(name)
}

/// Read-only, without device files or set-user-id programs.
pub const READ_ONLY: &str = "ro,nosuid,nodev";
/// Like [`READ_ONLY`], and without programs.
pub const READ_ONLY_DATA: &str = "ro,nosuid,nodev,noexec";
/// For files that a container writes to.
pub const WRITABLE: &str = "rw,nosuid,nodev,noexec";

fn mounts(given: &Given<'_>, id: &str, slice: &str, promised: Bytes) -> Vec<Mount> {
    let places = given.places;
    let root = places.container_root(id);
    let inside = Path::new("/").join(MOUNT);
    let library = given.policy.library.clone();
    let preload = root.join(PRELOAD);
    let mount = |source: PathBuf, name: &str, options| Mount {
        source,
        target: inside.join(name),
        options,
    };
    let mut mounts = vec![
        Mount {
            source: root,
            target: inside.clone(),
            options: READ_ONLY,
        },
        mount(
            library.unwrap_or_else(|| places.library()),
            "libgpuslice.so",
            READ_ONLY,
        ),
        mount(places.meminfo(), "meminfo", READ_ONLY_DATA),
        // Mount the file, not its folder: from a folder, a container's root could remove the file.
        mount(places.ledger_file(slice), "ledger/ledger", WRITABLE),
        mount(places.locks_file(slice), "ledger/locks", WRITABLE),
    ];
    if promised > Bytes::ZERO {
        mounts.push(mount(places.promises(), "promises", READ_ONLY_DATA));
        mounts.push(mount(promise(places, promised, slice), PROMISE, WRITABLE));
    }
    mounts.push(Mount {
        source: preload,
        target: Path::new("/").join(PRELOAD),
        options: READ_ONLY_DATA,
    });
    mounts
}

/// The mounts that the policy names, as far as they are folders of the host in this container.
fn drops(asked: &Request, given: &Given<'_>, is_unified: bool) -> Vec<PathBuf> {
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
fn page_cache(asked: &Request, policy: &Policy, is_unified: bool) -> PageCache {
    let unsaid = if is_unified {
        PageCache::Drop
    } else {
        PageCache::Keep
    };
    asked
        .page_cache
        .or(policy.page_cache.mode)
        .unwrap_or(unsaid)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
