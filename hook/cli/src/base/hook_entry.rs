//! Describes the OCI hook in the form that the configurations of container engines require.
//! Touches: the file system, by reading it.
//! Law: every configuration that names the hook also sets its environment.

use anyhow::{Context, bail};
pub use gpuslice_host::engine::hook_entry::{ENVIRONMENT, STAGES};
use gpuslice_host::engine::runtimes;
use serde_json::{Value, json};
use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The hook's executable, in gpuslice's folder.
pub const HOOK: &str = "gpuslice-hook";
/// The name of that executable as an OCI runtime.
pub const RUNTIME: &str = runtimes::WRAPPER;
/// The path at which packages install the hook.
pub const INSTALLED: &str = "/usr/bin/gpuslice-hook";

/// Finds an executable of gpuslice: the file `given`, or else `name` in gpuslice's folder.
///
/// # Errors
/// When the file does not exist or is not executable. An engine configured with it would start no
/// container.
pub fn find(given: Option<&Path>, name: &str) -> anyhow::Result<PathBuf> {
    let beside = || {
        let own = env::current_exe().context("cannot find out where gpuslice is")?;
        Ok::<_, anyhow::Error>(own.with_file_name(name))
    };
    let path = given.map_or_else(beside, |path| Ok(std::path::absolute(path)?))?;
    let facts = path.metadata();
    if !facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0) {
        bail!(
            "{} does not exist or is not executable (option --hook)",
            path.display()
        );
    }
    if path.to_str().is_none() {
        bail!("{} is not UTF-8 and cannot be configured", path.display());
    }
    Ok(path)
}

/// Returns the hook's arguments at one stage.
#[must_use]
pub fn arguments(options: &[String], stage: &str) -> Vec<String> {
    let options = options.iter().cloned();
    let name = std::iter::once(HOOK.to_owned());
    name.chain(options).chain([stage.to_owned()]).collect()
}

/// Selects the containers for which podman or CRI-O runs this hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// For a container with an annotation of gpuslice.
    Annotated,
    /// For every container. A policy with a default slice requires this, and so does a policy that
    /// denies.
    Always,
}

/// Returns the names and contents of the files for the hooks folder of podman and CRI-O. One file
/// holds one list of arguments, so each stage has a file of its own.
#[must_use]
pub fn folder_files(hook: &str, when: When) -> Vec<(String, String)> {
    let when = match when {
        // Any value matches. The hook then refuses an invalid value, which the engine would
        // otherwise ignore silently.
        When::Annotated => json!({"annotations": {"^gpuslice\\.io/": ".*"}}),
        When::Always => json!({"always": true}),
    };
    let file = |stage: &&str| {
        let file = json!({
            "version": "1.0.0",
            "hook": {"path": hook, "args": arguments(&[], stage), "env": [ENVIRONMENT]},
            "when": when,
            "stages": [stage],
        });
        (format!("50-gpuslice-{stage}.json"), pretty(&file))
    };
    STAGES.iter().map(file).collect()
}

/// Formats JSON for a file.
#[must_use]
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
