//! Records runs: their start, refusals and end as events, and their use of memory over time.
//! Touches: the event file, the history's folder, the host's log, the private folder of a run.
//! Law: a run never fails, waits or is refused because something cannot be recorded.

pub(crate) mod history_file;
pub(crate) mod limit_changes;
pub(crate) mod recorder;
pub(crate) mod refusal_command;
mod run_start;
pub(crate) mod series;

use crate::runs::run_dir;
use gpuslice_host::base::clock;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::events::store::Store;
use gpuslice_host::events::{DeviceUse, Event, EventKind, SCHEMA, journal};
use nix::unistd::{Uid, User, geteuid};
use refusal_command::RefusalCommand;
pub(crate) use run_start::{LimitedDevice, RunStart};
use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The name of gpuslice in the host's log.
const PROGRAM: &str = "gpuslice";

impl RunStart {
    /// The start of this process's run, at this moment.
    pub(crate) fn now(name: &str, simulated: bool, devices: Vec<LimitedDevice>) -> RunStart {
        RunStart {
            schema: SCHEMA,
            name: name.to_owned(),
            pid: std::process::id().cast_signed(),
            user: user_name(geteuid()),
            started: clock::rfc3339_ms(SystemTime::now()),
            simulated,
            enforce: true,
            devices,
        }
    }

    /// An event of the run.
    fn event(&self, kind: EventKind, message: String) -> Event {
        Event {
            pid: Some(self.pid),
            user: Some(self.user.clone()),
            simulated: self.simulated,
            ..Event::now(kind, &self.name, message)
        }
    }
}

/// The name of a user, or the number of one without a name.
#[must_use]
pub(crate) fn user_name(uid: Uid) -> String {
    let known = User::from_uid(uid).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

/// Returns the place of this user's events; None if the user has no home folder.
#[must_use]
pub(crate) fn store() -> Option<Store> {
    let folder = |name: &str| {
        let path = env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    match (folder("XDG_STATE_HOME"), geteuid().is_root()) {
        (Some(state), _) => Some(Store::in_folder(state.join("gpuslice"))),
        (None, true) => Some(Store::of_host(&HostPaths::default())),
        (None, false) => Some(Store::in_folder(in_home(&folder("HOME")?))),
    }
}

/// The folder of the events of a user with this home folder.
#[must_use]
pub(crate) fn in_home(home: &Path) -> PathBuf {
    home.join(".local/state/gpuslice")
}

/// Writes an event to the event file and to the host's log.
pub(crate) fn write(store: &Store, event: &Event) {
    let _ = store.append(&event.line());
    let paths = HostPaths::default();
    journal::send(&paths.journal(), &paths.log(), PROGRAM, event);
}

/// Records the start of a run, and the reasons why its slice may not limit it. The watcher of its
/// private folder records the rest. Without a watcher nobody would record the end, so the start is
/// not recorded either.
pub(crate) fn start(
    private: Option<&Path>,
    run: &RunStart,
    command: Option<&RefusalCommand>,
    gaps: &[String],
) {
    let Some(store) = store() else { return };
    if let Some(private) = private {
        // What cannot be written is not recorded.
        let _ = prepare(private, &store, run, command);
        write(&store, &started(run));
    }
    for gap in gaps {
        let message = format!("started, but its slice may not limit it: {gap}");
        write(&store, &run.event(EventKind::Escape, message));
    }
}

fn started(run: &RunStart) -> Event {
    let devices = run.devices.iter().map(|one| DeviceUse {
        device: one.device.clone(),
        limit: Some(one.limit),
        ..DeviceUse::default()
    });
    let message = match run.devices.as_slice() {
        [only] => format!(
            "started with {}",
            gpuslice_config::words::units::Bytes::new(only.limit)
        ),
        several => format!("started with limits on {} GPUs", several.len()),
    };
    run.event(EventKind::Start, message)
        .with_devices(devices.collect())
}

/// Leaves in the private folder what the watcher needs.
fn prepare(
    private: &Path,
    store: &Store,
    run: &RunStart,
    command: Option<&RefusalCommand>,
) -> io::Result<()> {
    symlink(store.folder(), private.join(run_dir::EVENTS))?;
    if let Some(command) = command {
        command.leave(private)?;
    }
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut text = serde_json::to_string(run)?;
    text.push('\n');
    options
        .open(private.join(run_dir::HISTORY))?
        .write_all(text.as_bytes())
}

/// The place of events that a private folder names. The start of the run has created its parents:
/// if they are gone, they were removed.
fn store_of(private: &Path) -> Option<Store> {
    let folder = std::fs::read_link(private.join(run_dir::EVENTS)).ok()?;
    let host = Store::of_host(&HostPaths::default());
    let store = match folder == host.folder() {
        true => host,
        false => Store::in_folder(folder),
    };
    Some(store.without_parents())
}

/// Records that a run was refused before it started.
pub(crate) fn refused(name: &str, simulated: bool, bytes: Option<u64>, why: &str) {
    let Some(store) = store() else { return };
    let run = RunStart::now(name, simulated, Vec::new());
    // The lines after the first one list the slices that hold the memory. The last one is advice for
    // a terminal.
    let lines = why.lines().map(str::trim);
    let why: Vec<&str> = lines
        .filter(|line| !line.contains("--overcommit"))
        .collect();
    let message = format!("is refused: {}", why.join(" "));
    let event = Event {
        bytes,
        ..run.event(EventKind::AdmissionRefusal, message)
    };
    write(&store, &event);
}
