//! Creates and removes the host's part of a slice and a container: folders, the ledger's mount, a
//! promise.
//! Touches: /run/gpuslice. Law: what is made here can be made again, and removed again, whatever
//! of it is there already.

use crate::create::Lines;
use crate::place::Places;
use crate::plan::{PRELOAD, Plan, ledger_id};
use crate::registry::{Record, unified};
use crate::steps::Steps;
use crate::{run_folder, seal, sys};
use gpuslice_config::ledger::{self, Ledger, LedgerError, Locks, Open};
use gpuslice_config::promises;
use gpuslice_config::units::Bytes;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::stat::{Mode, SFlag, mknod};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Something on the host could not be made or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}")]
pub struct HostError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

pub(crate) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HostError {
    let path = path.to_owned();
    move |source| HostError {
        doing,
        path,
        source,
    }
}

/// Creates everything that the plan needs. Called under the lock. Returns the messages to report.
///
/// # Errors
/// What cannot be made.
pub fn prepare(
    plan: &Plan,
    promised: Bytes,
    places: &Places,
    steps: &Steps,
) -> Result<Lines, HostError> {
    let unsealed = make_ledger(places, &plan.slice, plan.devices.len(), steps)?;
    let lines = unsealed.map(|why| {
        format!(
            "{}: this kernel cannot seal the ledger ({why}): a process of the container that truncates it \
             ends the container's other processes",
            plan.name
        )
    });
    steps.reached("ledger");
    if promised > Bytes::ZERO {
        make_promise(places, promised, &plan.slice)?;
    }
    steps.reached("promise");
    let root = places.container_root(&plan.container);
    make_root(plan, &root).map_err(failed("fill", &root))?;
    Ok(lines.into_iter().collect())
}

/// Whether an earlier hook has made all of it. The list is the last that is made.
#[must_use]
pub fn is_prepared(places: &Places, container: &str) -> bool {
    preload(places, container).exists()
}

/// Makes a folder. Whether there was none is returned.
fn folder(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// An empty file for something to be mounted on.
fn point(path: &Path) -> io::Result<()> {
    let mode = Mode::from_bits_truncate(0o444);
    Ok(mknod(path, SFlag::S_IFREG, mode, 0)?)
}

/// The folder that becomes `/.gpuslice`: files, and points for what is mounted into it.
fn make_root(plan: &Plan, root: &Path) -> io::Result<()> {
    let own = root.parent().unwrap_or(root);
    if !folder(own)? {
        // An earlier life of this container.
        fs::remove_dir_all(own)?;
        folder(own)?;
    }
    folder(root)?;
    folder(&root.join("etc"))?;
    folder(&root.join("ledger"))?;
    point(&root.join("ledger/ledger"))?;
    point(&root.join("ledger/locks"))?;
    point(&root.join("libgpuslice.so"))?;
    point(&root.join("meminfo"))?;
    if unified(&plan.devices) > Bytes::ZERO {
        folder(&root.join("promises"))?;
        point(&root.join("promise"))?;
    }
    plan.files.iter().try_for_each(|planned| {
        let flags = OFlag::O_WRONLY | OFlag::O_EXCL;
        sys::make(&planned.path, flags, 0o444)?.write_all(planned.text.as_bytes())
    })
}

/// Where the preload list of a container is written until it is mounted.
#[must_use]
pub fn preload(places: &Places, container: &str) -> PathBuf {
    places.container_root(container).join(PRELOAD)
}

/// Creates the ledger, unless an earlier hook has. If the ledger could not be sealed, returns the
/// reason.
fn make_ledger(
    places: &Places,
    slice: &str,
    devices: usize,
    steps: &Steps,
) -> Result<Option<io::Error>, HostError> {
    let (place, path) = (&places.ledger(slice), places.ledger_file(slice));
    let is_new = folder(place).map_err(failed("make", place))?;
    steps.reached("ledger-folder");
    if !is_new && is_made(&path) {
        // A pod's other containers use it, damaged or not: another in its place would be one more
        // budget.
        return identify(&path, slice).map(|()| None);
    }
    if !is_new {
        seal::unmount(place).map_err(failed("unmount", place))?;
    }
    let unsealed = seal::make(place, devices).err();
    if unsealed.is_some() {
        seal::unmount(place).map_err(failed("unmount", place))?;
        make_plain(place, &path, devices).map_err(failed("make", &path))?;
    }
    identify(&path, slice)?;
    steps.reached("ledger-mounted");
    Ok(unsealed)
}

/// Has the ledger say that it is this slice's, as its slice file does.
fn identify(path: &Path, slice: &str) -> Result<(), HostError> {
    let unusable = |error| failed("use", path)(io::Error::other(error));
    let ledger = Ledger::open(&c_path(path), Open::Existing).map_err(unusable)?;
    match ledger.identify(ledger_id(slice)) {
        true => Ok(()),
        false => Err(unusable(LedgerError::Another)),
    }
}

/// Whether a ledger exists, in any state. The mount point of a ledger does not count.
fn is_made(path: &Path) -> bool {
    let facts = fs::metadata(path);
    facts.is_ok_and(|facts| facts.len() > 0 || facts.mode() & 0o777 != seal::POINT.bits())
}

/// Creates an unsealed ledger, for kernels that cannot seal one. The file gets its name once it is
/// complete.
fn make_plain(place: &Path, path: &Path, devices: usize) -> io::Result<()> {
    let length = ledger::size_for(devices);
    let size = CString::new(length.to_string())?;
    seal::folder_of(place, &size)?;
    seal::locks_file(&place.join("locks"))?;
    // 0666: every user of the container counts; who may not enter the mount does not reach it.
    let new = place.join("new");
    if let Some(file) = reserve(&new, 0o666, length)? {
        file.write_all_at(&ledger::beginning(devices, Locks::Ledger), 0)?;
    }
    fs::rename(new, path)
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn open_folder(path: &Path) -> io::Result<File> {
    sys::open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW)
}

/// Takes a file's pages from its file system at once: on one that is full, a program that comes
/// to a page that is not there yet would be killed. None: the file was there.
fn reserve(path: &Path, mode: u32, length: usize) -> io::Result<Option<File>> {
    let file = sys::make(path, OFlag::O_RDWR | OFlag::O_NOFOLLOW, mode)?;
    if file.metadata()?.len() > 0 {
        return Ok(None);
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    fallocate(&file, FallocateFlags::empty(), 0, length)?;
    Ok(Some(file))
}

fn make_promise(places: &Places, promised: Bytes, slice: &str) -> Result<(), HostError> {
    run_folder::make_promises(places)?;
    let place = places.promises();
    let name = promises::file_name(promised, slice).unwrap_or_default();
    let path = place.join(name);
    let made = match reserve(&path, 0o666, promises::SIZE) {
        // A tenant may write to its own file, and so make it longer than a promise is.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => {
            cut(&place).and_then(|()| reserve(&path, 0o666, promises::SIZE))
        }
        made => made,
    };
    made.map(drop).map_err(failed("make", &path))
}

/// Cuts promises to what promises are.
fn cut(place: &Path) -> io::Result<()> {
    let length = u64::try_from(promises::SIZE).unwrap_or(u64::MAX);
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        if facts.is_file() && facts.len() > length {
            let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW;
            sys::open(&entry.path(), flags)?.set_len(length)?;
        }
    }
    Ok(())
}

/// Removes what a container has. Nothing of it need be there.
///
/// # Errors
/// What cannot be removed.
pub fn remove_container(places: &Places, id: &str) -> Result<(), HostError> {
    let path = places.containers().join(id);
    if remove_root(&path).is_none() {
        gone(fs::remove_dir_all(&path)).map_err(failed("remove", &path))?;
    }
    Ok(())
}

/// Removes what [`make_root`] makes, by name: nobody need read what is there. None: something else
/// is there, or something is not.
fn remove_root(own: &Path) -> Option<()> {
    let root = open_folder(&own.join("root")).ok()?;
    let remove = |name: &str, flags| unlinkat(&root, name, flags).ok();
    for file in [
        "slice.json",
        PRELOAD,
        "ledger/ledger",
        "ledger/locks",
        "libgpuslice.so",
        "meminfo",
    ] {
        remove(file, UnlinkatFlags::NoRemoveDir)?;
    }
    if remove("promise", UnlinkatFlags::NoRemoveDir).is_some() {
        remove("promises", UnlinkatFlags::RemoveDir)?;
    }
    remove("etc", UnlinkatFlags::RemoveDir)?;
    remove("ledger", UnlinkatFlags::RemoveDir)?;
    fs::remove_dir(own.join("root")).ok()?;
    fs::remove_dir(own).ok()
}

/// Removes what a slice has. Nothing of it need be there.
///
/// # Errors
/// What cannot be removed.
pub fn remove_slice(places: &Places, record: &Record) -> Result<(), HostError> {
    remove_ledger(&places.ledger(&record.slice))?;
    if let Some(name) = promises::file_name(record.unified(), &record.slice) {
        remove_file(&places.promises().join(name))?;
    }
    Ok(())
}

/// Removes what was promised to a slice, however much that was.
///
/// # Errors
/// What cannot be read or removed.
pub fn remove_promises(places: &Places, slice: &str) -> Result<(), HostError> {
    let folder = places.promises();
    let held = match folder.exists() {
        true => promises::read_folder(&folder).map_err(failed("read", &folder))?,
        false => Vec::new(),
    };
    for promise in held.iter().filter(|promise| promise.slice == slice) {
        if let Some(name) = promises::file_name(promise.budget, slice) {
            remove_file(&folder.join(name))?;
        }
    }
    Ok(())
}

/// Removes a file that need not be there.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_file(path: &Path) -> Result<(), HostError> {
    gone(fs::remove_file(path)).map_err(failed("remove", path))
}

/// Unmounts and removes a ledger's folder.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_ledger(place: &Path) -> Result<(), HostError> {
    // More than one may be there, of hooks that were killed.
    seal::unmount(place).map_err(failed("unmount", place))?;
    gone(fs::remove_dir(place)).map_err(failed("remove", place))
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
