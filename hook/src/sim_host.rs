//! The host of a simulated machine: its memory is the scenario's, not this machine's.
//! Touches: the simulator's tool; this process's own view of `/proc/meminfo`.
//!
//! On unified memory programs read `/proc/meminfo` beside the driver: `nvitop`, vLLM, llama.cpp.
//! A simulated GB10 whose meminfo is the laptop's would tell them two machines at once.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

/// Why the machine cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum SimHostError {
    /// The tool is not there or does not run.
    #[error("cannot run {path}")]
    Tool {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The simulator says what is wrong.
    #[error("cannot start the simulated machine: {0}")]
    Refused(String),
    /// The machine cannot have its own meminfo.
    #[error("the simulated machine cannot have its own /proc/meminfo")]
    Mount(#[source] nix::Error),
}

/// Starts the machine, so that its meminfo is there before the first program. None: its GPUs do
/// not share the host's memory.
///
/// # Errors
/// When the simulator refuses the scenario or the state.
pub fn start(
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
        return Err(SimHostError::Refused(said.to_owned()));
    }
    let meminfo = state.join("meminfo");
    Ok(meminfo.exists().then_some(meminfo))
}

/// Shows the machine's meminfo as `/proc/meminfo` to this process and all that it starts.
/// Only root can; for others `/proc/meminfo` stays this machine's.
///
/// # Errors
/// When root could not after all.
pub fn show(meminfo: &Path) -> Result<(), SimHostError> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let nothing: Option<&str> = None;
    let own = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        // What is mounted here from now on stays here.
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(nothing, "/", nothing, private, nothing)
    };
    match own() {
        // Root of a container that may not mount.
        Err(nix::Error::EPERM) => return Ok(()),
        done => done.map_err(SimHostError::Mount)?,
    }
    // A link in the path would be followed to wherever a later rename put it.
    let meminfo = fs::canonicalize(meminfo).unwrap_or_else(|_| meminfo.to_owned());
    mount(
        Some(&meminfo),
        "/proc/meminfo",
        nothing,
        MsFlags::MS_BIND,
        nothing,
    )
    .map_err(SimHostError::Mount)
}
