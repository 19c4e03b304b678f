//! Brings a snapshot up to date from the ledgers alone, which costs a fraction of a new snapshot.
//! Touches: the ledgers, by reading them.
//! Law: the GPUs, the list of slices and NVML's numbers stay as the snapshot has them.

use super::Snapshot;
use crate::commands::status::model::{CardStatus, DeviceStatus, ProcessStatus, SliceStatus};
use crate::commands::status::shares;
use crate::commands::status::users::{User, with_rights_of};
use gpuslice_config::ledger::Record;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_host::slices::figures::{self, LedgerFigures};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Reads ledgers, always into the same memory.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    bytes: Vec<u8>,
}

impl Ledgers {
    /// Reads the ledgers of a snapshot again. Returns whether the snapshot still has every process
    /// and every ledger; if not, a new snapshot shows more.
    pub(crate) fn refresh(&mut self, snapshot: &mut Snapshot) -> bool {
        let before = counted(snapshot);
        let mut is_complete = true;
        for slice in &mut snapshot.slices {
            is_complete &= self.refresh_slice(slice);
        }
        let after = counted(snapshot);
        for ((card, before), after) in snapshot.cards.iter_mut().zip(before).zip(after) {
            card.in_slices = card.in_slices.saturating_add(after).saturating_sub(before);
        }
        is_complete
    }

    fn refresh_slice(&mut self, slice: &mut SliceStatus) -> bool {
        let has_numbers = slice.devices.iter().any(|device| device.used.is_some());
        let Some(ledger) = slice.ledger.as_ref().filter(|_| has_numbers) else {
            return true;
        };
        let rights = slice.user.unwrap_or_else(User::own);
        let figures = with_rights_of(rights, || figures::read(ledger, &mut self.bytes));
        let Ok(figures) = figures else {
            return false;
        };
        slice.uncounted = figures.uncounted;
        let mut is_complete = !figures.is_damaged;
        for device in &mut slice.devices {
            is_complete &= refresh_device(device, &figures);
        }
        is_complete
    }
}

/// Sums for each GPU the memory that its slices hold. Runs that share a ledger are one slice.
fn counted(snapshot: &Snapshot) -> Vec<u64> {
    let sum = |card: &CardStatus| {
        let mut ledgers: BTreeSet<&PathBuf> = BTreeSet::new();
        let own = snapshot.slices.iter();
        let own = own.filter(|slice| slice.machine == card.machine);
        let own = own.filter(|slice| {
            let ledger = slice.ledger.as_ref();
            ledger.is_none_or(|ledger| ledgers.insert(ledger))
        });
        let shares = own.flat_map(|slice| &slice.devices);
        let shares = shares.filter(|device| device.device.as_ref() == Some(&card.device));
        let used = shares.filter_map(DeviceStatus::used_or_reported);
        used.fold(0, u64::saturating_add)
    };
    snapshot.cards.iter().map(sum).collect()
}

/// Returns whether every process is known.
fn refresh_device(device: &mut DeviceStatus, figures: &LedgerFigures) -> bool {
    let uuid: Option<DeviceUuid> = device.device.as_deref().and_then(|uuid| uuid.parse().ok());
    let records = figures.records.iter();
    let records: Vec<&Record> = records.filter(|one| one.device == uuid).collect();
    let known = std::mem::take(&mut device.processes);
    let mut is_complete = true;
    for record in &records {
        let is_it = |one: &&ProcessStatus| (one.slot, one.number) == (record.slot, record.pid);
        let before = known.iter().find(is_it).cloned();
        is_complete &= before.is_some();
        // The process gets its name, and its pid here, from the next snapshot.
        let before = before.unwrap_or_else(|| ProcessStatus {
            pid: record.pid,
            ..ProcessStatus::default()
        });
        device.processes.push(ProcessStatus {
            number: record.pid,
            slot: record.slot,
            used: record.used,
            by_kind: shares::by_kind(&record.by_kind),
            ..before
        });
    }
    let order = |one: &ProcessStatus| (Reverse(one.used), one.pid);
    device.processes.sort_by_key(order);
    let used = records.iter().map(|record| record.used);
    let used = used.fold(0, u64::saturating_add);
    device.used = Some(used);
    device.left = device.limit.map(|limit| limit.saturating_sub(used));
    device.by_kind = Some(shares::by_kind(&shares::sums(records.iter().copied())));
    let refusals = uuid.and_then(|uuid| figures.refusals.get(&uuid));
    device.refusals = Some(shares::refusals(refusals.copied()));
    is_complete
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_config::ledger::{Claim, Kind, Ledger, Open};
    use gpuslice_config::words::units::Bytes;
    use std::ffi::CString;

    const GPU: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

    #[test]
    fn a_refreshed_snapshot_has_the_numbers_of_the_ledger() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("ledger");
        let name = CString::new(path.to_str().unwrap()).unwrap();
        let create = Open::Create {
            mode: 0o600,
            devices: 1,
        };
        let ledger = Ledger::open(&name, create).unwrap();
        let device = ledger.device(&GPU.parse().unwrap()).unwrap();
        let take = |bytes| ledger.claim(device, bytes, Kind::Linear, Bytes::MAX);
        let share = DeviceStatus {
            device: Some(GPU.to_owned()),
            limit: Some(8 << 30),
            used: Some(0),
            ..DeviceStatus::default()
        };
        let slice = SliceStatus {
            ledger: Some(path.clone()),
            devices: vec![share],
            ..SliceStatus::default()
        };
        let card = CardStatus {
            device: GPU.to_owned(),
            ..CardStatus::default()
        };
        // Two runs share the ledger: the GPU's memory is counted once.
        let mut snapshot = Snapshot {
            cards: vec![card],
            slices: vec![slice.clone(), slice],
            ..Snapshot::default()
        };
        let mut ledgers = Ledgers::default();
        assert!(ledgers.refresh(&mut snapshot));
        assert_eq!(take(Bytes::gib(3)), Claim::Granted);
        ledger.refused(device, Bytes::mib(41));
        // The snapshot does not have this process: a new one is needed for its name.
        assert!(!ledgers.refresh(&mut snapshot));
        assert!(ledgers.refresh(&mut snapshot));
        assert_eq!(take(Bytes::gib(1)), Claim::Granted);
        assert!(ledgers.refresh(&mut snapshot));
        for slice in &snapshot.slices {
            let device = &slice.devices[0];
            assert_eq!((device.used, device.left), (Some(4 << 30), Some(4 << 30)));
            let refusals = device.refusals.unwrap();
            assert_eq!((refusals.count, refusals.worst_short_by), (1, 41 << 20));
            let processes: Vec<(u32, u64)> = device
                .processes
                .iter()
                .map(|one| (one.pid, one.used))
                .collect();
            assert_eq!(processes, [(std::process::id(), 4 << 30)]);
            let kinds = serde_json::json!({"linear": 4u64 << 30});
            assert_eq!(serde_json::json!(device.by_kind), kinds);
        }
        assert_eq!(snapshot.cards[0].in_slices, 4 << 30);
        std::fs::remove_file(&path).unwrap();
        assert!(!ledgers.refresh(&mut snapshot));
        assert_eq!(snapshot.slices[0].devices[0].used, Some(4 << 30));
    }
}
