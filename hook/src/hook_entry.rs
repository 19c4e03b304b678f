//! The OCI hook as the configurations of others name it.
//! Touches: the file system, to look.
//! Law: whoever is told to run the hook is told with which environment, never none.

use anyhow::{Context, bail};
use gpuslice_oci::wrapper;
pub use gpuslice_oci::wrapper::hooks::{ENVIRONMENT, STAGES};
use serde_json::{Value, json};
use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The hook's executable, beside gpuslice.
pub const HOOK: &str = "gpuslice-hook";
/// The same as an OCI runtime.
pub const RUNTIME: &str = wrapper::NAME;
/// Where packages put both.
pub const INSTALLED: &str = "/usr/bin/gpuslice-hook";

/// Finds an executable of ours: the one that was named, or `name` beside gpuslice.
///
/// # Errors
/// When it is not there: an engine that is told of it would start no container.
pub fn find(given: Option<&Path>, name: &str) -> anyhow::Result<PathBuf> {
    let beside = || {
        let own = env::current_exe().context("cannot find out where gpuslice is")?;
        Ok::<_, anyhow::Error>(own.with_file_name(name))
    };
    let path = given.map_or_else(beside, |path| Ok(std::path::absolute(path)?))?;
    let facts = path.metadata();
    if !facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0) {
        bail!("there is no executable {}", path.display());
    }
    if path.to_str().is_none() {
        bail!("{} is not UTF-8 and cannot be configured", path.display());
    }
    Ok(path)
}

/// What the hook is called with at one stage.
#[must_use]
pub fn arguments(options: &[String], stage: &str) -> Vec<String> {
    let options = options.iter().cloned();
    let name = std::iter::once(HOOK.to_owned());
    name.chain(options).chain([stage.to_owned()]).collect()
}

/// When an engine that reads a folder of hooks runs ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// For a container that has one of our annotations.
    Annotated,
    /// For every container: a policy that has a default slice, or denies, needs it.
    Always,
}

/// A file for such a folder, as podman and CRI-O read it: its name, and what it says. One has
/// one list of arguments, so each stage has its own.
#[must_use]
pub fn folder_files(hook: &str, when: When) -> Vec<(String, String)> {
    let when = match when {
        // Any value: one that is wrong is refused by the hook, and not passed over in silence.
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

/// JSON as a file.
#[must_use]
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
