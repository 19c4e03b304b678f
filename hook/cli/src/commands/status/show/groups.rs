//! Groups the slices by the GPU on which they have a share.
//! Touches: its arguments.

use super::shown_name;
use crate::commands::status::model::{CardStatus, DeviceStatus, SliceStatus};
use crate::commands::status::snapshot::Snapshot;
use std::collections::BTreeMap;

/// A slice's share of the group's GPU.
pub(super) struct Share<'a> {
    pub(super) name: String,
    pub(super) slice: &'a SliceStatus,
    /// None if it is unknown on which GPUs the slice has a limit.
    pub(super) device: Option<&'a DeviceStatus>,
}

/// A GPU, and the slices with a share of it.
pub(super) struct Group<'a> {
    /// The GPU; None if the driver does not report it.
    pub(super) card: Option<&'a CardStatus>,
    /// The name of a GPU that the driver does not report.
    pub(super) name: String,
    pub(super) shares: Vec<Share<'a>>,
}

/// Returns the GPUs that the driver reports, in their order, and then all others with slices.
pub(super) fn groups(now: &Snapshot) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = now
        .cards
        .iter()
        .map(|card| Group {
            card: Some(card),
            name: String::new(),
            shares: Vec::new(),
        })
        .collect();
    let mut others: BTreeMap<String, Vec<Share<'_>>> = BTreeMap::new();
    for slice in &now.slices {
        let share = |device| Share {
            name: shown_name(slice, &now.slices),
            slice,
            device,
        };
        if slice.devices.is_empty() {
            let name = "on unknown GPUs".to_owned();
            others.entry(name).or_default().push(share(None));
        }
        for device in &slice.devices {
            let is_on = |group: &&mut Group<'_>| {
                group.card.is_some_and(|card| {
                    card.machine == slice.machine && Some(&card.device) == device.device.as_ref()
                })
            };
            match groups.iter_mut().find(is_on) {
                Some(group) => group.shares.push(share(Some(device))),
                None => {
                    let name = device.device.clone();
                    let name = name.unwrap_or_else(|| "on every GPU".to_owned());
                    others.entry(name).or_default().push(share(Some(device)));
                }
            }
        }
    }
    groups.extend(others.into_iter().map(|(name, shares)| Group {
        card: None,
        name,
        shares,
    }));
    groups
}
