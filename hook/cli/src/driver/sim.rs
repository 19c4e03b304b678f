//! The simulated driver: its place, and the variables that choose its machine.
//! Touches: the file system, by reading it and by creating the folder of the machine's state.

use crate::base::text;
use crate::driver::preload::{Unnameable, installed, is_expanded};
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The variable that names the machine.
pub(crate) const SIM: &str = "GPUSLICE_SIM";
/// The variable that names the folder of its state. All processes with the same folder share the
/// machine.
pub(crate) const STATE: &str = "GPUSLICE_SIM_STATE";
/// The variable with the folders that ld.so searches first.
pub(crate) const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Reasons why there is no simulated machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SimError {
    /// The simulated driver is missing.
    #[error(
        "there is no simulated driver in {}: install gpuslice's simulator, or in its source tree run \
         make",
        text::alternatives(.looked_in)
    )]
    NoSimulator {
        /// Every folder that was searched.
        looked_in: Vec<PathBuf>,
    },
    /// The scenario file cannot be read.
    #[error("cannot read scenario {path}")]
    Scenario {
        /// The scenario file's path.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// LD_LIBRARY_PATH cannot name the folder of the driver.
    #[error(transparent)]
    Unnameable(#[from] Unnameable),
}

/// A requested simulated machine.
#[derive(Clone, Debug)]
pub(crate) struct Sim {
    /// Its name or the absolute path of its scenario.
    pub machine: OsString,
    /// The folder of the simulated driver.
    pub driver: PathBuf,
}

impl Sim {
    /// Finds the driver: in `../sim`, where `make` builds it, or where packages install it.
    ///
    /// # Errors
    /// When the driver is in neither place, or the scenario file does not exist.
    pub(crate) fn find(machine: &str, beside: &Path) -> Result<Sim, SimError> {
        let built = beside.parent().unwrap_or(beside).join("sim");
        let packaged = installed(beside).map(|folder| folder.join("sim"));
        let mut looked_in: Vec<PathBuf> = std::iter::once(built).chain(packaged).collect();
        looked_in.dedup();
        let driver = looked_in
            .iter()
            .find(|folder| folder.join("libcuda.so.1").is_file())
            .cloned()
            .ok_or(SimError::NoSimulator { looked_in })?;
        // ld.so has no syntax for a path with a colon or semicolon.
        let separates = |byte: &u8| matches!(byte, b':' | b';');
        if driver.as_os_str().as_bytes().iter().any(separates) || is_expanded(&driver) {
            return Err(Unnameable {
                path: driver,
                variable: LIBRARY_PATH,
            }
            .into());
        }
        Ok(Sim {
            machine: absolute_scenario(machine)?,
            driver,
        })
    }

    /// Returns the variables that replace the real driver by the simulated one. For a machine with
    /// a driver branch (`rtx3090@550`), that branch's libraries come first.
    #[must_use]
    pub(crate) fn vars(&self, library_path: Option<&OsStr>) -> Vec<(OsString, OsString)> {
        let mut path = OsString::new();
        if let Some(branch) = self.branch().map(|branch| self.driver.join(branch))
            && branch.join("libcuda.so.1").is_file()
        {
            path.push(branch);
            path.push(":");
        }
        path.push(&self.driver);
        if let Some(existing) = library_path.filter(|existing| !existing.is_empty()) {
            path.push(":");
            path.push(existing);
        }
        vec![
            (LIBRARY_PATH.into(), path),
            (SIM.into(), self.machine.clone()),
        ]
    }
}

impl Sim {
    /// Returns the driver branch at the end of the machine's name: 550 for `@550`, 615 for
    /// `@615-misc`.
    fn branch(&self) -> Option<&str> {
        let (_, branch) = self.machine.to_str()?.rsplit_once('@')?;
        branch
            .split('-')
            .next()
            .filter(|branch| !branch.is_empty() && branch.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// Returns the simulated machine if this process is a program of `gpuslice run --sim`. The library
/// path of such a program contains the folder of the simulated driver.
#[must_use]
pub(crate) fn of_environment() -> Option<String> {
    let machine = env::var_os(SIM).filter(|machine| !machine.is_empty())?;
    let folders = env::var_os(LIBRARY_PATH)?;
    let is_simulated = |folder: PathBuf| folder.join("gpuslice-sim").is_file();
    let any = env::split_paths(&folders).any(is_simulated);
    any.then(|| machine.to_string_lossy().into_owned())
}

/// Makes the path of a scenario file absolute, because the program may change its working folder.
/// Names of machines stay unchanged.
fn absolute_scenario(machine: &str) -> Result<OsString, SimError> {
    if !machine.contains('/') && !machine.ends_with(".toml") {
        return Ok(machine.into());
    }
    let path = Path::new(machine);
    path.canonicalize()
        .map(PathBuf::into_os_string)
        .map_err(|source| SimError::Scenario {
            path: path.to_owned(),
            source,
        })
}
