//! Creates the host's part of a slice and a container: folders, the ledger's mount, a promise.
//! Touches: /run/gpuslice. Law: creating can be repeated, whichever parts already exist; `removal`
//! removes them.

use crate::apply::seal;
use crate::base::crash_points::CrashPoints;
use crate::base::outcome::Messages;
use crate::plan::{ContainerPlan, ledger_id};
use gpuslice_config::ledger::{self, Ledger, LedgerError, Locks, Open};
use gpuslice_config::promises;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::base::paths::{HostPaths, PRELOAD};
use gpuslice_host::base::sys;
use gpuslice_host::slices::records::unified;
use gpuslice_host::slices::removal::{HostError, failed};
use gpuslice_host::slices::run_folder;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::stat::{Mode, SFlag, mknod};
use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Creates everything that the plan needs. Called under the lock. Returns the messages to report.
///
/// # Errors
/// When a file or folder cannot be made.
pub(crate) fn prepare(
    plan: &ContainerPlan,
    promised: Bytes,
    paths: &HostPaths,
    crash_points: &CrashPoints,
) -> Result<Messages, HostError> {
    let unsealed = make_ledger(paths, &plan.slice, plan.devices.len(), crash_points)?;
    let mut lines = Messages::new();
    if let Some(why) = unsealed {
        lines.push(format!(
            "{}: this kernel cannot seal the ledger ({why}): a process of the container that truncates it \
             ends the container's other processes",
            plan.name
        ));
    }
    crash_points.reached("ledger");
    if promised > Bytes::ZERO {
        make_promise(paths, promised, &plan.slice)?;
        if run_folder::shares_promises(paths) == Some(false) {
            lines.push(format!(
                "{}: runs on the host do not count this promise, nor this hook theirs, because the engine \
                 has a mount namespace of its own (start it without PrivateTmp= and the like)",
                plan.name
            ));
        }
    }
    crash_points.reached("promise");
    let root = paths.container_root(&plan.container);
    make_root(plan, &root).map_err(failed("fill", &root))?;
    Ok(lines)
}

/// Whether an earlier hook has created everything. The preload list is created last.
#[must_use]
pub(crate) fn is_prepared(paths: &HostPaths, container: &str) -> bool {
    preload(paths, container).exists()
}

/// Creates a folder. Returns whether it was missing.
fn folder(path: &Path) -> io::Result<bool> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

/// Creates an empty file to mount something on.
fn point(path: &Path) -> io::Result<()> {
    let mode = Mode::from_bits_truncate(0o444);
    Ok(mknod(path, SFlag::S_IFREG, mode, 0)?)
}

/// Creates the folder that becomes `/.gpuslice`: files, and mount points.
fn make_root(plan: &ContainerPlan, root: &Path) -> io::Result<()> {
    let own = root.parent().unwrap_or(root);
    if !folder(own)? {
        // Left by an earlier container with this id.
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
pub(crate) fn preload(paths: &HostPaths, container: &str) -> PathBuf {
    paths.container_root(container).join(PRELOAD)
}

/// Creates the ledger, unless an earlier hook has. If the ledger could not be sealed, returns the
/// reason.
fn make_ledger(
    paths: &HostPaths,
    slice: &str,
    devices: usize,
    crash_points: &CrashPoints,
) -> Result<Option<io::Error>, HostError> {
    let (place, path) = (&paths.ledger(slice), paths.ledger_file(slice));
    let is_new = folder(place).map_err(failed("make", place))?;
    crash_points.reached("ledger-folder");
    if !is_new && is_made(&path) {
        // A pod's other containers use it, damaged or not. A new ledger in its place would grant a
        // second budget.
        return identify(&path, slice).map(|()| None);
    }
    if !is_new {
        sys::unmount(place).map_err(failed("unmount", place))?;
    }
    let unsealed = seal::make(place, devices).err();
    if unsealed.is_some() {
        sys::unmount(place).map_err(failed("unmount", place))?;
        make_plain(place, &path, devices).map_err(failed("make", &path))?;
    }
    identify(&path, slice)?;
    crash_points.reached("ledger-mounted");
    Ok(unsealed)
}

/// Writes the slice's ledger id into the ledger; its slice file has the same id.
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
    // 0666, because every user of the container writes its counts here. A user without access to
    // the mount cannot reach the file.
    let new = place.join("new");
    if let Some(file) = reserve(&new, 0o666, length)? {
        file.write_all_at(&ledger::beginning(devices, Locks::Ledger), 0)?;
    }
    fs::rename(new, path)
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// Allocates all pages of a file from its file system at once. On a full file system, a program
/// would be killed when it touched an unallocated page. Returns `None` if the file already existed.
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

fn make_promise(paths: &HostPaths, promised: Bytes, slice: &str) -> Result<(), HostError> {
    run_folder::make_promises(paths)?;
    let place = paths.promises();
    let name = promises::file_name(promised, slice).unwrap_or_default();
    let path = place.join(name);
    let mut made = reserve(&path, 0o666, promises::SIZE);
    // A tenant may fill its own file again as soon as it is cut.
    for _ in 0..CUTS {
        match made {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                cut(&place);
                made = reserve(&path, 0o666, promises::SIZE);
            }
            _ => break,
        }
    }
    made.map(drop).map_err(failed("make", &path))
}

/// How often promises are cut for a new one.
const CUTS: u32 = 16;

/// Takes from promises all memory beyond the length of a promise. A tenant may have written more into
/// its own file, or have allocated more without making it longer.
fn cut(place: &Path) {
    let length = u64::try_from(promises::SIZE).unwrap_or(u64::MAX);
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let Ok(facts) = entry.metadata() else {
            continue;
        };
        let held = facts.blocks().saturating_mul(512).max(facts.len());
        if facts.is_file() && held > length {
            // A tenant can have a lease on its file, which must not keep the hook waiting.
            let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
            let file = sys::open(&entry.path(), flags);
            // At the same length, too, the kernel frees what lies beyond it.
            let _ = file.and_then(|file| file.set_len(facts.len().min(length)));
        }
    }
}
