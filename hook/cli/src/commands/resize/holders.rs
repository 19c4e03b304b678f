//! The memory that a slice's processes hold.
//! Touches: `/proc/PID/statm`.

use crate::base::text::printable;
use crate::commands::status::model::SliceStatus;
use gpuslice_config::host::cgroup;
use gpuslice_config::ledger::Record;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::page_size;
use std::cmp::Reverse;
use std::fs;

/// The processes of a slice.
pub(super) struct Holders {
    /// Their slots in the ledger, with their pids here and their names.
    known: Vec<(usize, u32, String)>,
    /// The host memory that is not charged to the slice.
    allowance: Bytes,
}

impl Holders {
    pub(super) fn of(slice: &SliceStatus, allowance: Bytes) -> Holders {
        let processes = slice.devices.iter().flat_map(|device| &device.processes);
        let known = processes.map(|process| {
            let name = process.name.as_deref().map_or("?".into(), printable);
            (process.slot, process.pid, name)
        });
        Holders {
            known: known.collect(),
            allowance,
        }
    }

    fn pid(&self, record: &Record) -> u32 {
        let known = self.known.iter().find(|(slot, ..)| *slot == record.slot);
        known.map_or(record.pid, |(_, pid, _)| *pid)
    }

    /// Returns the memory that they hold on a device. On unified memory this includes their host
    /// memory beyond the allowance, which the library charges to the slice.
    pub(super) fn held(&self, records: &[Record], uuid: DeviceUuid, is_unified: bool) -> Bytes {
        let its = records.iter().filter(|record| record.device == Some(uuid));
        let (mut held, mut host) = (Bytes::ZERO, Bytes::ZERO);
        for record in its {
            held = held.plus(Bytes::new(record.used));
            if is_unified {
                host = host.plus(host_memory(self.pid(record)));
            }
        }
        held.plus(cgroup::charged(host, Bytes::ZERO, self.allowance))
    }

    /// Returns a line for each process that holds memory of a device.
    pub(super) fn text(&self, records: &[Record], uuid: DeviceUuid) -> String {
        let mut its: Vec<&Record> = records
            .iter()
            .filter(|record| record.device == Some(uuid) && record.used > 0)
            .collect();
        its.sort_by_key(|record| Reverse(record.used));
        let line = |record: &&Record| {
            let known = self.known.iter().find(|(slot, ..)| *slot == record.slot);
            let name = match known {
                Some((_, pid, name)) => format!("{name} (pid {pid})"),
                None => format!("pid {}", record.pid),
            };
            format!("\n  {name}  {}", Bytes::new(record.used))
        };
        its.iter().map(line).collect()
    }
}

fn host_memory(pid: u32) -> Bytes {
    let statm = fs::read(format!("/proc/{pid}/statm")).unwrap_or_default();
    cgroup::of_process(&statm, page_size()).unwrap_or(Bytes::ZERO)
}
