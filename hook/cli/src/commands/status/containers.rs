//! Reads the slices of containers, as the OCI hook has recorded them. Only root can read them.
//! Touches: the hook's folder on the host.

use gpuslice_config::promises;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::pod::Pod;
use gpuslice_host::slices::liveness;
use gpuslice_host::slices::records::{self, Damaged, Member, RegistryError, SliceRecord};
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};

/// A container with a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ContainerStatus {
    /// The container's id.
    pub(crate) id: String,
    /// The container's name.
    pub(crate) name: String,
    /// The container's first process.
    pub(crate) pid: i32,
    /// Whether it lives. If it does not, its number may be another process's by now.
    #[serde(skip)]
    pub(crate) lives: bool,
    /// The reason why its programs do not load the library; None if they do.
    pub(crate) no_slice: Option<String>,
    /// The reason why the slice does not limit some of its programs; None if it limits all.
    pub(crate) not_limited: Option<String>,
}

impl ContainerStatus {
    /// Its first process, if that lives.
    pub(crate) fn live_pid(&self) -> Option<i32> {
        self.lives.then_some(self.pid)
    }
}

/// A slice of containers, and the places of its files on the host.
#[derive(Clone, Debug)]
pub(super) struct ContainerSlice {
    pub(super) file: PathBuf,
    pub(super) files: Files,
    pub(super) containers: Vec<ContainerStatus>,
    /// Whether the ledger is sealed; None if the record does not say.
    pub(super) sealed: Option<bool>,
    /// The name of a container without a slice file and a ledger, because the hook could not make a
    /// slice.
    pub(super) unmade: Option<String>,
    /// Whether the first processes of its containers have ended, and its ledger cannot be read: another
    /// process may still hold its memory.
    pub(super) may_have_ended: bool,
    /// Its place in Kubernetes.
    pub(super) pod: Option<Pod>,
}

/// Returns the place of a slice in Kubernetes. A slice that the containers of a pod share has no
/// container's name, and neither has a claim's slice while several containers use it. If they are of
/// several pods, it has no pod's name either.
fn place(record: &SliceRecord, living: &[ContainerStatus]) -> Option<Pod> {
    let of = |one: &ContainerStatus| {
        let mut members = record.containers.iter();
        members.find(|member| member.id == one.id)?.pod.as_ref()
    };
    let mut pods = living.iter().map(of);
    let first = pods.next()??;
    let mut pod = first.clone();
    if record.shared && (record.named.is_none() || living.len() > 1) {
        pod.container.clear();
    }
    if pods.any(|other| {
        other.is_none_or(|other| (&other.name, &other.uid) != (&first.name, &first.uid))
    }) {
        pod.name.clear();
        pod.uid.clear();
    }
    Some(pod)
}

impl ContainerSlice {
    /// Returns the reason why no program of the slice loads the library. Returns None if the
    /// programs of at least one container load it.
    pub(super) fn no_slice(&self) -> Option<String> {
        let each = self.containers.iter().map(|one| one.no_slice.clone());
        let all: Option<Vec<String>> = each.collect();
        all?.into_iter().next()
    }
}

/// Optional keys of a record. Each key may be in the record itself or in one of its containers.
/// Records of earlier versions of gpuslice have none of them.
#[derive(Debug, Default)]
struct Besides {
    text: Value,
}

impl Besides {
    fn of(places: &HostPaths, record: &SliceRecord) -> Besides {
        let text = std::fs::read(places.slice(&record.slice)).unwrap_or_default();
        let text = serde_json::from_slice(&text).unwrap_or_default();
        Besides { text }
    }

    fn containers(&self) -> impl Iterator<Item = &Value> {
        let listed = self.text.get("containers").and_then(Value::as_array);
        listed.into_iter().flatten()
    }

    fn no_slice(&self, id: &str) -> Option<String> {
        let is_own = |one: &&Value| one.get("id").is_some_and(|known| known == id);
        let mut places = self.containers().filter(is_own).chain([&self.text]);
        places.find_map(|place| reason(place.get("no_slice")?))
    }

    fn sealed(&self) -> Option<bool> {
        let mut places = [&self.text].into_iter().chain(self.containers());
        places.find_map(|place| place.get("sealed")?.as_bool())
    }
}

/// Checks whether the ledger is sealed, so that no program can truncate it. A sealed ledger is a
/// file of an overlay.
fn is_sealed(ledger: &Path) -> Option<bool> {
    let found = statfs(ledger).ok()?;
    Some(found.filesystem_type() == OVERLAYFS_SUPER_MAGIC)
}

fn reason(said: &Value) -> Option<String> {
    match said {
        Value::Null | Value::Bool(false) => None,
        Value::String(reason) => Some(reason.clone()),
        _ => Some("the hook recorded no reason".to_owned()),
    }
}

/// The paths, inside the container, of the files that its slice file names.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) ledger: PathBuf,
    /// The promise; None on a GPU with memory of its own.
    pub(super) promise: Option<PathBuf>,
    /// The meminfo page, if the slice has one.
    pub(super) page: PathBuf,
}

/// Returns the slices of running containers, and the records that cannot be read. Both lists are
/// empty for a user who may not read the records, and on a host without the OCI hook.
///
/// # Errors
/// When the records cannot be listed although the user may read them.
pub(super) fn held(
    places: &HostPaths,
) -> Result<(Vec<ContainerSlice>, Vec<Damaged>), RegistryError> {
    let (records, damaged) = match records::survey(places) {
        Err(RegistryError::File { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            (Vec::new(), Vec::new())
        }
        surveyed => surveyed?,
    };
    let held = records.iter().filter_map(|record| of(places, record));
    Ok((held.collect(), damaged))
}

fn of(places: &HostPaths, record: &SliceRecord) -> Option<ContainerSlice> {
    let besides = Besides::of(places, record);
    let lives = |member: &&Member| member.owner.lives();
    let any = record.containers.iter().any(|member| lives(&member));
    // A process that outlives its container's first process still holds the slice.
    let outlives = match any {
        true => Ok(None),
        false => liveness::in_ledger(places, &record.slice),
    };
    let all = !matches!(outlives, Ok(None));
    let members = record.containers.iter();
    let containers: Vec<ContainerStatus> = members
        .filter(|member| all || lives(member))
        .map(|member| ContainerStatus {
            id: member.id.clone(),
            name: member.name.clone(),
            pid: member.owner.pid,
            lives: lives(&member),
            no_slice: besides.no_slice(&member.id),
            not_limited: member.not_limited.clone(),
        })
        .collect();
    let first = containers.first()?;
    let promised = record.unified();
    let promise = promises::file_name(promised, &record.slice)
        .filter(|_| promised > Bytes::ZERO)
        .map(|name| places.promises().join(name));
    Some(ContainerSlice {
        file: places.container_root(&first.id).join("slice.json"),
        files: Files {
            ledger: places.ledger_file(&record.slice),
            promise,
            page: places.page(&record.slice),
        },
        sealed: besides
            .sealed()
            .or_else(|| is_sealed(&places.ledger_file(&record.slice))),
        pod: place(record, &containers),
        may_have_ended: outlives.is_err(),
        unmade: (!record.has_slice(places)).then(|| record.name.clone()),
        containers,
    })
}
