//! What a static hook cannot ask the driver it has `gpuslice` ask, on the host.
//! Touches: a child process, with nothing in its environment.

use crate::place::Places;
use crate::policy::Policy;
use crate::read;
use crate::registry::Budget;
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The command: root's alone, like everything that root runs for a container.
fn command(places: &Places, policy: &Policy) -> anyhow::Result<PathBuf> {
    let path = policy.command.clone().unwrap_or_else(|| places.command());
    let file = read::open(&path).with_context(|| format!("cannot run {}", path.display()))?;
    read::only_roots(&file).with_context(|| format!("cannot run {}", path.display()))?;
    Ok(path)
}

fn run(places: &Places, policy: &Policy, arguments: &[&str]) -> anyhow::Result<String> {
    let path = command(places, policy)?;
    let said = Command::new(&path)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", path.display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !said.status.success() {
        bail!(
            "{} {}: {}",
            path.display(),
            arguments.join(" "),
            text(&said.stderr)
        );
    }
    Ok(text(&said.stderr))
}

/// Has the list of GPUs made.
///
/// # Errors
/// When it is not made.
pub fn list_devices(places: &Places, policy: &Policy) -> anyhow::Result<()> {
    let file = format!("--write={}", places.devices().display());
    run(places, policy, &["devices", &file]).map(drop)
}

/// Has the driver hold a cgroup to a budget.
///
/// # Errors
/// When it does not; a driver that cannot is one of the reasons.
pub fn limit_driver(
    places: &Places,
    policy: &Policy,
    cgroup: &Path,
    budget: &Budget,
) -> anyhow::Result<()> {
    let (uuid, memory) = (budget.uuid.to_string(), budget.memory.get().to_string());
    let cgroup = cgroup.to_string_lossy();
    let arguments = [
        "driver-limit",
        "--cgroup",
        &cgroup,
        "--device",
        &uuid,
        "--memory",
        &memory,
    ];
    run(places, policy, &arguments).map(drop)
}
