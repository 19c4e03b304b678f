//! The slice and the GPUs whose limit changes.
//! Touches: the slice file, a container's record and the hook's list of GPUs, by reading them.

use crate::commands::status::model::{CardStatus, Fence, SliceStatus};
use crate::commands::status::users::{User, with_rights_of};
use crate::runs::host_memory::MEMINFO;
use crate::runs::resizing::{ContainerSlice, Place, RunPromise};
use crate::runs::run_dir;
use crate::runs::tenancy::Card;
use crate::slice::file as slice_file;
use anyhow::{Context, bail};
use gpuslice_config::ledger::SetLimit;
use gpuslice_config::slice::Slice;
use gpuslice_config::slice::host_reserve::HOST_ALLOWANCE;
use gpuslice_config::words::device::{DeviceUuid, Selector};
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::machine::devices;
use std::path::PathBuf;

/// What is resized.
pub(super) struct Resized {
    pub(super) targets: Vec<Target>,
    pub(super) place: Place,
    /// The host memory that is not charged to the slice.
    pub(super) allowance: Bytes,
    /// The slice file, or one for each container.
    pub(super) files: Vec<PathBuf>,
}

/// A GPU whose limit changes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) index: u32,
    /// The card, with the size that is asked for.
    pub(super) card: Card,
    /// Whether it shares the host's memory.
    pub(super) is_unified: bool,
    /// The limit in the slice file.
    pub(super) written: Bytes,
    /// The limit that is asked for, in whole units.
    pub(super) wanted: SetLimit,
}

/// A GPU of the slice's machine.
struct Candidate {
    uuid: DeviceUuid,
    index: u32,
    name: String,
    total: Bytes,
    is_unified: bool,
}

impl Candidate {
    fn of(card: &CardStatus) -> Option<Candidate> {
        Some(Candidate {
            uuid: card.device.parse().ok()?,
            index: card.index,
            name: format!("GPU {} ({}", card.index, card.name),
            total: Bytes::new(card.total.unwrap_or(0)),
            is_unified: card.unified,
        })
    }

    fn shown(&self) -> String {
        match self.total {
            Bytes::ZERO => format!("{})", self.name),
            total => format!("{}, {total})", self.name),
        }
    }

    fn is(&self, selector: Option<&Selector>) -> bool {
        match selector {
            None => true,
            Some(Selector::Index(index)) => *index == self.index,
            Some(Selector::Uuid(uuid)) => *uuid == self.uuid,
        }
    }
}

/// Returns the only slice that was named, if this user can resize it.
///
/// # Errors
/// When several slices have that name, or the slice cannot be resized.
pub(super) fn only(chosen: Vec<SliceStatus>, named: &str) -> anyhow::Result<SliceStatus> {
    let pids: Vec<String> = chosen
        .iter()
        .map(|slice| {
            let first = slice.containers.first().map(|container| container.pid);
            let pid = slice.pid.or(first);
            pid.map_or_else(|| "?".to_owned(), |pid| pid.to_string())
        })
        .collect();
    let Ok([slice]) = <[SliceStatus; 1]>::try_from(chosen) else {
        bail!(
            "several slices are called \"{}\": name one of them by its pid ({})",
            crate::base::text::printable(named),
            pids.join(", ")
        );
    };
    let is_container = !slice.containers.is_empty();
    let own = User::own();
    if let Some(user) = slice.user.filter(|user| *user != own && own != User(0)) {
        bail!(
            "the slice is of user {}: only that user and root can resize it",
            user.name()
        );
    }
    let refuses = |reason: &str| anyhow::anyhow!("cannot resize this slice: {reason}");
    if slice.user.is_none() && !is_container {
        return Err(refuses("a container cannot change its own limit"));
    }
    if is_container && own != User(0) {
        return Err(refuses("only root can resize the slice of a container"));
    }
    if !is_container && slice.user != Some(own) && slice.machine.state().is_some() {
        return Err(refuses("it is on another user's simulated machine"));
    }
    if slice.fence == Fence::None {
        return Err(refuses("its programs do not load the library"));
    }
    if let Some(error) = &slice.error {
        return Err(refuses(error));
    }
    if slice.ledger.is_none() {
        return Err(refuses("no memory is counted, because it has no ledger"));
    }
    Ok(slice)
}

/// Returns the GPUs of a slice whose limit is to change, and the records in which it is counted.
///
/// # Errors
/// When the slice limits none of them, or the size is not possible.
pub(super) fn find(
    slice: &SliceStatus,
    cards: &[CardStatus],
    places: HostPaths,
    device: Option<&Selector>,
    size: Bytes,
) -> anyhow::Result<Resized> {
    let user = slice.user.unwrap_or_else(User::own);
    let written = with_rights_of(user, || slice_file::read(&slice.file))?;
    let container = container(slice, places)?;
    let candidates: Vec<Candidate> = match &container {
        None => {
            let own = cards.iter().filter(|card| card.machine == slice.machine);
            own.filter_map(Candidate::of).collect()
        }
        Some(container) => of_record(container)?,
    };
    let targets = targets(&candidates, &written, device, size)?;
    let unified = targets.iter().filter(|target| target.is_unified).count();
    let files = match &container {
        Some(container) => container.files()?,
        None => vec![slice.file.clone()],
    };
    let place = match container {
        Some(container) => Place::Container(container),
        None if unified == 0 => tenant(slice, user),
        None => promise(slice, user, &written)?,
    };
    // Each kind has locks of its own, and a run never holds both. No machine is known to have both.
    if unified > 0 && targets.len() > 1 {
        bail!("name one GPU with --device: a GPU with unified memory must be resized alone");
    }
    Ok(Resized {
        targets,
        place,
        allowance: written.host_allowance.unwrap_or(HOST_ALLOWANCE),
        files,
    })
}

fn container(slice: &SliceStatus, places: HostPaths) -> anyhow::Result<Option<ContainerSlice>> {
    let Some(first) = slice.containers.first() else {
        return Ok(None);
    };
    let devices = devices::read(&places)?;
    Ok(Some(ContainerSlice {
        places,
        container: first.id.clone(),
        devices: devices.context("no list of GPUs exists (run gpuslice devices --write)")?,
    }))
}

/// The GPUs that a container's slice was admitted on, as the hook's list has them.
fn of_record(container: &ContainerSlice) -> anyhow::Result<Vec<Candidate>> {
    let record = container.record()?;
    let of = |budget: &gpuslice_host::slices::records::DeviceBudget| {
        let mut targets = container.devices.targets();
        let target = targets.find(|target| target.uuid == budget.uuid)?;
        Some(Candidate {
            uuid: target.uuid,
            index: target.device.index,
            name: format!("GPU {} ({}", target.device.index, target.device.name),
            total: target.memory,
            is_unified: budget.integrated,
        })
    };
    Ok(record.devices.iter().filter_map(of).collect())
}

fn tenant(slice: &SliceStatus, user: User) -> Place {
    // The record counts only if its file belongs to this user, wherever the link leads.
    let private = run_dir::private_folder(&slice.file);
    let link = private.map(|private| private.join(run_dir::TENANT));
    Place::Tenant {
        simulated: slice.machine.state(),
        record: link.and_then(|link| with_rights_of(user, || std::fs::read_link(link)).ok()),
        uid: user.0,
    }
}

fn promise(slice: &SliceStatus, user: User, written: &Slice) -> anyhow::Result<Place> {
    let Some(promise) = &slice.promise else {
        bail!(
            "cannot resize this slice: {}",
            match run_dir::private_folder(&slice.file) {
                Some(_) => "it was promised no memory, because the host had none left",
                None => {
                    "its slice file names a ledger, and such a slice is not admitted on unified memory"
                }
            }
        );
    };
    // Another user's slice file may name any file.
    let meminfo = run_dir::hosts_meminfo(written).filter(|_| user == User::own());
    Ok(Place::Promise(RunPromise {
        file: promise.file.clone(),
        simulated: slice.machine.state().is_some(),
        meminfo: meminfo.unwrap_or_else(|| MEMINFO.into()),
        reserve: written.reserve,
    }))
}

fn targets(
    candidates: &[Candidate],
    written: &Slice,
    device: Option<&Selector>,
    size: Bytes,
) -> anyhow::Result<Vec<Target>> {
    let Some(wanted) = SetLimit::of(size) else {
        bail!("{size} is not a possible limit");
    };
    let size = wanted.bytes().unwrap_or(size);
    let mut targets = Vec::new();
    for card in candidates.iter().filter(|card| card.is(device)) {
        let Some(budget) = written.device(card.uuid) else {
            continue;
        };
        if let Some(maximum) = budget.maximum.filter(|maximum| size > *maximum) {
            bail!("{size} is more than the slice's maximum of {maximum}");
        }
        if size <= budget.headroom {
            bail!(
                "{size} is not more than the slice's headroom of {}",
                budget.headroom
            );
        }
        targets.push(Target {
            index: card.index,
            card: Card {
                uuid: card.uuid,
                shown: card.shown(),
                total: card.total,
                asked: size,
            },
            is_unified: card.is_unified,
            written: budget.memory,
            wanted,
        });
    }
    match (targets.is_empty(), device) {
        (false, _) => Ok(targets),
        (true, Some(device)) => bail!("the slice limits no GPU {device} of this machine"),
        (true, None) => bail!(
            "the slice limits no GPU that the driver reports (if the driver was still loading, run the \
             command again)"
        ),
    }
}
