//! Creates the file of a run's promise, identifies its maker by the file's name, and withdraws it.
//! Touches: the registry, the links in the private folders of runs, the promises.

use crate::runs::promise::{CONTAINERS, FOLDER};
use crate::runs::registry::{self, Remains};
use crate::runs::{former, run_dir};
use gpuslice_config::promises::{self, SIZE};
use gpuslice_host::machine::process::ProcessId;
use gpuslice_host::slices::tenants;
use nix::unistd::geteuid;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The maker of a run's promise: the process that runs the command, and ran gpuslice before `exec`.
pub(super) struct Maker<'a> {
    pub(super) process: ProcessId,
    pub(super) name: &'a str,
    id: &'a str,
}

/// Returns the maker that a promise's id names. A container's promise has no maker: the OCI hook
/// manages it.
pub(super) fn maker(id: &str) -> Option<Maker<'_>> {
    let (process, name) = tenants::promise_owner(id)?;
    Some(Maker { process, name, id })
}

/// Returns the id in the path of a promise. A resize changes the budget in the path, and keeps the id.
pub(crate) fn id_of(file: &Path) -> Option<&str> {
    let name = file.file_name()?.to_str()?;
    name.split_once('.').map(|(_, id)| id)
}

/// Checks whether two paths are of the same promise, which may have been resized in between.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    one.parent() == other.parent() && id_of(one).is_some() && id_of(one) == id_of(other)
}

/// Creates the file of a promise.
pub(super) fn write(path: &Path) -> io::Result<()> {
    let mode = mode_in(path.parent().unwrap_or(path))?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    // The mode must not depend on the umask. Slices of other users that cannot read the file would
    // count the whole promise as unused.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.set_len(SIZE as u64)
}

/// The mode of promises in a folder. A program that root starts may change to another user (gosu,
/// setpriv) and must still write down what it has used, as in a container. Everybody could also make
/// such a file longer, so the folder in /run must be a file system of its own, which has a bound.
fn mode_in(folder: &Path) -> io::Result<u32> {
    let device = |folder: &Path| fs::metadata(folder).map(|facts| facts.dev());
    let above = folder.parent().unwrap_or(folder);
    let is_bounded = folder != Path::new(CONTAINERS) || device(folder)? != device(above)?;
    match geteuid().is_root() && is_bounded {
        true => Ok(0o666),
        false => Ok(0o644),
    }
}

/// Removes the promise with this id, whatever its budget is by now, unless a later run holds it.
fn remove(folder: &Path, id: &str) {
    let held = promises::read_folder(folder).unwrap_or_default();
    let own = held.into_iter().filter(|held| held.slice == id);
    let files = own.filter_map(|held| Some(folder.join(promises::file_name(held.budget, id)?)));
    for file in files.filter(|file| !former::is_held(file)) {
        let _ = fs::remove_file(file);
    }
}

impl Maker<'_> {
    /// Checks whether processes that the command left behind still use its slice.
    pub(super) fn has_left_something(&self, folder: &Path, remains: Remains) -> bool {
        registry::running_and(remains).iter().any(|entry| {
            run_dir::private_folder(&entry.file)
                .and_then(|private| fs::read_link(private.join(run_dir::PROMISE)).ok())
                .is_some_and(|file| file.parent() == Some(folder) && id_of(&file) == Some(self.id))
        })
    }

    /// The run's name and pid, for messages.
    pub(super) fn shown(&self) -> String {
        format!("{} (pid {})", self.name, self.process.pid)
    }
}

/// Withdraws the promise of a run that has ended, unless a later run of the same process owns the
/// file now. Leaves every other file.
pub(crate) fn withdraw(file: &Path) {
    let id = id_of(file).filter(|id| maker(id).is_some());
    let folder = file.parent().filter(|folder| folder.ends_with(FOLDER));
    if let (Some(id), Some(folder)) = (id, folder)
        && !former::is_used(run_dir::PROMISE, |used| is_same(used, file))
    {
        remove(folder, id);
    }
}
