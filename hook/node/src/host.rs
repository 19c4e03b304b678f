//! Starts a program of the node: the driver's libraries and the slices are in the node's mounts.
//! Touches: this process's mount namespace. It needs CAP_SYS_ADMIN and the node's PID namespace.

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, setns};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The mount namespace of the node's first process.
const NODE: &str = "/proc/1/ns/mnt";

/// Enters the node's mount namespace.
///
/// # Errors
/// When the pod does not have the node's PID namespace, or not the rights.
pub(crate) fn enter() -> anyhow::Result<()> {
    let link = |path: &str| fs::read_link(path).with_context(|| format!("cannot read {path}"));
    if link(NODE)? == link("/proc/self/ns/mnt")? {
        bail!("this pod cannot see the processes of its node (it needs hostPID: true)");
    }
    let node = File::open(NODE).with_context(|| format!("cannot open {NODE}"))?;
    setns(node, CloneFlags::CLONE_NEWNS)
        .context("cannot enter the mount namespace of the node (privileged: true is needed)")?;
    std::env::set_current_dir("/").context("cannot enter the root of the node")
}

/// Becomes a program of the node. Returns only if that fails.
pub(crate) fn start(program: &Path, arguments: &[OsString]) -> anyhow::Error {
    if let Err(error) = enter() {
        return error;
    }
    let error = Command::new(program).args(arguments).exec();
    anyhow::Error::new(error).context(format!("cannot start {} on the node", program.display()))
}
