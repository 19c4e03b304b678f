//! Puts a slice into a container before its first program runs.
//! Touches: the container's mount namespace, by descriptors alone.
//! Law: nothing of the image is executed, mounted from or followed out of it; what fails leaves
//! nothing attached.

mod masked;
pub mod preload;
mod read_only;
pub mod reason;
pub mod root;
pub mod sources;

use crate::image::{self, Needs, Unsuited};
use crate::plan::{MOUNT, PRELOAD};
use crate::read;
use crate::steps::Steps;
use crate::sys;
use gpuslice_config::slice;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::mount::{MntFlags, umount2};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{Gid, Uid};
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
    /// The container has its slice, but its first program is static, and loads no library.
    Unreached,
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
         volumes (create an empty file of that name in it)"
    )]
    Volume,
    /// The runtime would hide it again.
    #[error(
        "the container's mask {0} hides its slice, or may by a link (remove it from maskedPaths)"
    )]
    Masked(PathBuf),
    /// The library is no library.
    #[error("libgpuslice.so is not an ELF library")]
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
    pub mapped: Option<(Uid, Gid)>,
    /// Its first program, as the runtime was told.
    pub program: Option<&'a str>,
    /// The device that the host's own /dev is on.
    pub hosts_dev: u64,
    /// The slice file, as it was planned.
    pub slice: &'a str,
    /// The paths that the runtime masks afterwards.
    pub masked: &'a [PathBuf],
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
        folder,
        ..
    } = sources;
    let mut attached = Attached(Vec::new());
    let (place, at) = place(&root, target.hosts_dev)?;
    if at == IN_DEV {
        let written = rewrite(&folder, "slice.json", slice_in_dev(target.slice).as_bytes());
        written.map_err(inside("write slice.json"))?;
    }
    let there = is_attached(place.as_fd(), own.as_fd())?;
    let own = match there {
        true => place,
        false => attach_own(own, below, place.as_fd(), &mut attached, steps)?,
    };
    let list = List {
        mount: preload,
        folder,
        library: format!("{at}/libgpuslice.so"),
        own: own.as_fd(),
    };
    let listed = list.put(&root, &mut attached, steps)?;
    masked::check(&root, at, target.masked)?;
    // All of them are there: none is taken away.
    std::mem::take(&mut attached.0);
    steps.reached("done");
    Ok(match there && listed {
        true => Outcome::Already,
        false if image::is_static(&root, target.program) => Outcome::Unreached,
        false => Outcome::Injected,
    })
}

/// Where the slice is in an image that can be written to, and in one that cannot.
const IN_ROOT: &str = "/.gpuslice";
/// The shim looks here, too.
const IN_DEV: &str = "/dev/gpuslice";

/// The folder that the slice is mounted on, and its name in the container.
fn place(root: &Root, hosts_dev: u64) -> Result<(OwnedFd, &'static str), InjectError> {
    match root.plain_folder(root.fd(), MOUNT) {
        Err(error) if error.raw_os_error() == Some(libc::EROFS) => {
            let place = read_only::folder_in_dev(root, "gpuslice", hosts_dev);
            Ok((place.map_err(inside("make /dev/gpuslice"))?, IN_DEV))
        }
        place => Ok((place.map_err(inside("make /.gpuslice"))?, IN_ROOT)),
    }
}

/// The slice file for a container that sees its slice in /dev, where the shim's own defaults do
/// not lead.
fn slice_in_dev(text: &str) -> String {
    let Ok(mut slice) = slice::parse(text.as_bytes()) else {
        return text.to_owned();
    };
    let path = |name: &str| Some(slice::Text::new(&format!("{IN_DEV}/{name}")));
    slice.meminfo = path("meminfo");
    slice.ledger = path("ledger/ledger");
    if slice
        .devices()
        .any(|device| device.integrated == Some(true))
    {
        slice.promises = path("promises");
        slice.promise = path("promise");
    }
    slice.to_json()
}

/// Whether a list is the one that we have mounted: the file itself, or in a layer that nobody
/// can write to.
fn is_listed(found: BorrowedFd<'_>, own: BorrowedFd<'_>, library: &str) -> io::Result<bool> {
    if root::same(found, own)? {
        return Ok(true);
    }
    if !root::is_regular(found)? || !fstatvfs(found)?.flags().contains(FsFlags::ST_RDONLY) {
        return Ok(false);
    }
    let text = read::whole(root::reopen(found)?, preload::CAP)?;
    Ok(text.starts_with(format!("{library}\n").as_bytes()))
}

fn is_attached(place: BorrowedFd<'_>, own: BorrowedFd<'_>) -> Result<bool, InjectError> {
    root::same(place, own).map_err(inside("look at /.gpuslice"))
}

/// Mounts the slice and what belongs into it. The mount's own root is returned.
fn attach_own(
    own: OwnedFd,
    below: Vec<(PathBuf, OwnedFd)>,
    place: BorrowedFd<'_>,
    attached: &mut Attached,
    steps: &Steps,
) -> Result<OwnedFd, InjectError> {
    sys::attach(own.as_fd(), place).map_err(inside("mount /.gpuslice"))?;
    let at = own.try_clone().map_err(inside("mount /.gpuslice"))?;
    attached.0.push(own);
    steps.reached("attached");
    for (name, mount) in below {
        let done = sys::attach_at(mount.as_fd(), at.as_fd(), &name);
        done.map_err(inside("mount the files of /.gpuslice"))?;
        attached.0.push(mount);
    }
    steps.reached("submounts");
    Ok(at)
}

/// Writes a file of the host's folder again, which in the container's namespace has no path.
fn rewrite(folder: &File, name: &str, text: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    File::from(openat(folder, name, flags, Mode::empty())?).write_all(text)
}

/// The loader's list, to be put into the container.
struct List<'a> {
    mount: OwnedFd,
    folder: File,
    library: String,
    own: BorrowedFd<'a>,
}

/// What the list is put on.
enum Point {
    /// A regular file.
    File(OwnedFd),
    /// Nothing, in a folder that nobody can write to.
    Nothing,
}

impl List<'_> {
    /// Puts the library on the list. Whether it was there already is returned.
    fn put(self, root: &Root, attached: &mut Attached, steps: &Steps) -> Result<bool, InjectError> {
        let etc = root.folder("etc").map_err(inside("open /etc"))?;
        let point = match point(root, &etc)? {
            Point::File(point) => point,
            Point::Nothing => {
                self.write(b"", steps)?;
                let upper = root::stands(self.own, "etc").map_err(io::Error::from);
                let layer =
                    upper.and_then(|upper| read_only::layer_over(etc.fd.as_fd(), upper.as_fd()));
                attached
                    .0
                    .push(layer.map_err(inside("mount a layer over /etc"))?);
                return Ok(false);
            }
        };
        let listed = is_listed(point.as_fd(), self.mount.as_fd(), &self.library);
        if listed.map_err(inside("look at /etc/ld.so.preload"))? {
            return Ok(true);
        }
        let existing = existing(point.as_fd());
        let existing = existing.map_err(inside("read the image's /etc/ld.so.preload"))?;
        self.write(&existing, steps)?;
        let mounted = sys::attach(self.mount.as_fd(), point.as_fd());
        mounted.map_err(inside("mount /etc/ld.so.preload"))?;
        attached.0.push(self.mount);
        Ok(false)
    }

    fn write(&self, existing: &[u8], steps: &Steps) -> Result<(), InjectError> {
        let merged = preload::merge(existing, &self.library);
        // What was planned is right for most images.
        if merged != preload::planned().as_bytes() {
            let written = rewrite(&self.folder, PRELOAD, &merged);
            written.map_err(inside("write /etc/ld.so.preload"))?;
        }
        steps.reached("preload-written");
        Ok(())
    }
}

/// What the image's own list says. The loader reads as much of it as it says that it is long.
fn existing(point: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    match fstat(point)?.st_size {
        0 => Ok(Vec::new()),
        _ => read::whole(root::reopen(point)?, preload::CAP),
    }
}

/// What the list is mounted on; made where there is nothing, but never in a volume.
fn point(root: &Root, etc: &Folder) -> Result<Point, InjectError> {
    let found = match root::stands(etc.fd.as_fd(), LIST) {
        Err(Errno::ENOENT) if etc.foreign => {
            let flags = fstatvfs(&etc.fd).map_err(|error| inside("look at /etc")(error.into()))?;
            return match flags.flags().contains(FsFlags::ST_RDONLY) {
                true => Ok(Point::Nothing),
                false => Err(InjectError::Volume),
            };
        }
        Err(Errno::ENOENT) => match root.make_file(etc.fd.as_fd(), LIST) {
            Err(error) if error.raw_os_error() == Some(libc::EROFS) => return Ok(Point::Nothing),
            made => {
                made.map_err(inside("make /etc/ld.so.preload"))?;
                root::stands(etc.fd.as_fd(), LIST)
            }
        },
        found => found,
    };
    let found = match found {
        Err(Errno::ELOOP) => return Err(InjectError::NotAFile),
        found => found.map_err(|error| inside("open /etc/ld.so.preload")(error.into()))?,
    };
    let regular = root::is_regular(found.as_fd());
    match regular.map_err(inside("look at /etc/ld.so.preload"))? {
        true => Ok(Point::File(found)),
        false => Err(InjectError::NotAFile),
    }
}
