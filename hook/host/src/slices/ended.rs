//! Writes the end of containers as events, with the refusals that their ledger counted.
//! Touches: the ledger of a slice, by reading; the event file and the host's log.
//! Law: a container's end is written once, by the program that removes it from its slice's record.

use crate::base::clock;
use crate::base::ledger_room::room;
use crate::base::paths::HostPaths;
use crate::events::store::Store;
use crate::events::{DeviceUse, Event, EventKind, journal};
use crate::slices::records::{DeviceBudget, Member, SliceRecord};
use gpuslice_config::ledger::{Refusals, Snapshot};
use gpuslice_config::words::device::DeviceUuid;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

/// The name of the host's programs in its log.
pub const PROGRAM: &str = "gpuslice-hook";

/// Writes an event of a container to the event file and to the host's log.
pub fn write(paths: &HostPaths, event: &Event) {
    // A file that cannot be written to is no reason to stop a container.
    let _ = Store::of_host(paths).append(&event.line());
    journal::send(&paths.journal(), &paths.log(), PROGRAM, event);
}

/// The ends of containers, with what their ledger says. The ledger is removed with the slice, so it
/// is read first.
#[derive(Debug, Default)]
pub struct Ends(Vec<(String, Event)>);

impl Ends {
    /// Prepares the events of these containers of a slice. A container that never had a slice
    /// gets no event.
    #[must_use]
    pub fn of(paths: &HostPaths, record: &SliceRecord, ids: &[String]) -> Ends {
        if record.devices.is_empty() {
            return Ends::default();
        }
        let devices = devices(paths, record);
        let leaving = record.containers.iter();
        let leaving = leaving.filter(|member| ids.contains(&member.id));
        let ends = leaving.map(|member| (member.id.clone(), end(record, member, &devices)));
        Ends(ends.collect())
    }

    /// Writes the events, except those of containers that are still in the record.
    pub fn write(self, paths: &HostPaths, left: Option<&SliceRecord>) {
        for (id, mut event) in self.0 {
            let is_left = left.is_some_and(|left| left.containers.iter().any(|one| one.id == id));
            if !is_left {
                event.time = clock::rfc3339_ms(SystemTime::now());
                write(paths, &event);
            }
        }
    }
}

fn end(record: &SliceRecord, member: &Member, devices: &[DeviceUse]) -> Event {
    let duration = member.owner.age();
    let refused = devices.iter().filter_map(|one| one.count);
    let refused = refused.fold(0, u64::saturating_add);
    let shared = match (record.shared, record.named.is_none()) {
        (false, _) => "",
        (true, true) => " of the pod's slice",
        (true, false) => " of the claim's slice",
    };
    let message = match refused {
        0 => "ended".to_owned(),
        1 => format!("ended; one allocation{shared} was refused"),
        _ => format!("ended; {refused} allocations{shared} were refused"),
    };
    let now = SystemTime::now();
    let started = duration.and_then(|duration| now.checked_sub(duration));
    let event = Event {
        pid: Some(member.owner.pid),
        container: Some(member.id.clone()),
        pod: member.pod.clone(),
        started: started.map(clock::rfc3339_ms),
        duration,
        ..Event::now(EventKind::End, &member.name, message)
    };
    event.with_devices(devices.to_vec())
}

/// The budgets of a slice, with the refusals that its ledger counted; without them where the
/// ledger cannot be read.
fn devices(paths: &HostPaths, record: &SliceRecord) -> Vec<DeviceUse> {
    let refusals = refusals(paths, &record.slice);
    let budgets = record.devices.iter();
    budgets
        .map(|budget| {
            let noted = refusals.as_ref().map(|all| {
                let found = all.iter().find(|(uuid, _)| *uuid == budget.uuid);
                found.map_or_else(Refusals::default, |(_, refusals)| *refusals)
            });
            DeviceUse {
                count: noted.map(|noted| noted.count),
                bytes: noted
                    .filter(|it| it.count > 0)
                    .map(|noted| noted.regret.get()),
                ..limited(budget)
            }
        })
        .collect()
}

/// A device and the slice's limit on it.
#[must_use]
pub fn limited(budget: &DeviceBudget) -> DeviceUse {
    DeviceUse {
        device: budget.uuid.to_string(),
        limit: Some(budget.memory.get()),
        ..DeviceUse::default()
    }
}

fn refusals(paths: &HostPaths, slice: &str) -> Option<Vec<(DeviceUuid, Refusals)>> {
    let file = paths.ledger_file(slice);
    let path = CString::new(file.as_os_str().as_bytes()).ok()?;
    let mut bytes = room(&file);
    let snapshot = Snapshot::read(&path, &mut bytes).ok()?;
    Some(snapshot.refusals().collect())
}
