//! The slices of containers, as the OCI hook has recorded them. Root's to read.
//! Touches: the hook's folder on the host.

use gpuslice_config::promises;
use gpuslice_config::units::Bytes;
use gpuslice_oci::place::Places;
use gpuslice_oci::registry::{self, Damaged, Member, Record};
use gpuslice_oci::traces;
use serde::Serialize;
use std::path::PathBuf;

/// A container of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ContainerStatus {
    /// Its id.
    pub(crate) id: String,
    /// What people call it.
    pub(crate) name: String,
    /// Its first process.
    pub(crate) pid: i32,
}

/// A slice of containers, and where on the host its files are.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) file: PathBuf,
    pub(super) files: Files,
    pub(super) containers: Vec<ContainerStatus>,
}

/// What the slice file names as it is seen in a container.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) ledger: PathBuf,
    /// None on a GPU with memory of its own.
    pub(super) promise: Option<PathBuf>,
}

/// Those of which a container lives, and the records that cannot be read; none for who may not look,
/// and where there is no hook.
pub(super) fn held(places: &Places) -> (Vec<Held>, Vec<Damaged>) {
    let (records, damaged) = registry::survey(places).unwrap_or_default();
    let held = records.iter().filter_map(|record| of(places, record));
    (held.collect(), damaged)
}

fn of(places: &Places, record: &Record) -> Option<Held> {
    let lives = |member: &&Member| member.owner.lives();
    let any = record.containers.iter().any(|member| lives(&member));
    // Who has outlived its container's first process still holds the slice.
    let all = !any && traces::in_ledger(places, &record.slice).is_some();
    let members = record.containers.iter();
    let containers: Vec<ContainerStatus> = members
        .filter(|member| all || lives(member))
        .map(|member| ContainerStatus {
            id: member.id.clone(),
            name: member.name.clone(),
            pid: member.owner.pid,
        })
        .collect();
    let first = containers.first()?;
    let promised = record.unified();
    let promise = promises::file_name(promised, &record.slice)
        .filter(|_| promised > Bytes::ZERO)
        .map(|name| places.promises().join(name));
    Some(Held {
        file: places.container_root(&first.id).join("slice.json"),
        files: Files {
            ledger: places.ledger_file(&record.slice),
            promise,
        },
        containers,
    })
}
