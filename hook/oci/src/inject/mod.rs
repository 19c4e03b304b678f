//! Puts a slice into a container before its first program runs.
//! Touches: the container's mount namespace, by descriptors alone.
//! Law: nothing of the image is executed or mounted, and no link in it leads out of it. A failure
//! leaves nothing attached.

mod changes;
pub(crate) mod image;
mod masked;
mod mount_table;
mod page;
pub(crate) mod preload;
mod read_only;
pub(crate) mod reason;
pub(crate) mod root;
pub(crate) mod sources;
mod volumes;

use crate::base::crash_points::CrashPoints;
use crate::inject::image::{Needs, Unsuited};
use crate::plan;
use crate::request::spec::SpecMount;
use changes::{Attached, Step};
use gpuslice_host::base::paths::{MOUNT, PRELOAD};
use gpuslice_host::base::read;
use gpuslice_host::base::sys;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{Gid, Uid};
use root::{ContainerRoot, Found};
use sources::Sources;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The loader's list in `etc`.
const LIST: &str = "ld.so.preload";

/// The result of an injection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The container has its slice.
    Injected,
    /// The container already had it: the hook is configured twice.
    Already,
    /// The container has its slice, but its first program does not load the library: why.
    Unreached(&'static str),
    /// The image cannot load the library.
    Unsuited(Unsuited),
}

/// Why a container has no slice.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InjectError {
    /// The container's mount namespace cannot be entered.
    #[error("cannot enter the container's mount namespace")]
    Enter(#[source] io::Error),
    /// The container's root cannot be opened.
    #[error("cannot open the container's root {path}")]
    Root {
        /// The root's path.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// An operation inside the container failed.
    #[error("cannot {doing} in the container")]
    Inside {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    /// The meminfo page has no place.
    #[error("the container's /proc/meminfo is not a file of the kernel's /proc")]
    Meminfo,
    /// The loader's list is not a regular file.
    #[error("the image's /etc/ld.so.preload is not a regular file")]
    NotAFile,
    /// /etc is a volume, which does not belong to the container.
    #[error(
        "the container's /etc is a volume without ld.so.preload, and gpuslice does not write to \
         volumes (create an empty file of that name in it)"
    )]
    Volume,
    /// A volume is mounted where the slice belongs.
    #[error(
        "the container has a volume at {0} or below, where its slice belongs (mount it elsewhere)"
    )]
    Taken(&'static str),
    /// A mount there would appear on the host, too.
    #[error(
        "the container shares its {0} with the host (rshared), so gpuslice's mount there would \
         appear on the host (mount it rslave)"
    )]
    Shared(&'static str),
    /// The runtime would hide the slice again.
    #[error(
        "the container's mask {0} hides its slice, or may by a link (remove it from maskedPaths)"
    )]
    Masked(PathBuf),
    /// A volume was moved, and is not at its place.
    #[error(
        "a volume of the container cannot be put back at its place (start the container again)"
    )]
    Displaced,
    /// The library is not a library.
    #[error("libgpuslice.so is not an ELF library")]
    Library,
}

fn inside(doing: &'static str) -> impl FnOnce(io::Error) -> InjectError {
    move |source| InjectError::Inside { doing, source }
}

/// The container to inject into.
#[derive(Debug)]
pub(crate) struct Injection<'a> {
    /// The container's mount namespace; None when we are in it.
    pub(crate) namespace: Option<File>,
    /// Its root, as seen from the root of that namespace.
    pub(crate) rootfs: &'a Path,
    /// The host's ids of its root user.
    pub(crate) mapped: Option<(Uid, Gid)>,
    /// Its first program, as its configuration names it.
    pub(crate) program: Option<&'a str>,
    /// The device that the host's own /dev is on.
    pub(crate) hosts_dev: u64,
    /// The planned text of the slice file.
    pub(crate) slice: &'a str,
    /// The container's volumes and other mounts.
    pub(crate) mounts: &'a [SpecMount],
    /// The paths that the runtime masks after the hooks.
    pub(crate) masked: &'a [PathBuf],
}

/// Injects the slice. The process stays in the container's mount namespace, even after an error.
///
/// # Errors
/// When the container cannot be given its slice.
pub(crate) fn inject(
    sources: Sources,
    target: &Injection<'_>,
    crash_points: &CrashPoints,
) -> Result<Outcome, InjectError> {
    let needs = Needs::of(&sources.library).ok_or(InjectError::Library)?;
    let root = enter(target)?;
    crash_points.reached("entered");
    let mut attached = Attached(Vec::new());
    match attach(sources, target, &root, &needs, &mut attached, crash_points) {
        Err(_) if !attached.undo() => Err(InjectError::Displaced),
        done => done,
    }
}

/// Enters the container's mount namespace, and opens its root.
fn enter(target: &Injection<'_>) -> Result<ContainerRoot, InjectError> {
    if let Some(namespace) = &target.namespace {
        let entered = setns(namespace, CloneFlags::CLONE_NEWNS);
        entered.map_err(|error| InjectError::Enter(error.into()))?;
    }
    let root = ContainerRoot::open(target.rootfs, target.mapped);
    root.map_err(|source| InjectError::Root {
        path: target.rootfs.to_owned(),
        source,
    })
}

/// Attaches all that the container gets. After an error, the caller undoes what was attached.
fn attach(
    sources: Sources,
    target: &Injection<'_>,
    root: &ContainerRoot,
    needs: &Needs,
    attached: &mut Attached,
    crash_points: &CrashPoints,
) -> Result<Outcome, InjectError> {
    let Sources {
        root: own,
        below,
        page,
        preload,
        folder,
        ..
    } = sources;
    // Also for an image that cannot load the library.
    if let Some(page) = page {
        page::attach(root, page, attached)?;
    }
    if let Some(unsuited) = needs.met_by(root) {
        return Ok(Outcome::Unsuited(unsuited));
    }
    let (place, at) = place(root, target.hosts_dev)?;
    if at == IN_DEV {
        let written = rewrite(
            &folder,
            "slice.json",
            read_only::slice_in_dev(target.slice).as_bytes(),
        );
        written.map_err(inside("write slice.json"))?;
    }
    let there = is_attached(&place, at, own.as_fd(), target)?;
    let own = match there {
        true => place.fd,
        false => attach_own(own, below, place.fd.as_fd(), attached, crash_points)?,
    };
    let list = List {
        mount: preload,
        folder,
        library: format!("{at}/libgpuslice.so"),
        own: own.as_fd(),
        may_be_layered: there,
    };
    let listed = list.put(root, attached, crash_points)?;
    masked::check(root, at, target.masked)?;
    crash_points.reached("done");
    let unreached = || image::unreached(root, target.program);
    Ok(match there && listed {
        true => Outcome::Already,
        false => unreached().map_or(Outcome::Injected, Outcome::Unreached),
    })
}

/// The slice's folder in a writable image.
const IN_ROOT: &str = "/.gpuslice";
/// The slice's folder in a read-only image. The shim looks here, too.
const IN_DEV: &str = "/dev/gpuslice";

/// The folder that the slice is mounted on, and its name in the container.
fn place(root: &ContainerRoot, hosts_dev: u64) -> Result<(Found, &'static str), InjectError> {
    match root.plain_folder(root.fd(), MOUNT) {
        Err(error) if error.raw_os_error() == Some(libc::EROFS) => {
            let place = read_only::folder_in_dev(root, "gpuslice", hosts_dev);
            Ok((place.map_err(inside("make /dev/gpuslice"))?, IN_DEV))
        }
        place => Ok((place.map_err(inside("make /.gpuslice"))?, IN_ROOT)),
    }
}

/// Whether our folder is mounted at its place. Nothing is mounted on a volume there, because another
/// container can remove the volume's folder, and the mount with it. A volume below is not covered.
fn is_attached(
    place: &Found,
    at: &'static str,
    own: BorrowedFd<'_>,
    target: &Injection<'_>,
) -> Result<bool, InjectError> {
    let there = root::same(place.fd.as_fd(), own).map_err(inside("look at /.gpuslice"))?;
    let is_below = |path: &Path| path.starts_with(at) && path != Path::new(at);
    let mut volumes = target.mounts.iter().map(|mount| &mount.destination);
    match place.foreign && !there || volumes.any(|path| is_below(path)) {
        true => Err(InjectError::Taken(at)),
        false => Ok(there),
    }
}

/// Mounts the slice's folder, and its files inside it. Returns the root of that mount.
fn attach_own(
    own: OwnedFd,
    below: Vec<(PathBuf, OwnedFd)>,
    place: BorrowedFd<'_>,
    attached: &mut Attached,
    crash_points: &CrashPoints,
) -> Result<OwnedFd, InjectError> {
    let at = own.try_clone().map_err(inside("mount /.gpuslice"))?;
    sys::attach(own.as_fd(), place).map_err(inside("mount /.gpuslice"))?;
    attached.0.push(Step::Attached(own));
    crash_points.reached("attached");
    for (name, mount) in below {
        let done = sys::attach_at(mount.as_fd(), at.as_fd(), &name);
        done.map_err(inside("mount the files of /.gpuslice"))?;
        attached.0.push(Step::Attached(mount));
    }
    crash_points.reached("submounts");
    Ok(at)
}

/// Rewrites a file in the host's folder, which has no path in the container's namespace.
fn rewrite(folder: &File, name: &str, text: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    File::from(openat(folder, name, flags, Mode::empty())?).write_all(text)
}

/// The loader's list that is put into the container.
struct List<'a> {
    mount: OwnedFd,
    folder: File,
    library: String,
    own: BorrowedFd<'a>,
    /// Whether an earlier hook may have put the list into a layer over /etc.
    may_be_layered: bool,
}

/// The place that the list is mounted on.
enum Point {
    /// A regular file.
    File(Found),
    /// There is no list, and its folder is read-only.
    Nothing,
}

impl List<'_> {
    /// Puts the library on the list. Returns whether it was already listed.
    fn put(
        self,
        root: &ContainerRoot,
        attached: &mut Attached,
        crash_points: &CrashPoints,
    ) -> Result<bool, InjectError> {
        let etc = root.folder("etc").map_err(inside("open /etc"))?;
        let point = match point(root, &etc)? {
            Point::File(point) => point,
            Point::Nothing => {
                volumes::check("/etc", etc.fd.as_fd(), etc.foreign)?;
                self.write(b"", crash_points)?;
                let upper = root::stands(self.own, "etc").map_err(io::Error::from);
                let layered = upper.and_then(|upper| {
                    read_only::layer_over(etc.fd.as_fd(), upper.as_fd(), attached)
                });
                layered.map_err(inside("mount a layer over /etc"))?;
                return Ok(false);
            }
        };
        let listed = self.is_listed(point.fd.as_fd());
        if listed.map_err(inside("look at /etc/ld.so.preload"))? {
            return Ok(true);
        }
        let existing = existing(point.fd.as_fd());
        let existing = existing.map_err(inside("read the image's /etc/ld.so.preload"))?;
        self.write(&existing, crash_points)?;
        let point = match point.foreign {
            true => volumes::set_aside(point, &etc, self.own, attached)?,
            false => point,
        };
        volumes::check("/etc", point.fd.as_fd(), etc.foreign || point.foreign)?;
        let mounted = sys::attach(self.mount.as_fd(), point.fd.as_fd());
        mounted.map_err(inside("mount /etc/ld.so.preload"))?;
        attached.0.push(Step::Attached(self.mount));
        Ok(false)
    }

    /// Whether a list is the one that an earlier hook has put there: the file itself, or the same
    /// file in a layer. The text proves nothing, because a volume can have it, too.
    fn is_listed(&self, found: BorrowedFd<'_>) -> io::Result<bool> {
        let own = self.mount.as_fd();
        Ok(root::same(found, own)? || self.may_be_layered && read_only::is_in_layer(found, own)?)
    }

    fn write(&self, existing: &[u8], crash_points: &CrashPoints) -> Result<(), InjectError> {
        let merged = preload::merge(existing, &self.library);
        // The planned list is right for most images.
        if merged != plan::preload_list().as_bytes() {
            let written = rewrite(&self.folder, PRELOAD, &merged);
            written.map_err(inside("write /etc/ld.so.preload"))?;
        }
        crash_points.reached("preload-written");
        Ok(())
    }
}

/// The contents of the image's own list, up to the length that the file reports, as the loader
/// reads it.
fn existing(point: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    match fstat(point)?.st_size {
        0 => Ok(Vec::new()),
        _ => read::whole(root::reopen(point)?, preload::CAP),
    }
}

/// The mount point of the list. It is created where it is missing, but never in a volume.
fn point(root: &ContainerRoot, etc: &Found) -> Result<Point, InjectError> {
    let found = match root::found(etc.fd.as_fd(), LIST) {
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
                root::found(etc.fd.as_fd(), LIST)
            }
        },
        found => found,
    };
    let found = match found {
        Err(Errno::ELOOP) => return Err(InjectError::NotAFile),
        found => found.map_err(|error| inside("open /etc/ld.so.preload")(error.into()))?,
    };
    let regular = root::is_regular(found.fd.as_fd());
    match regular.map_err(inside("look at /etc/ld.so.preload"))? {
        true => Ok(Point::File(found)),
        false => Err(InjectError::NotAFile),
    }
}
