//! Puts a slice into a container before its first program runs.
//! Touches: the container's mount namespace, by descriptors alone.
//! Law: nothing of the image is executed, mounted from or followed out of it; what fails leaves
//! nothing attached.

pub mod preload;
pub mod root;
pub mod sources;

use crate::host;
use crate::image::{Needs, Unsuited};
use crate::place::Places;
use crate::plan::MOUNT;
use crate::read;
use crate::steps::Steps;
use crate::sys;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns};
use root::{Folder, Root};
use sources::Sources;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The loader's list in `etc`.
const LIST: &str = "ld.so.preload";

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The container has its slice.
    Injected,
    /// It had it already: the hook is configured twice.
    Already,
    /// The image cannot load the library.
    Unsuited(Unsuited),
}

/// Why a container has no slice.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// Its mount namespace.
    #[error("cannot enter the container's mount namespace")]
    Enter(#[source] io::Error),
    /// Its root.
    #[error("cannot open the container's root {path}")]
    Root {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something in it.
    #[error("cannot {doing} in the container")]
    Inside {
        /// What.
        doing: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The list is something else than a file.
    #[error("the image's /etc/ld.so.preload is not a regular file")]
    NotAFile,
    /// /etc is somebody else's.
    #[error(
        "the container's /etc is a volume without ld.so.preload, and gpuslice does not write to \
         volumes: an empty file of that name in it is enough"
    )]
    Volume,
    /// The library is no library.
    #[error("the library that is to be injected is not an ELF library")]
    Library,
}

fn inside(doing: &'static str) -> impl FnOnce(io::Error) -> InjectError {
    move |source| InjectError::Inside { doing, source }
}

/// Where to.
#[derive(Debug)]
pub struct Target<'a> {
    /// The container's mount namespace; None when we are in it.
    pub namespace: Option<File>,
    /// Its root, as seen from the root of that namespace.
    pub rootfs: &'a Path,
    /// Its root user, as the host numbers it.
    pub mapped: Option<(nix::unistd::Uid, nix::unistd::Gid)>,
}

/// Mounts that are taken away again unless all of them are there.
struct Attached(Vec<OwnedFd>);

impl Drop for Attached {
    fn drop(&mut self) {
        for mount in self.0.iter().rev() {
            let path = sys::descriptor_path(mount);
            let _ = umount2(path.as_str(), MntFlags::MNT_DETACH);
        }
    }
}

/// Injects. We stay in the container's mount namespace, whatever comes of it.
///
/// # Errors
/// When the container cannot be given its slice.
pub fn inject(
    sources: Sources,
    target: &Target<'_>,
    steps: &Steps,
) -> Result<Outcome, InjectError> {
    let needs = Needs::of(&sources.library).ok_or(InjectError::Library)?;
    if let Some(namespace) = &target.namespace {
        let entered = setns(namespace, CloneFlags::CLONE_NEWNS);
        entered.map_err(|error| InjectError::Enter(error.into()))?;
    }
    steps.reached("entered");
    let root = Root::open(target.rootfs, target.mapped);
    let root = root.map_err(|source| InjectError::Root {
        path: target.rootfs.to_owned(),
        source,
    })?;
    if let Some(unsuited) = needs.met_by(&root) {
        return Ok(Outcome::Unsuited(unsuited));
    }
    let Sources {
        root: own,
        below,
        preload,
        preload_text,
        ..
    } = sources;
    let place = root.plain_folder(root.fd(), MOUNT);
    let place = place.map_err(inside("make /.gpuslice"))?;
    let mut attached = Attached(Vec::new());
    let there = is_attached(place.as_fd(), own.as_fd())?;
    if !there {
        attach_own(own, below, place.as_fd(), &mut attached, steps)?;
    }
    let listed = list(&root, preload, preload_text, &mut attached, steps)?;
    // All of them are there: none is taken away.
    std::mem::take(&mut attached.0);
    steps.reached("done");
    match there && listed {
        true => Ok(Outcome::Already),
        false => Ok(Outcome::Injected),
    }
}

/// Whether a container has its slice already, as seen from its own mount namespace.
#[must_use]
pub fn is_there(rootfs: &Path, places: &Places, container: &str) -> bool {
    let look = || -> io::Result<bool> {
        let root = Root::open(rootfs, None)?;
        let folder = File::open(places.container_root(container))?;
        let list = File::open(host::preload(places, container))?;
        let etc = root.folder("etc")?;
        let own = root::stands(root.fd(), MOUNT)?;
        let listed = root::stands(etc.fd.as_fd(), LIST)?;
        let same = root::same(own.as_fd(), folder.as_fd())?;
        Ok(same && root::same(listed.as_fd(), list.as_fd())?)
    };
    look().unwrap_or(false)
}

fn is_attached(place: BorrowedFd<'_>, own: BorrowedFd<'_>) -> Result<bool, InjectError> {
    root::same(place, own).map_err(inside("look at /.gpuslice"))
}

fn attach_own(
    own: OwnedFd,
    below: Vec<(PathBuf, OwnedFd)>,
    place: BorrowedFd<'_>,
    attached: &mut Attached,
    steps: &Steps,
) -> Result<(), InjectError> {
    sys::attach(own.as_fd(), place).map_err(inside("mount /.gpuslice"))?;
    let at = own.try_clone().map_err(inside("mount /.gpuslice"))?;
    attached.0.push(own);
    steps.reached("attached");
    for (name, mount) in below {
        let point = root::stands(at.as_fd(), &name).map_err(io::Error::from);
        let done = point.and_then(|point| sys::attach(mount.as_fd(), point.as_fd()));
        done.map_err(inside("mount what belongs into /.gpuslice"))?;
        attached.0.push(mount);
    }
    steps.reached("submounts");
    Ok(())
}

/// Puts the library on the loader's list. Whether it was there already is returned.
fn list(
    root: &Root,
    preload: OwnedFd,
    text: File,
    attached: &mut Attached,
    steps: &Steps,
) -> Result<bool, InjectError> {
    let etc = root.folder("etc").map_err(inside("open /etc"))?;
    let point = point(root, &etc)?;
    let same = root::same(point.as_fd(), preload.as_fd());
    if same.map_err(inside("look at /etc/ld.so.preload"))? {
        return Ok(true);
    }
    let read = root::reopen(point.as_fd()).and_then(|file| read::capped(file, preload::CAP));
    let existing = read.map_err(inside("read the image's /etc/ld.so.preload"))?;
    let merged = preload::merge(&existing, &format!("/{MOUNT}/libgpuslice.so"));
    write(text, &merged).map_err(inside("write /etc/ld.so.preload"))?;
    steps.reached("preload-written");
    sys::attach(preload.as_fd(), point.as_fd()).map_err(inside("mount /etc/ld.so.preload"))?;
    attached.0.push(preload);
    Ok(false)
}

fn write(mut file: File, text: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(text)
}

/// The regular file on which the list is mounted.
fn point(root: &Root, etc: &Folder) -> Result<OwnedFd, InjectError> {
    let found = match root::stands(etc.fd.as_fd(), LIST) {
        Err(Errno::ENOENT) if etc.foreign => return Err(InjectError::Volume),
        Err(Errno::ENOENT) => {
            let made = root.make_file(etc.fd.as_fd(), LIST);
            made.map_err(inside("make /etc/ld.so.preload"))?;
            root::stands(etc.fd.as_fd(), LIST)
        }
        found => found,
    };
    let found = match found {
        Err(Errno::ELOOP) => return Err(InjectError::NotAFile),
        found => found.map_err(|error| inside("open /etc/ld.so.preload")(error.into()))?,
    };
    let regular = root::is_regular(found.as_fd());
    match regular.map_err(inside("look at /etc/ld.so.preload"))? {
        true => Ok(found),
        false => Err(InjectError::NotAFile),
    }
}
