//! The slice and the GPUs whose limit changes.
//! Touches: the slice file, by reading it.

use crate::commands::status::model::{CardStatus, Fence, SliceStatus};
use crate::commands::status::users::{User, with_rights_of};
use crate::runs::tenancy::Card;
use crate::slice::file as slice_file;
use anyhow::bail;
use gpuslice_config::ledger::SetLimit;
use gpuslice_config::words::device::{DeviceUuid, Selector};
use gpuslice_config::words::units::Bytes;

/// A GPU whose limit changes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) index: u32,
    /// The card, with the size that is asked for.
    pub(super) card: Card,
    /// The limit in the slice file.
    pub(super) written: Bytes,
    /// The limit that is asked for, in whole units.
    pub(super) wanted: SetLimit,
}

/// Returns the only slice that was named, if this user can resize it.
///
/// # Errors
/// When several slices have that name, or the slice cannot be resized.
pub(super) fn only(chosen: Vec<SliceStatus>, named: &str) -> anyhow::Result<SliceStatus> {
    let pids: Vec<String> = chosen
        .iter()
        .map(|slice| {
            slice
                .pid
                .map_or_else(|| "?".to_owned(), |pid| pid.to_string())
        })
        .collect();
    let Ok([slice]) = <[SliceStatus; 1]>::try_from(chosen) else {
        bail!(
            "several slices are called \"{}\": name one of them by its pid ({})",
            crate::base::text::printable(named),
            pids.join(", ")
        );
    };
    let own = User::own();
    if let Some(user) = slice.user.filter(|user| *user != own && own != User(0)) {
        bail!(
            "the slice is of user {}: only that user and root can resize it",
            user.name()
        );
    }
    let refuses = |reason: &str| anyhow::anyhow!("cannot resize this slice: {reason}");
    if slice.user.is_none() {
        return Err(refuses("a container cannot change its own limit"));
    }
    if !slice.containers.is_empty() {
        return Err(refuses(
            "it is a container's. Create the container again with another gpuslice.io/memory",
        ));
    }
    if slice.user != Some(User::own()) && slice.machine.state().is_some() {
        return Err(refuses("it is on another user's simulated machine"));
    }
    if slice.fence == Fence::None {
        return Err(refuses("its programs do not load the library"));
    }
    if slice.promise.is_some() {
        return Err(refuses(UNIFIED));
    }
    if let Some(error) = &slice.error {
        return Err(refuses(error));
    }
    if slice.ledger.is_none() {
        return Err(refuses("no memory is counted, because it has no ledger"));
    }
    Ok(slice)
}

const UNIFIED: &str = "it is on unified memory, which a slice is promised at its start";

/// Returns the GPUs of a slice whose limit is to change.
///
/// # Errors
/// When the slice limits none of them, or the size is not possible.
pub(super) fn targets(
    slice: &SliceStatus,
    cards: &[CardStatus],
    device: Option<&Selector>,
    size: Bytes,
) -> anyhow::Result<Vec<Target>> {
    let user = slice.user.unwrap_or_else(User::own);
    let written = with_rights_of(user, || slice_file::read(&slice.file))?;
    let Some(wanted) = SetLimit::of(size) else {
        bail!("{size} is not a possible limit");
    };
    let mut targets = Vec::new();
    for card in cards.iter().filter(|card| card.machine == slice.machine) {
        let is_named = match device {
            None => true,
            Some(Selector::Index(index)) => *index == card.index,
            Some(Selector::Uuid(uuid)) => uuid.to_string() == card.device,
        };
        let uuid: Option<DeviceUuid> = card.device.parse().ok();
        let Some((uuid, budget)) = uuid
            .filter(|_| is_named)
            .and_then(|uuid| Some((uuid, written.device(uuid)?)))
        else {
            continue;
        };
        if card.unified {
            bail!("cannot resize this slice: {UNIFIED}");
        }
        let size = wanted.bytes().unwrap_or(size);
        if size <= budget.headroom {
            bail!(
                "{size} is not more than the slice's headroom of {}",
                budget.headroom
            );
        }
        let total = Bytes::new(card.total.unwrap_or(0));
        let shown = match total {
            Bytes::ZERO => format!("GPU {} ({})", card.index, card.name),
            total => format!("GPU {} ({}, {total})", card.index, card.name),
        };
        targets.push(Target {
            index: card.index,
            card: Card {
                uuid,
                shown,
                total,
                asked: size,
            },
            written: budget.memory,
            wanted,
        });
    }
    match (targets.is_empty(), device) {
        (false, _) => Ok(targets),
        (true, Some(device)) => bail!("the slice limits no GPU {device} of this machine"),
        (true, None) => bail!("the slice limits no GPU that the driver reports"),
    }
}
