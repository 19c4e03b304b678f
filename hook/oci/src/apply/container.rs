//! A container that is being created, as the host sees its first process.
//! Touches: /proc of that process; the host's /dev.

use crate::base::outcome::Stage;
use crate::request::spec::Spec;
use crate::request::state::State;
use anyhow::{Context, bail};
use gpuslice_host::base::{read, sys};
use gpuslice_host::machine::process::InitProcess;
use nix::fcntl::OFlag;
use nix::sys::statvfs::FsFlags;
use nix::unistd::{Gid, Uid};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The container's first process. In its own pid namespace, the pid that the runtime reports is not
/// valid. There the first process is our parent, the runtime's child that runs us.
pub(crate) fn owner(state: &State, stage: Stage) -> anyhow::Result<InitProcess> {
    match stage {
        Stage::Container => {
            InitProcess::parent().context("cannot find the container's first process")
        }
        Stage::Runtime if state.pid <= 1 => {
            bail!(
                "the runtime's state names process {}, which cannot be a container's (older versions \
                 of youki run hooks before the process exists; use runc or crun)",
                state.pid
            )
        }
        Stage::Runtime => InitProcess::of(state.pid)
            .with_context(|| format!("the container's first process, {}, is gone", state.pid)),
    }
}

fn open(path: &str) -> anyhow::Result<File> {
    let opened = sys::open(Path::new(path), OFlag::O_RDONLY);
    opened.with_context(|| format!("cannot open {path}"))
}

/// Opens our own mount namespace.
pub(crate) fn own_namespace() -> anyhow::Result<File> {
    open("/proc/self/ns/mnt")
}

/// Opens the container's mount namespace, which must not be ours.
pub(crate) fn namespace(pid: i32, own: &File) -> anyhow::Result<File> {
    let namespace = open(&format!("/proc/{pid}/ns/mnt"))?;
    let identity = |file: &File| file.metadata().map(|facts| (facts.dev(), facts.ino()));
    if identity(&namespace)? == identity(own)? {
        bail!("process {pid} has no mount namespace of its own: it is not a container's");
    }
    Ok(namespace)
}

/// Checks that this hook runs at the `createContainer` stage. Before `pivot_root`, /proc is still
/// the host's, and its process 1 has another mount namespace than the container. A hook configured
/// at another stage would mount onto the host.
pub(crate) fn is_in_one() -> anyhow::Result<()> {
    let identity = |path: &str| std::fs::metadata(path).map(|facts| (facts.dev(), facts.ino()));
    let own = identity("/proc/self/ns/mnt").context("cannot look at /proc/self/ns/mnt")?;
    // A hook that may not read this link is in a user namespace, so its mount namespace is not
    // the host's.
    match identity("/proc/1/ns/mnt") {
        Ok(first) if first == own => bail!(
            "refusing createContainer in the host's mount namespace: the hook's first argument must \
             be the stage at which it is configured"
        ),
        _ => Ok(()),
    }
}

/// Checks that no process of another container can write to this executable (CVE-2019-5736). Such a
/// process can see the hook if the two share a pid namespace. It may open `/proc/PID/exe` while the
/// hook runs, and write to it after the hook has ended. Only a read-only mount prevents that.
pub(crate) fn is_out_of_reach(spec: &Spec) -> anyhow::Result<()> {
    if !spec.shares_pids() {
        return Ok(());
    }
    let own = "/proc/self/exe";
    let facts = nix::sys::statvfs::statvfs(own)
        .with_context(|| format!("cannot examine the file system of {own}"))?;
    match facts.flags().contains(FsFlags::ST_RDONLY) {
        true => Ok(()),
        false => bail!(
            "refusing to run at createContainer: other processes in the shared pid namespace could overwrite \
             gpuslice-hook (configure it at createRuntime, or mount its file read-only)"
        ),
    }
}

/// Whether the hook's root user is another user on the host, because a rootless engine started the
/// hook.
pub(crate) fn is_rootless() -> bool {
    let map = read::file(Path::new("/proc/self/uid_map"), 1 << 16).unwrap_or_default();
    let map = String::from_utf8_lossy(&map).into_owned();
    let mut fields = map.split_ascii_whitespace();
    let own = (fields.next(), fields.next(), fields.next());
    !map.is_empty() && own != (Some("0"), Some("0"), Some("4294967295"))
}

/// The device number of the file system of the host's own /dev.
pub(crate) fn hosts_dev() -> anyhow::Result<u64> {
    let facts = std::fs::metadata("/dev").context("cannot look at /dev")?;
    Ok(facts.dev())
}

/// The host's ids of the container's root user; `None` where it is the host's root, too.
pub(crate) fn mapped_root(pid: i32) -> anyhow::Result<Option<(Uid, Gid)>> {
    let first = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        let text = read::file(Path::new(&path), 1 << 16);
        let text = text.with_context(|| format!("cannot read {path}"))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut lines = text.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (inside, outside) = (fields.next()?, fields.next()?);
            (inside == "0").then(|| outside.parse::<u32>().ok())?
        });
        anyhow::Ok(lines.next().unwrap_or(0))
    };
    let (uid, gid) = (first("uid_map")?, first("gid_map")?);
    let mapped = (uid, gid) != (0, 0);
    Ok(mapped.then(|| (Uid::from_raw(uid), Gid::from_raw(gid))))
}
