//! A mount namespace of this process's own, and mounts in it.
//! Touches: this process's view of the file system, and that of the processes that it starts.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::path::Path;

const NOTHING: Option<&str> = None;

/// The effect of mounts that other processes make later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// They do not appear in the namespace.
    Hidden,
    /// They appear in it.
    Seen,
}

/// Gives this process a mount namespace of its own. Mounts that are made in it do not appear outside.
///
/// # Errors
/// EPERM without the right to mount.
pub fn enter(later: Later) -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    let others = match later {
        Later::Hidden => MsFlags::MS_PRIVATE,
        Later::Seen => MsFlags::MS_SLAVE,
    };
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | others, NOTHING)
}

/// Mounts a file over another one.
///
/// # Errors
/// The kernel's.
pub fn bind(file: &Path, over: &Path) -> nix::Result<()> {
    mount(Some(file), over, NOTHING, MsFlags::MS_BIND, NOTHING)
}

/// Mounts a file over another one, so that it cannot be written there.
///
/// # Errors
/// The kernel's.
pub fn bind_read_only(file: &Path, over: &Path) -> nix::Result<()> {
    bind(file, over)?;
    let flags = MsFlags::MS_BIND
        | MsFlags::MS_REMOUNT
        | MsFlags::MS_RDONLY
        | MsFlags::MS_NOSUID
        | MsFlags::MS_NODEV
        | MsFlags::MS_NOEXEC;
    mount(NOTHING, over, NOTHING, flags, NOTHING)
}
