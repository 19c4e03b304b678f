//! Collects the state of all running slices.
//! Touches: everything `users`, `containers`, `files`, `promised`, `process` and `driver` touch.

mod listed;

use super::containers::ContainerStatus;
use super::driver::{Drivers, Machine, Run};
use super::model::{DeviceStatus, Escaped, Fence, SliceStatus};
use super::process::{self, Processes};
use super::promised::Promised;
use super::shares::{LedgerContents, devices};
use super::strangers::{self, Strangers};
use super::users::{User, with_rights_of};
use crate::runs::run_dir;
use gpuslice_config::slice::{self, Slice, Total};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::meminfo_page;
use listed::{ListedSlice, ReadSlice, find};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// One snapshot of this machine.
struct Look<'a> {
    processes: &'a Processes,
    drivers: &'a Drivers,
    /// The room into which ledgers are read.
    ledger: RefCell<Vec<u8>>,
    promised: Promised,
    strangers: Strangers,
}

/// Collects all slices that are visible here.
pub(crate) fn gather(
    places: &HostPaths,
    processes: &Processes,
    drivers: &mut Drivers,
) -> Vec<SliceStatus> {
    gather_and_query(places, processes, drivers, &[])
}

/// Collects all slices that are visible here, and queries the drivers of further machines.
pub(super) fn gather_and_query(
    places: &HostPaths,
    processes: &Processes,
    drivers: &mut Drivers,
    machines: &[Machine],
) -> Vec<SliceStatus> {
    let (found, damaged) = find(places, processes);
    let machine = |found: &ListedSlice| {
        let printed = found.printed();
        let run = match (&printed, found.pid()) {
            (Some(file), _) => Some(Run::Printed(file)),
            (None, pid) => pid.map(Run::Command),
        };
        let run = run.filter(|_| found.container.is_none());
        run.map_or(Machine::Real, |run| Machine::of(run, processes))
    };
    let found: Vec<(ListedSlice, Machine)> = found
        .into_iter()
        .map(|found| {
            let machine = machine(&found);
            (found, machine)
        })
        .collect();
    // NVML is queried before the ledgers are read: the ledgers then already count the memory that
    // NVML reports.
    // The state of another user's simulated machine is that user's: no child of ours opens it.
    let is_asked = |(found, machine): &&(ListedSlice, Machine)| {
        *machine == Machine::Real || found.user == Some(User::own())
    };
    let of_slices = found.iter().filter(is_asked);
    let of_slices = of_slices.map(|(_, machine)| machine.clone());
    let asked = drivers.ask(of_slices.chain(machines.iter().cloned()).collect());
    let mut ledger = Vec::new();
    let read: Vec<ReadSlice> = found
        .iter()
        .map(|(found, _)| ReadSlice::read(found, processes, &mut ledger))
        .collect();
    drivers.hear(asked);
    let look = Look {
        processes,
        drivers,
        ledger: RefCell::new(ledger),
        promised: Promised::default(),
        strangers: Strangers::of(places),
    };
    let mut contents = Vec::new();
    let slices = found.iter().zip(read).map(|((found, machine), read)| {
        let (mut status, held) = look.slice(found, read);
        contents.push(held);
        status.fence = match (&status.no_slice, status.enforce) {
            (Some(_), _) => Fence::None,
            (None, Some(false)) => Fence::Counted,
            (None, Some(true)) => status.strongest_fence(),
            // Only a slice that refuses has a record of admission.
            (None, None) if status.is_private => status.fence,
            (None, None) => Fence::Unknown,
        };
        status.machine = machine.clone();
        status
    });
    let mut slices: Vec<SliceStatus> = slices.collect();
    // Processes that a ledger names are in that slice, and are not looked for in the others.
    let counted = counted(&slices);
    for ((status, (found, machine)), held) in slices.iter_mut().zip(&found).zip(&contents) {
        look.compare(found, machine, held.as_ref(), &counted, &mut status.devices);
    }
    // The files of a run that has ended meanwhile cannot be read, which is no error.
    let mut listed = found.iter();
    slices.retain(|status| {
        let found = listed.next().map(|(found, _)| found);
        status.error.is_none() || !found.is_some_and(ListedSlice::has_ended)
    });
    look.add_unlisted(&counted, &mut slices);
    slices.extend(damaged);
    slices
}

/// The addition to the error message about a ledger, where no first process of a container lives.
const MAY_HAVE_ENDED: &str = "; the first processes of its containers have ended, and whether another \
    process still holds its memory is unknown (gpuslice gc removes the slice if it finds no process \
    of it)";

impl Look<'_> {
    fn slice(&self, found: &ListedSlice, read: ReadSlice) -> (SliceStatus, Option<LedgerContents>) {
        let ReadSlice {
            start,
            command,
            mut files,
        } = read;
        let mut status = SliceStatus {
            pid: found.pid,
            user: found.user,
            command,
            started: start.as_ref().map(|start| start.moment.clone()),
            age: start.map(|start| start.age),
            file: found.file.clone(),
            ..SliceStatus::default()
        };
        let there = found.container.as_ref().map(|held| &held.files);
        if let Some(held) = &found.container {
            status.containers = held.containers.clone();
            status.no_slice = held.no_slice();
            status.pod = held.pod.clone();
            status.sealed = held.sealed;
            if let Some(name) = &held.unmade {
                status.name.clone_from(name);
                return (status, None);
            }
        }
        let rights = found.rights();
        with_rights_of(rights, || {
            files.read_ledger(found.user, &mut self.ledger.borrow_mut());
        });
        status.error = files.error;
        let held = found.container.as_ref();
        if let (Some(error), Some(true)) = (&mut status.error, held.map(|held| held.may_have_ended))
        {
            error.push_str(MAY_HAVE_ENDED);
        }
        status.is_private = files.is_private;
        status.ledger = files.ledger;
        if status.is_private
            && let Some(tenant) = self.strangers.of_run(found.pid, found.user)
        {
            strangers::describe(tenant, &mut status);
            return (status, None);
        }
        let Some(written) = files.slice else {
            return (status, None);
        };
        let slice = self.in_force(found).unwrap_or(written);
        status.name = slice.name.as_str().to_owned();
        let meminfo = run_dir::hosts_meminfo(&slice);
        status.meminfo = meminfo.filter(|_| rights == User::own());
        let page = match there {
            Some(there) => Some(there.page.clone()),
            None => run_dir::page(&found.file),
        };
        status.page_age =
            page.and_then(|page| with_rights_of(rights, || meminfo_page::age(&page).ok()));
        status.host_allowance = slice.host_allowance;
        status.enforce = Some(slice.enforce);
        status.total = Some(match slice.total {
            Total::Slice => "slice",
            Total::Device => "device",
        });
        let held = files.figures.map(|figures| {
            status.uncounted = figures.uncounted;
            LedgerContents::new(figures, files.mapped.as_ref(), self.processes)
        });
        let promise = match there {
            Some(there) => there.promise.clone(),
            None => slice.promise.map(|path| PathBuf::from(path.as_str())),
        };
        status.promise = promise.and_then(|promise| {
            with_rights_of(rights, || self.promised.of(&slice, promise, rights))
        });
        status.devices = devices(&found.file, &slice, held.as_ref());
        for device in &mut status.devices {
            let uuid = device.device.as_deref().and_then(|uuid| uuid.parse().ok());
            // A limit that was set in the ledger is also that of programs that start now.
            let is_set =
                |uuid: &DeviceUuid| held.as_ref().is_some_and(|it| it.limit(*uuid).is_some());
            let uuid = uuid.filter(|uuid| !is_set(uuid));
            let now = uuid.and_then(|uuid: DeviceUuid| written.device(uuid));
            let now = now.map(|budget| budget.memory.get());
            device.pending_limit = now.filter(|now| Some(*now) != device.limit);
        }
        (status, held)
    }

    /// Adds the slices of which only the admission's records are visible.
    fn add_unlisted(&self, counted: &BTreeSet<u32>, slices: &mut Vec<SliceStatus>) {
        for mut status in self.strangers.unlisted(slices) {
            let pid = status.pid.and_then(|pid| u32::try_from(pid).ok());
            let start = pid.and_then(|pid| self.processes.start(pid));
            status.started = start.as_ref().map(|start| start.moment.clone());
            status.age = start.map(|start| start.age);
            let found = ListedSlice {
                file: PathBuf::new(),
                link: None,
                user: status.user,
                pid: status.pid,
                registered: None,
                container: None,
            };
            self.compare(&found, &Machine::Real, None, counted, &mut status.devices);
            slices.push(status);
        }
    }

    /// Returns the slice with which a run's processes were started. The slice file may have been
    /// edited since.
    fn in_force(&self, found: &ListedSlice) -> Option<Slice> {
        let (user, None) = (found.user?, &found.container) else {
            return None;
        };
        let file = found.file.as_os_str().as_bytes();
        let of_process = |pid: u32| {
            let environment = self.processes.environment(pid)?;
            let named = environment.get("GPUSLICE_CONFIG")?;
            let text = environment
                .get("GPUSLICE_SLICE")
                .filter(|_| named == file)?;
            slice::parse(text).ok()
        };
        // The environments of all processes are read only if the command has ended.
        let others = || self.processes.naming(&found.file, user.0).into_iter();
        let command = found.pid().and_then(of_process);
        command.or_else(|| others().find_map(of_process))
    }

    /// Adds the memory that NVML reports for the slice's processes.
    fn compare(
        &self,
        found: &ListedSlice,
        machine: &Machine,
        held: Option<&LedgerContents>,
        counted: &BTreeSet<u32>,
        devices: &mut [DeviceStatus],
    ) {
        let own: BTreeSet<u32> = held.iter().flat_map(|held| held.processes()).collect();
        let mut members = None;
        for device in devices {
            let uuid = device.device.as_deref().unwrap_or_default();
            for listed in self.drivers.processes(machine, uuid) {
                let mut processes = device.processes.iter_mut();
                if let Some(known) =
                    processes.find(|one| one.pid == listed.pid && one.name.is_some())
                {
                    known.driver_used = listed.used;
                    add(&mut device.driver_used, listed.used);
                    continue;
                }
                if counted.contains(&listed.pid) && !own.contains(&listed.pid) {
                    continue;
                }
                let members = members.get_or_insert_with(|| self.members(found, held));
                if found.user.is_some() && !self.processes.descends_from(listed.pid, members) {
                    continue;
                }
                let mapped = self.processes.mapped(listed.pid);
                let has_escaped = mapped.is_some_and(|mapped| mapped.driver && !mapped.library)
                    && listed.used != Some(0);
                if has_escaped || found.user.is_some() {
                    add(&mut device.driver_used, listed.used);
                }
                if has_escaped {
                    device.without_library.push(Escaped {
                        pid: listed.pid,
                        name: process::name(listed.pid),
                        used: listed.used,
                    });
                }
            }
        }
    }

    /// Returns the processes known to be in a slice. Their children are in the slice too, but not
    /// in the result.
    fn members(&self, found: &ListedSlice, held: Option<&LedgerContents>) -> BTreeSet<u32> {
        let mut members: BTreeSet<u32> = held.iter().flat_map(|held| held.processes()).collect();
        members.extend(found.pid());
        match (&found.container, found.user) {
            (Some(held), _) => {
                let pids = held.containers.iter().filter_map(ContainerStatus::live_pid);
                members.extend(pids.flat_map(|pid| self.processes.of_container(pid)));
            }
            (None, Some(user)) => members.extend(self.processes.naming(&found.file, user.0)),
            (None, None) => {}
        }
        members
    }
}

/// Returns the processes that the ledgers name, as far as they are visible here.
fn counted(slices: &[SliceStatus]) -> BTreeSet<u32> {
    let devices = slices.iter().flat_map(|slice| &slice.devices);
    let processes = devices.flat_map(|device| &device.processes);
    let visible = processes.filter(|process| process.name.is_some());
    visible.map(|process| process.pid).collect()
}

/// Adds an amount that NVML may not report.
fn add(sum: &mut Option<u64>, part: Option<u64>) {
    if let Some(part) = part {
        *sum = Some(sum.unwrap_or(0).saturating_add(part));
    }
}
