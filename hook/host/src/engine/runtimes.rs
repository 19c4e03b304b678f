//! Finds the OCI runtime that gpuslice-runtime executes.
//! Touches: the host's policy, the toolkit's list of runtimes, the folders of runtimes (reads).

use crate::base::paths::HostPaths;
use crate::engine::toolkit;
use crate::machine::policy::{self, PolicyError};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of the wrapper: gpuslice-hook as an OCI runtime.
pub const WRAPPER: &str = "gpuslice-runtime";

/// The runtimes to execute, where the host's policy names none.
pub const USUAL: [&str; 2] = ["runc", "crun"];

/// The folders that are searched for a runtime without a path. $PATH is the caller's, so it is not
/// used.
const FOLDERS: [&str; 6] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin",
    "/sbin",
];

/// Why the runtime is unknown.
#[derive(Debug)]
pub enum RuntimeError {
    /// The policy cannot be read.
    Policy(PolicyError),
    /// No runtime of these names exists.
    NoRuntime(Vec<String>),
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuntimeError::Policy(error) => match std::error::Error::source(error) {
                Some(source) => write!(out, "{error}: {source}"),
                None => write!(out, "{error}"),
            },
            RuntimeError::NoRuntime(names) => write!(
                out,
                "there is no OCI runtime {} in {}: name one as `runtime = [\"runc\"]` in \
                 /etc/gpuslice/config.toml",
                names.join(" or "),
                FOLDERS.join(", ")
            ),
        }
    }
}

impl From<PolicyError> for RuntimeError {
    fn from(error: PolicyError) -> RuntimeError {
        RuntimeError::Policy(error)
    }
}

/// Whether a program is the wrapper, by its name.
#[must_use]
pub fn is_wrapper(name: Option<&OsStr>) -> bool {
    name.is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(WRAPPER)))
}

/// The runtimes where the policy names none: those that nvidia-container-runtime lists beside
/// gpuslice-runtime, else the usual ones.
#[must_use]
pub fn below_policy(paths: &HostPaths) -> Vec<String> {
    let others = toolkit::runtimes(&toolkit::file(paths)).into_iter();
    others.chain(USUAL.map(str::to_owned)).collect()
}

/// The runtimes to try in turn to create a container.
///
/// # Errors
/// When the policy cannot be used.
pub fn creating(paths: &HostPaths) -> Result<Vec<String>, RuntimeError> {
    let runtimes = policy::runtimes(paths)?;
    Ok(match runtimes.is_empty() {
        true => below_policy(paths),
        false => runtimes,
    })
}

/// The runtime that a wrapper at this path executes on this host to create a container.
///
/// # Errors
/// When the policy cannot be used, or no runtime exists.
pub fn below(executable: &Path, paths: &HostPaths) -> Result<PathBuf, RuntimeError> {
    find(executable, &creating(paths)?)
}

/// The first of these runtimes that exists in the folders that gpuslice-runtime searches.
#[must_use]
pub fn first(names: &[String]) -> Option<PathBuf> {
    find(Path::new(""), names).ok()
}

/// The first runtime that exists and is not the wrapper under another name.
///
/// # Errors
/// When there is none.
pub fn find(executable: &Path, names: &[String]) -> Result<PathBuf, RuntimeError> {
    let identity = |path: &Path| fs::metadata(path).map(|facts| (facts.dev(), facts.ino()));
    let own = identity(executable).ok();
    let usable = |path: &PathBuf| {
        let facts = fs::metadata(path);
        facts.is_ok_and(|facts| facts.is_file() && facts.mode() & 0o111 != 0)
            && (own.is_none() || identity(path).ok() != own)
    };
    let candidates = |name: &String| -> Vec<PathBuf> {
        match name.starts_with('/') {
            true => vec![name.into()],
            false => FOLDERS.iter().map(|it| Path::new(it).join(name)).collect(),
        }
    };
    let found = names.iter().flat_map(candidates).find(usable);
    found.ok_or_else(|| RuntimeError::NoRuntime(names.to_vec()))
}
