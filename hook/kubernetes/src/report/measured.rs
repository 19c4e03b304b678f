//! Measures a share of a claim: what its slice's record, ledger and slice file say.
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

/// What is known of a share whose slice has a living container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The limit in force, on the share's device.
    pub limit: Bytes,
    /// The memory in use; None if the ledger cannot be read.
    pub used: Option<Bytes>,
    /// The refused allocations; None if the ledger cannot be read.
    pub refused: Option<u64>,
    /// What holds the limit; None if the slice file cannot be read.
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
    let uses = |record: &&SliceRecord| {
        let mut names = record.named.iter().flat_map(|names| names.split(','));
        names.any(|name| name == share.slice)
    };
    let living = |record: &SliceRecord| {
        let members = record.containers.iter();
        let living = members.filter(|member| member.owner.lives());
        living.cloned().collect::<Vec<Member>>()
    };
    let mut own = records.iter().filter(uses);
    let (record, members) = own.find_map(|record| {
        let members = living(record);
        (!members.is_empty()).then_some((record, members))
    })?;
    let ledger = figures::read(&host.ledger_file(&record.slice), bytes).ok();
    let ledger = ledger.filter(|figures| !figures.is_damaged);
    let mut budgets = record.devices.iter();
    let budget = budgets.find(|budget| budget.uuid == share.uuid);
    let set = ledger
        .as_ref()
        .and_then(|figures| figures.limits.get(&share.uuid));
    let without = members.iter().find_map(|member| {
        let why = member.no_slice.as_deref()?;
        Some(format!("container {}: {}", shown(&member.name), cut(why)))
    });
    Some(Measured {
        limit: set
            .copied()
            .or_else(|| budget.map(|budget| budget.memory))
            .unwrap_or(share.memory),
        used: ledger.as_ref().map(|figures| figures.used(share.uuid)),
        refused: ledger.as_ref().map(|figures| {
            let refusals = figures.refusals.get(&share.uuid);
            refusals.map_or(0, |refusals| refusals.count)
        }),
        fence: members
            .iter()
            .find_map(|member| fence(host, member, share.uuid)),
        without,
    })
}

/// What holds the limit of a container, by its slice file.
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
