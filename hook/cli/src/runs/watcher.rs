//! The watcher of a private folder. It creates the folder, keeps the ledger open for processes that
//! start after the folder was removed, records the run, writes its meminfo page, and removes the
//! folder after its last user has ended.
//! Touches: the folder; everything `headroom_store`, `promise`, `recording`, `tenancy`, `leaf` and
//! `registry` touch; /proc.
//! Never: the terminal, the caller's files, the caller's processes.
//!
//! `gpuslice run` executes its command in its place, so that signals, job control and exit status
//! need no translation. Another process must therefore remove the folder. The folder's users are
//! the process that created it, every process whose environment names it, and every process that
//! the ledger lists. The environment of another user's process must also name the ledger's random
//! name. A server that the command left in the background must still find its slice.
//!
//! If the watcher is killed too, the folder stays; this happens if the command is process 1 of a
//! container. The next `gpuslice status` of this user removes it.

mod cleanup;
mod messages;
mod pipe;
mod user;

pub(crate) use cleanup::finish;

use crate::base::exit;
use crate::runs::meminfo::run_page::RunPage;
use crate::runs::process::{INTERVAL, Process};
use crate::runs::recording::recorder::{self, Recorder};
use crate::runs::run_dir::PREFIX;
use crate::runs::{leaf, registry};
use anyhow::{Context, bail};
use gpuslice_host::machine::process::ProcessId;
use gpuslice_host::slices::meminfo_page;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::unistd::{ForkResult, Pid, dup2_stdout, fork, geteuid, getppid, setsid};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead, BufReader};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use user::User;

/// `gpuslice tidy-up FOLDER PID [CALLER]`: watches for the process PID, which calls it unless CALLER
/// does.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder, which is made
    pub folder: PathBuf,
    /// The process whose end ends the slice
    pub user: i32,
    /// The process that calls, if it is another one
    pub caller: Option<i32>,
}

/// The time that a program of an owner gets to execute its file. The owner was started without the
/// variables of the slice, and what it forks shows them only afterwards.
const EXEC: Duration = Duration::from_millis(500);

/// A handle to a running watcher, for the process that started it.
#[derive(Debug)]
pub(crate) struct Watcher {
    pid: String,
    told: ChildStdin,
    heard: BufReader<ChildStdout>,
}

impl Watcher {
    /// Makes the watcher keep a file open as long as it watches, and returns a path to the open
    /// file. Processes can then reach the file after its folder was removed: a user's files in
    /// `/dev/shm` are removed when the user's last session ends.
    ///
    /// # Errors
    /// When the watcher cannot be reached.
    pub(crate) fn keep(&mut self, file: &Path) -> io::Result<PathBuf> {
        self.tell(messages::KEEP, file)?;
        Ok(format!("/proc/{}/fd/0", self.pid).into())
    }

    /// Makes the watcher hold a write lock on a file as long as it watches. The lock shows other
    /// runs that this run is alive.
    ///
    /// # Errors
    /// When the watcher cannot be reached.
    pub(crate) fn hold(&mut self, file: &Path) -> io::Result<()> {
        self.tell(messages::HOLD, file)
    }

    /// Names the run's link in the registry. The run's folder does too, but the command may remove
    /// the folder before the watcher has read it.
    ///
    /// # Errors
    /// When the watcher cannot be reached.
    pub(crate) fn name_entry(&mut self, link: &Path) -> io::Result<()> {
        self.tell(messages::ENTRY, link)
    }

    /// Names the run's cgroup, for the same reason.
    ///
    /// # Errors
    /// When the watcher cannot be reached.
    pub(crate) fn name_cgroup(&mut self, folder: &Path) -> io::Result<()> {
        self.tell(messages::CGROUP, folder)
    }

    /// Returns the watcher's process id, if known.
    #[must_use]
    pub(crate) fn pid(&self) -> Option<i32> {
        self.pid.parse().ok()
    }

    /// Waits until the watcher has opened and locked the files that it was told of: a program that
    /// starts later must find them so.
    ///
    /// # Errors
    /// When the watcher has ended.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        self.tell(messages::ANSWER, Path::new(""))?;
        messages::wait_for_answer(&mut self.heard)
    }

    fn tell(&mut self, what: u8, file: &Path) -> io::Result<()> {
        messages::send(&mut self.told, what, file)
    }
}

/// Why a watcher was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The folder cannot be created, but another place may do.
    #[error(transparent)]
    Folder(io::Error),
    /// The watcher cannot be started, or ended early. Another place would not help.
    #[error("{0}")]
    Watcher(String),
}

/// Starts a watcher for this process, or for the `owner` of a slice. Returns once it has created the
/// folder and watches it.
///
/// # Errors
/// When the watcher cannot be started, or the folder cannot be created, or the owner has ended.
pub(crate) fn start(folder: &Path, owner: Option<ProcessId>) -> Result<Watcher, StartError> {
    let own = Pid::this().to_string();
    let user = owner.map_or_else(|| own.clone(), |owner| owner.pid.to_string());
    let unable =
        |error: io::Error| StartError::Watcher(format!("cannot start its watcher: {error}"));
    let mut child = Command::new("/proc/self/exe")
        .arg0("gpuslice")
        .arg("tidy-up")
        .arg(folder)
        .arg(user)
        .args(owner.map(|_| own))
        // The watcher's environment must not name the folder of an enclosing run.
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(unable)?;
    let missing = || unable(io::Error::other("it accepts no messages"));
    let told = child.stdin.take().ok_or_else(missing)?;
    let mut heard = BufReader::new(child.stdout.take().ok_or_else(missing)?);
    // The watcher's first process exits. The second prints its process id.
    let mut line = String::new();
    heard.read_line(&mut line).map_err(unable)?;
    let status = child.wait().map_err(unable)?;
    // While the owner lives, the watcher has opened this process, and no later one with its number.
    if owner.is_some_and(|owner| !owner.lives()) {
        return Err(StartError::Watcher(
            "the owner of the slice has ended".into(),
        ));
    }
    if let (true, Some(pid)) = (status.success(), line.strip_suffix('\n')) {
        let pid = pid.to_owned();
        return Ok(Watcher { pid, told, heard });
    }
    // The watcher's standard error is /dev/null, so it cannot report the cause. Creating the folder
    // here reveals whether the place is the cause. A watcher that was killed may have created it.
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(StartError::Folder(error))
        }
        _ => {
            let _ = fs::remove_dir(folder);
            let ended = format!("its watcher ended too early ({status})");
            Err(StartError::Watcher(ended))
        }
    }
}

/// Returns the folder and the command's process id from a watcher's command line; None if the
/// command line is another program's.
pub(crate) fn watched(command_line: &[u8]) -> Option<(PathBuf, i32)> {
    let mut words = command_line.split(|byte| *byte == 0);
    let is_watcher = words.next()? == b"gpuslice" && words.next()? == b"tidy-up";
    let folder = Path::new(OsStr::from_bytes(words.next()?));
    let name = folder.file_name().unwrap_or_default();
    let is_ours = is_watcher && name.as_bytes().starts_with(PREFIX.as_bytes());
    let command = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    is_ours.then(|| (folder.to_owned(), command))
}

/// Runs the watcher as a daemon. The process that was started exits as soon as its child watches; no
/// process waits for the child.
///
/// # Errors
/// When the folder cannot be created or watched.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let name = args.folder.file_name().unwrap_or_default();
    if !name.as_bytes().starts_with(PREFIX.as_bytes()) {
        bail!(
            "{} is not a private folder of gpuslice",
            args.folder.display()
        );
    }
    // Only SIGKILL ends the watcher early. A service manager that stops it stops all processes of
    // the service, and so the folder's users too.
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    close_inherited();
    let user = match args.caller {
        None => Process::open(getppid()).context("cannot watch the caller")?,
        Some(_) => Process::open(Pid::from_raw(args.user)).context("cannot watch the owner")?,
    };
    // If the caller has ended by now, this process has another parent.
    let caller = args.caller.unwrap_or(args.user);
    if getppid() != Pid::from_raw(caller) {
        bail!("process {caller} is not the caller");
    }
    // `create` fails if the folder exists: a user may try this command by hand, and a folder that
    // the watcher did not create must not be removed.
    let mode = if geteuid().is_root() { 0o711 } else { 0o700 };
    let made = DirBuilder::new().mode(mode).create(&args.folder);
    // The mode must not depend on the umask: a program that changes to another user must still
    // reach its ledger.
    let made = made.and_then(|()| fs::set_permissions(&args.folder, Permissions::from_mode(mode)));
    made.with_context(|| format!("cannot make {}", args.folder.display()))?;
    // The lock lasts until this process ends, in whatever way. A process that finds the folder
    // unlocked knows that it has no watcher.
    let watched = File::open(&args.folder).and_then(|folder| folder.lock().map(|()| folder));
    let watched = watched.or_else(|error| {
        fs::remove_dir(&args.folder)?;
        Err(error)
    });
    let watched = watched.context("cannot watch the folder")?;
    // SAFETY: this process has one thread.
    if let ForkResult::Parent { .. } = unsafe { fork() }? {
        return Ok(exit::SUCCESS);
    }
    setsid()?;
    prctl::set_name(c"gpuslice-tidy")?;
    // A caller that has ended does not read it. Its folder is removed all the same.
    let _ = messages::write_out(format!("{}\n", std::process::id()).as_bytes());
    let told = messages::serve();
    dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    // Read the links now: the command may remove the folder.
    let link = told.entry.or_else(|| registry::link_of(&args.folder));
    let leaf = told.cgroup.and_then(leaf::of_a_run);
    let leaf = leaf.or_else(|| leaf::of(&args.folder));
    let mut recorder = Recorder::begin(&args.folder);
    let mut page = RunPage::open(&args.folder, recorder::LEDGER);
    let mut wait_for = |user: &User| match (&mut recorder, &mut page) {
        (None, None) => user.wait(),
        (recorder, page) => follow(user, recorder.as_mut(), page.as_mut()),
    };
    // Without a link, the caller has failed, and the owner knows nothing of the slice.
    if args.caller.is_none() || link.is_some() {
        wait_for(&User::Process(user));
    }
    if args.caller.is_some() {
        std::thread::sleep(EXEC);
    }
    while let Some(user) = User::of(&args.folder) {
        wait_for(&user);
    }
    // Programs without the slice's variables are found by the run's cgroup.
    if let Some(leaf) = &leaf {
        leaf::wait_until_empty(leaf);
        leaf::remove(leaf);
    }
    if let Some(recorder) = recorder {
        recorder.end(&args.folder);
    }
    // The records of this run are unlocked now. One that is still locked belongs to a later run of the
    // same process.
    drop(told.held);
    finish(&args.folder, link.as_deref(), &told.records);
    // A run that was killed during its start may have left a child whose environment names the
    // folder only now. Its simulated machine creates the folder again, so the folder is removed
    // once more.
    std::thread::sleep(INTERVAL);
    cleanup::remove(&args.folder);
    drop(watched);
    Ok(exit::SUCCESS)
}

/// Waits for the end of a user. Meanwhile the run is recorded, and its page shows its memory.
fn follow(user: &User, mut recorder: Option<&mut Recorder>, mut page: Option<&mut RunPage>) {
    let period = match page {
        Some(_) => meminfo_page::PERIOD,
        None => recorder::INTERVAL,
    };
    let mut recorded: Option<Instant> = None;
    loop {
        if let Some(page) = &mut page {
            page.refresh();
        }
        // A wait may end a little early.
        let is_due = recorded.is_none_or(|last| {
            last.elapsed().saturating_mul(8) >= recorder::INTERVAL.saturating_mul(7)
        });
        if let (Some(recorder), true) = (&mut recorder, is_due) {
            recorder.look();
            recorded = Some(Instant::now());
        }
        if user.wait_for(period) {
            break;
        }
    }
}

/// Closes inherited descriptors. A process may be waiting until all writers of a pipe have closed
/// it, and this process may have inherited such a pipe from the caller.
fn close_inherited() {
    let Ok(open) = fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers: Vec<RawFd> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        // The list also contains the descriptor of the folder that was just read. It is closed
        // already.
        let _ = nix::unistd::close(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::folder_users::another_user;
    use std::io::{Read, Write};

    #[test]
    fn a_process_whose_environment_names_the_folder_uses_it() {
        let folder = Path::new("/nowhere/gpuslice-in-an-environment");
        assert!(another_user(folder).is_none());
        let mut command = Command::new("cat");
        command
            .env("ANY", folder.join("slice.json"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The echo proves that the child runs and its environment is in place: the parent may
        // continue while `exec` is still in progress.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let mut echo = [0; 1];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut echo)
            .unwrap();
        assert!(another_user(folder).is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(another_user(folder).is_none());
    }
}
