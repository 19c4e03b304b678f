//! Carries out a step against a process that holds memory beyond its slice.
//! Touches: that process, through a pidfd; standard error, the event file, the host's log.
//! Law: a process of a run gets a signal only if it belongs to the user of the run.

use super::bypass::{Step, Suspect};
use super::denied::Denied;
use crate::base::text;
use crate::commands::status::process::Processes;
use crate::runs::process::Process;
use crate::runs::recording;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::events::{Event, EventKind};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

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
    let (name, bytes) = (text::printable(name), Bytes::new(suspect.bytes));
    let why = match suspect.has_library {
        false => "the process has not loaded libgpuslice.so",
        true => "the library has not counted this memory",
    };
    let sent = match step {
        Step::Warn => String::new(),
        Step::Deny => denied.add(suspect),
        Step::Terminate => signal(suspect, processes, Signal::SIGTERM),
        Step::Kill => signal(suspect, processes, Signal::SIGKILL),
    };
    let message = format!(
        "process {name} (pid {pid}) of slice {slice} holds {bytes} on {device} that its \
         slice does not count: {why}{sent}"
    );
    tell(&message);
    write(&Event {
        pid: i32::try_from(*pid).ok(),
        device: Some(device.clone()),
        bytes: Some(suspect.bytes),
        limit: suspect.limit,
        pod: suspect.pod.clone(),
        ..Event::now(EventKind::Escape, slice, message)
    });
}

/// Sends a signal to a suspect. Returns what happened, as the end of a sentence.
fn signal(suspect: &Suspect, processes: &Processes, signal: Signal) -> String {
    let sent =
        open(suspect.pid, suspect.user, processes).and_then(|process| process.signal(signal));
    match sent {
        Ok(()) => format!("; the process got {}", signal.as_str()),
        Err(error) => format!("; {} could not be sent: {}", signal.as_str(), error.desc()),
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
