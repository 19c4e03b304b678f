//! Carries out a step against a process that holds memory beyond its slice.
//! Touches: that process, through a pidfd; standard error, the event file, the host's log.
//! Law: a process of a run gets a signal only if it belongs to the user of the run.

use super::bypass::{Step, Suspect};
use super::lever::{self, Group, Lever};
use crate::commands::status::process::Processes;
use crate::runs::process::Process;
use crate::runs::recording;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::events::{Event, EventKind};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::{fs, io};

/// Names the process, and sends the signal of the step.
pub(super) fn take(
    step: Step,
    suspect: &Suspect,
    processes: &Processes,
    denied: &mut Denied,
    tell: fn(&str),
) {
    let Suspect {
        slice,
        pid,
        name,
        device,
        ..
    } = suspect;
    let bytes = Bytes::new(suspect.bytes);
    let why = match suspect.has_library {
        false => "it has not loaded libgpuslice.so",
        true => "the library has not counted it",
    };
    let sent = match step {
        Step::Warn => String::new(),
        Step::Deny => denied.add(suspect),
        Step::Terminate => signal(suspect, processes, Signal::SIGTERM),
        Step::Kill => signal(suspect, processes, Signal::SIGKILL),
    };
    let message = format!(
        "process {name} (pid {pid}) of slice {slice} holds {bytes} on {device} beyond its slice: \
         {why}{sent}"
    );
    tell(&message);
    write(&Event {
        pid: i32::try_from(*pid).ok(),
        device: Some(device.clone()),
        bytes: Some(suspect.bytes),
        limit: suspect.limit,
        ..Event::now(EventKind::Escape, slice, message)
    });
}

/// The containers that can open no GPU any more.
#[derive(Debug, Default)]
pub(super) struct Denied {
    levers: BTreeMap<Group, (String, Lever)>,
}

impl Denied {
    /// Refuses new opens of GPUs to the containers of a suspect. Returns what happened, as the end of
    /// a sentence.
    fn add(&mut self, suspect: &Suspect) -> String {
        let majors = fs::read_to_string("/proc/devices").unwrap_or_default();
        let majors = lever::majors_in(&majors);
        let mut groups = suspect
            .containers
            .iter()
            .map(|pid| Group::of_container(*pid));
        let pulled: io::Result<()> = groups.try_for_each(|group| {
            let group = group.ok_or(io::ErrorKind::NotFound)?;
            if let Entry::Vacant(place) = self.levers.entry(group) {
                let lever = Lever::pull(place.key(), &majors)?;
                place.insert((suspect.slice.clone(), lever));
            }
            Ok(())
        });
        match pulled {
            Ok(()) => "; its container can open no GPU any more".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                "; its container has no cgroup of its own that decides over GPUs".to_owned()
            }
            Err(error) => format!("; its container can still open GPUs: {error}"),
        }
    }

    /// Gives the GPUs back to containers of slices that have no suspects any more.
    pub(super) fn keep(&mut self, found: &[Suspect], tell: fn(&str)) {
        self.levers.retain(|_, (slice, _)| {
            let is_suspected = found.iter().any(|suspect| suspect.slice == *slice);
            if !is_suspected {
                tell(&format!(
                    "the container of slice {slice} can open GPUs again"
                ));
            }
            is_suspected
        });
    }
}

/// Sends a signal to a suspect. Returns what happened, as the end of a sentence.
fn signal(suspect: &Suspect, processes: &Processes, signal: Signal) -> String {
    let sent =
        open(suspect.pid, suspect.user, processes).and_then(|process| process.signal(signal));
    match sent {
        Ok(()) => format!("; it got {}", signal.as_str()),
        Err(error) => format!(
            "; it could not be sent {}: {}",
            signal.as_str(),
            error.desc()
        ),
    }
}

/// Opens a process of a slice.
///
/// # Errors
/// EPERM if the process is another user's: the user of a run could name any process in its files.
/// ESRCH if it has ended since it was listed.
fn open(pid: u32, user: Option<u32>, processes: &Processes) -> Result<Process, Errno> {
    if user.is_some_and(|user| processes.user(pid) != Some(user)) {
        return Err(Errno::EPERM);
    }
    let number = i32::try_from(pid).map_err(|_| Errno::ESRCH)?;
    let process = Process::open(Pid::from_raw(number)).map_err(|_| Errno::ESRCH)?;
    match processes.is_still(pid) {
        true => Ok(process),
        false => Err(Errno::ESRCH),
    }
}

/// Writes an event to the event file and to the host's log.
pub(super) fn write(event: &Event) {
    if let Some(store) = recording::store() {
        recording::write(&store, event);
    }
}
