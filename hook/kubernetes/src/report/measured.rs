//! Measures a share of a claim by its slice's record, ledger and slice file.
//! Touches: the ledger and the slice file of a slice, and /proc, by reading them.

use crate::claims::prepared::PreparedShare;
use gpuslice_config::slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::base::read;
use gpuslice_host::base::text::shown;
use gpuslice_host::slices::figures;
use gpuslice_host::slices::records::{Member, SliceRecord};

/// The most bytes of a slice file.
const CAP: usize = 1 << 16;

/// The measurement of a share that a running container uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The limit in force, on the share's device.
    pub limit: Bytes,
    /// The memory in use; None if the ledger cannot be read.
    pub used: Option<Bytes>,
    /// The refused allocations; None if the ledger cannot be read.
    pub refused: Option<u64>,
    /// The fence that enforces the limit; None if the slice file cannot be read.
    pub fence: Option<&'static str>,
    /// A container that runs without the slice, with the reason.
    pub without: Option<String>,
}

/// Measures a share. None if no container that uses it lives. Ledgers are read into `bytes`.
#[must_use]
pub fn measure(
    host: &HostPaths,
    share: &PreparedShare,
    records: &[SliceRecord],
    bytes: &mut Vec<u8>,
) -> Option<Measured> {
    let has = |names: Option<&String>| {
        let mut names = names.into_iter().flat_map(|names| names.split(','));
        names.any(|name| name == share.slice)
    };
    // A container that started without a slice has a record of its own.
    let uses = |record: &SliceRecord, member: &Member| {
        has(record.named.as_ref()) || has(member.claims.as_ref())
    };
    let each = records.iter().flat_map(|record| {
        let members = record.containers.iter();
        members.map(move |member| (record, member))
    });
    let own = each.filter(|(record, member)| uses(record, member) && member.owner.lives());
    let own: Vec<(&SliceRecord, &Member)> = own.collect();
    let made = own.iter().find(|(record, _)| record.has_slice(host));
    let (record, _) = made.or_else(|| own.first())?;
    let mut members = own.iter().map(|(_, member)| *member);
    let ledger = figures::read(&host.ledger_file(&record.slice), bytes).ok();
    let ledger = ledger.filter(|figures| !figures.is_damaged);
    let mut budgets = record.devices.iter();
    let budget = budgets.find(|budget| budget.uuid == share.uuid);
    let set = ledger
        .as_ref()
        .and_then(|figures| figures.limits.get(&share.uuid));
    let without = members.clone().find_map(|member| {
        let why = member.no_slice.as_deref()?;
        Some(format!("container {}: {}", shown(&member.name), cut(why)))
    });
    Some(Measured {
        // Every process of the slice can write into the ledger, and only root into the record.
        limit: budget
            .map(|budget| budget.memory)
            .or_else(|| set.copied())
            .unwrap_or(share.memory),
        used: ledger.as_ref().map(|figures| figures.used(share.uuid)),
        refused: ledger.as_ref().map(|figures| {
            let refusals = figures.refusals.get(&share.uuid);
            refusals.map_or(0, |refusals| refusals.count)
        }),
        fence: members.find_map(|member| fence(host, member, share.uuid)),
        without,
    })
}

/// Reads from a container's slice file which fence holds its limit.
fn fence(host: &HostPaths, member: &Member, device: DeviceUuid) -> Option<&'static str> {
    let file = host.container_root(&member.id).join("slice.json");
    let slice = slice::parse(&read::file(&file, CAP).ok()?).ok()?;
    let mut listed = slice.devices().filter(|listed| listed.uuid == device);
    let is_drivers = listed.any(|listed| listed.driver_limit.is_some());
    Some(match (slice.enforce, is_drivers) {
        (false, _) => "counted",
        (true, true) => "driver",
        (true, false) => "preload",
    })
}

/// A reason in one line of moderate length.
fn cut(text: &str) -> String {
    let one_line = |letter: char| if letter.is_control() { ' ' } else { letter };
    text.chars().take(500).map(one_line).collect()
}

#[cfg(test)]
#[path = "measured_tests.rs"]
mod tests;
