//! Starts a program of the node: the driver's libraries and the slices are in the node's mounts.
//! Touches: this process's mount namespace and user. It needs CAP_SYS_ADMIN and the node's PID
//! namespace.

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, setns};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The mount namespace of the node's first process.
const NODE: &str = "/proc/1/ns/mnt";

/// The user and the group of a process without rights.
const NOBODY: u32 = 65534;

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

/// Runs a program of the node, and waits until it has ended.
///
/// # Errors
/// When it cannot be started, or fails. Its own message is on standard error.
pub(crate) fn run(program: &Path, arguments: &[OsString]) -> anyhow::Result<()> {
    enter()?;
    let shown = program.display();
    let status = Command::new(program).args(arguments).status();
    let status = status.with_context(|| format!("cannot start {shown} on the node"))?;
    if !status.success() {
        bail!("{shown} failed ({status})");
    }
    Ok(())
}

/// Gives up all rights: a process that only stays needs none.
///
/// # Errors
/// When the user cannot be changed.
pub(crate) fn drop_rights() -> anyhow::Result<()> {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setgroups(&[])
        .and_then(|()| setresgid(group, group, group))
        .and_then(|()| setresuid(user, user, user))
        .context("cannot give up the rights of root")
}
