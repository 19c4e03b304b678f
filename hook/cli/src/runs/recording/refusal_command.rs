//! `gpuslice run --on-refusal`: runs a command when allocations of the slice are refused.
//! Touches: a child process of the watcher; a file in the private folder.
//! Law: the watcher never waits for the command, and runs one at a time.

use crate::runs::run_dir;
use anyhow::bail;
use gpuslice_host::events::{Event, journal};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The command, with the folder and the environment of its caller.
#[derive(Debug)]
pub(crate) struct RefusalCommand {
    command: OsString,
    /// The caller's folder, so that a relative path means what it means there.
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
    running: Option<Child>,
    /// The command runs at the next power of ten of refusals: at the 1st, the 10th, the 100th.
    next: u64,
}

impl RefusalCommand {
    /// The command of --on-refusal, if it is given. `watched`: the run's private folder, whose watcher
    /// runs it.
    ///
    /// # Errors
    /// When there is no watcher to run it, or no folder for the events on which it runs.
    pub(crate) fn given(
        command: Option<&OsStr>,
        watched: Option<&Path>,
    ) -> anyhow::Result<Option<RefusalCommand>> {
        let Some(command) = command else {
            return Ok(None);
        };
        if watched.is_none() {
            bail!(
                "--on-refusal needs a slice of this run alone: this slice file names a ledger that other \
                 runs may share, or limits nothing"
            );
        }
        if super::store().is_none() {
            bail!("--on-refusal needs a folder for the slice's events: set HOME or XDG_STATE_HOME");
        }
        Ok(Some(RefusalCommand::new(command)))
    }

    /// The command in this process's folder and environment, without the variables of an enclosing
    /// slice.
    pub(crate) fn new(command: &OsStr) -> RefusalCommand {
        let is_ours =
            |name: &OsStr| name.as_bytes().starts_with(b"GPUSLICE_") || name == "LD_PRELOAD";
        let environment = std::env::vars_os().filter(|(name, _)| !is_ours(name));
        RefusalCommand {
            command: command.to_owned(),
            folder: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            environment: environment.collect(),
            running: None,
            next: 1,
        }
    }

    /// Leaves the command for the watcher.
    pub(super) fn leave(&self, private: &Path) -> io::Result<()> {
        let mut text = self.command.as_bytes().to_vec();
        text.push(0);
        text.extend(self.folder.as_os_str().as_bytes());
        for (name, value) in &self.environment {
            text.push(0);
            text.extend([name.as_bytes(), b"=", value.as_bytes()].concat());
        }
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        options
            .open(private.join(run_dir::ON_REFUSAL))?
            .write_all(&text)
    }

    /// Takes the command that a run has left.
    pub(super) fn take(private: &Path) -> Option<RefusalCommand> {
        let path = private.join(run_dir::ON_REFUSAL);
        let text = fs::read(&path).ok()?;
        let _ = fs::remove_file(&path);
        let mut parts = text.split(|byte| *byte == 0);
        let command = OsStr::from_bytes(parts.next()?).to_owned();
        let folder = PathBuf::from(OsStr::from_bytes(parts.next()?));
        let environment = parts.filter_map(|variable| {
            let at = variable.iter().position(|byte| *byte == b'=')?;
            let (name, value) = variable.split_at_checked(at)?;
            let value = value.get(1..)?;
            Some((
                OsStr::from_bytes(name).to_owned(),
                OsStr::from_bytes(value).to_owned(),
            ))
        });
        Some(RefusalCommand {
            command,
            folder,
            environment: environment.collect(),
            running: None,
            next: 1,
        })
    }

    /// Runs the command if it is due at so many refusals, and the last one has ended.
    pub(super) fn refused(&mut self, count: u64, event: &Event) {
        if let Some(child) = &mut self.running
            && !matches!(child.try_wait(), Ok(None))
        {
            self.running = None;
        }
        if count < self.next || self.running.is_some() {
            return;
        }
        while self.next <= count {
            self.next = self.next.saturating_mul(10);
        }
        self.running = self.spawn(event).ok();
    }

    fn spawn(&self, event: &Event) -> io::Result<Child> {
        // The folder may have been removed since.
        let folder = match self.folder.is_dir() {
            true => self.folder.as_path(),
            false => Path::new("/"),
        };
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(&self.command)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("GPUSLICE_EVENT", event.event.name())
            .env("GPUSLICE_EVENT_MESSAGE", &event.message)
            .env("GPUSLICE_EVENT_JSON", event.line().trim_end())
            .envs(
                event
                    .values()
                    .into_iter()
                    .map(|(name, value)| (journal::variable(name), value)),
            )
            .current_dir(folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // The watcher blocks all signals.
        let unblock = || {
            pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            Ok(())
        };
        // SAFETY: sigprocmask may be called between fork and exec.
        unsafe { command.pre_exec(unblock) };
        command.spawn()
    }
}
