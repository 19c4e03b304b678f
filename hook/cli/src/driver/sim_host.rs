//! The host of a simulated machine: its memory is that of the scenario, not of this machine.
//! Touches: the simulator's tool; this process's own view of `/proc/meminfo`.
//!
//! On unified memory, programs such as `nvitop`, vLLM and llama.cpp read `/proc/meminfo` as well as
//! the driver. A simulated GB10 with this machine's meminfo would report two different machines at
//! once.

use gpuslice_host::base::own_mounts::{self, Later};
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

/// Reasons why the machine cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SimHostError {
    /// The simulator's tool does not exist or does not run.
    #[error("cannot run {path}")]
    Tool {
        /// Its expected path.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The simulator reported an error.
    #[error("cannot start the simulated machine: {0}")]
    Refused(String),
    /// The machine cannot have its own meminfo.
    #[error("the simulated machine cannot have its own /proc/meminfo")]
    Mount(#[source] nix::Error),
}

/// Starts the machine, so that its meminfo exists before the first program starts. Returns None if
/// its GPUs do not share the host's memory.
///
/// # Errors
/// When the simulator refuses the scenario or the state.
pub(crate) fn start(
    driver: &Path,
    machine: &OsStr,
    state: &Path,
) -> Result<Option<PathBuf>, SimHostError> {
    let path = driver.join("gpuslice-sim");
    let output = Command::new(&path)
        .arg("--state")
        .arg(state)
        .arg("start")
        .arg(machine)
        .env_remove("LD_PRELOAD")
        .env_remove("RUST_BACKTRACE")
        .env_remove("RUST_LIB_BACKTRACE")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| SimHostError::Tool { path, source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("Error: ");
        return Err(SimHostError::Refused(match output.status.signal() {
            // The simulator maps its state files; a full file system makes a write to them raise
            // SIGBUS.
            Some(libc::SIGBUS) => full(state),
            _ if said.is_empty() => format!("the simulator ended with {}", output.status),
            _ => said.to_owned(),
        }));
    }
    let meminfo = state.join("meminfo");
    match fs::metadata(&meminfo) {
        Ok(file) if file.len() == 0 => Err(SimHostError::Refused(full(state))),
        Ok(_) => Ok(Some(meminfo)),
        Err(_) => Ok(None),
    }
}

fn full(state: &Path) -> String {
    format!("the file system of {} is full", state.display())
}

/// Mounts the machine's meminfo at `/proc/meminfo` for this process and all processes it starts.
/// Only root can mount; for other users `/proc/meminfo` stays this machine's.
///
/// # Errors
/// When the mount fails although root should be able to mount.
pub(crate) fn show(meminfo: &Path) -> Result<(), SimHostError> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    match own_mounts::enter(Later::Hidden) {
        // This is root in a container without permission to mount.
        Err(nix::Error::EPERM) => return Ok(()),
        done => done.map_err(SimHostError::Mount)?,
    }
    // The path is resolved first, because a later rename could redirect a link in it.
    let meminfo = fs::canonicalize(meminfo).unwrap_or_else(|_| meminfo.to_owned());
    own_mounts::bind(&meminfo, Path::new("/proc/meminfo")).map_err(SimHostError::Mount)
}
