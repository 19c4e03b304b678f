//! The folders of a user's registry.
//! Touches: these folders.

use nix::unistd::geteuid;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{env, io};

/// The folders that are searched for links. New links go into the first one that can be created.
pub(super) fn folders() -> Vec<PathBuf> {
    let uid = geteuid();
    let given = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let given = given.filter(|path| path.is_absolute() && is_ours(path));
    folders_of(given.as_deref(), uid.as_raw())
}

/// Returns the folders of all registries that this user can read.
pub(crate) fn all_folders() -> Vec<PathBuf> {
    let mut all = folders();
    if all.len() > 1 && geteuid().is_root() {
        all.extend(folders_of_others().into_iter().map(|(_, folder)| folder));
    }
    all
}

/// Root's folder, which the OCI hook uses too.
const ROOTS: &str = "/run/gpuslice";

/// The most names that are tried for a user's folder in /tmp.
const NAMES: u32 = 64;

/// Returns a user's folder in /tmp, for sessions without a runtime folder. Any user may have
/// created some of these names, so every session takes the first name that does not belong to
/// another user.
fn temporary(place: &Path, uid: u32) -> PathBuf {
    let first = place.join(format!("gpuslice-{uid}"));
    let more = (1..NAMES).map(|count| place.join(format!("gpuslice-{uid}-{count}")));
    let usable = |folder: &PathBuf| match fs::symlink_metadata(folder) {
        Ok(facts) => facts.is_dir() && facts.uid() == uid,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    let mut names = std::iter::once(first.clone()).chain(more);
    names.find(usable).unwrap_or(first)
}

/// Returns the folders of one user's registry. If the runtime folder is at an unusual place, the
/// registry is in that folder only. Otherwise all sessions and services of the user see each
/// other's slices, even those without a runtime folder.
fn folders_of(given: Option<&Path>, uid: u32) -> Vec<PathBuf> {
    let usual = PathBuf::from(format!("/run/user/{uid}"));
    let without = match uid {
        0 => PathBuf::from(ROOTS),
        _ => temporary(Path::new("/tmp"), uid),
    };
    match given {
        Some(chosen) if chosen != usual => vec![chosen.join("gpuslice")],
        _ => vec![usual.join("gpuslice"), without],
    }
}

/// Checks whether the user's runtime folder is at an unusual place, so that no other folder is
/// searched.
pub(crate) fn stands_alone() -> bool {
    folders().len() == 1
}

/// Returns the registries of other users, with their user ids. Only root can read them.
pub(crate) fn folders_of_others() -> Vec<(u32, PathBuf)> {
    let listed = |folder| fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: &str| name.parse::<u32>().ok();
    let of_sessions = listed("/run/user").filter_map(|entry| {
        let user = number(entry.file_name().to_str()?)?;
        Some((user, entry.path().join("gpuslice")))
    });
    let without = listed("/tmp").filter_map(|entry| {
        // If the first name was taken, a counter follows the user id.
        let name = entry.file_name();
        let numbers = name.to_str()?.strip_prefix("gpuslice-")?;
        let user = number(numbers.split('-').next()?)?;
        Some((user, entry.path()))
    });
    let is_the_users = |(user, folder): &(u32, PathBuf)| {
        let facts = fs::symlink_metadata(folder);
        facts.is_ok_and(|facts| facts.is_dir() && facts.uid() == *user)
    };
    let own = geteuid().as_raw();
    let all = of_sessions.chain(without);
    all.filter(|found| found.0 != own && is_the_users(found))
        .collect()
}

/// Returns the one folder that every session and service of this user shares, whether a session has a
/// runtime folder or not: that folder comes with the first session and goes with the last.
#[must_use]
pub(crate) fn shared_folder() -> PathBuf {
    shared_of(&folders())
}

fn shared_of(folders: &[PathBuf]) -> PathBuf {
    folders.last().cloned().unwrap_or_else(|| ROOTS.into())
}

/// Returns the folder in which a run of this user is registered, unless it cannot be created.
#[must_use]
pub(crate) fn folder() -> PathBuf {
    let folders = folders();
    let usable = |folder: &&PathBuf| is_ours(folder) || folder.parent().is_some_and(Path::is_dir);
    let first = folders.iter().find(usable).or(folders.first());
    first.cloned().unwrap_or_else(|| ROOTS.into())
}

/// Creates a folder that only this user can enter. Refuses a folder in /tmp that another user has
/// created.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // The OCI hook's folder: users of containers must be able to pass through it.
        Ok(()) if folder == Path::new(ROOTS) => {
            fs::set_permissions(folder, Permissions::from_mode(0o711))
        }
        _ if is_ours(folder) => Ok(()),
        _ => Err(io::Error::other(format!(
            "{} is another user's",
            folder.display()
        ))),
    }
}

/// Checks that this is a folder of this user, and not a symbolic link.
pub(super) fn is_ours(folder: &Path) -> bool {
    let facts = fs::symlink_metadata(folder);
    facts.is_ok_and(|facts| facts.is_dir() && facts.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn sessions_with_and_without_a_runtime_folder_see_each_other() {
        let names = |given: Option<&str>, uid| folders_of(given.map(Path::new), uid);
        let root = ["/run/user/0/gpuslice", "/run/gpuslice"].map(PathBuf::from);
        let user = ["/run/user/7/gpuslice", "/tmp/gpuslice-7"].map(PathBuf::from);
        assert_eq!(names(None, 0), root);
        assert_eq!(names(Some("/run/user/0"), 0), root);
        assert_eq!(names(None, 7), user);
        assert_eq!(names(Some("/run/user/7"), 7), user);
        assert_eq!(
            names(Some("/chosen"), 7),
            [PathBuf::from("/chosen/gpuslice")]
        );
        // The promises and the records of admission are where all of them look.
        assert_eq!(shared_of(&root), Path::new("/run/gpuslice"));
        assert_eq!(shared_of(&user), Path::new("/tmp/gpuslice-7"));
    }

    #[test]
    fn a_folder_that_another_user_has_made_in_tmp_does_not_stop_a_user() {
        let place = tempfile::tempdir().unwrap();
        let uid = geteuid().as_raw();
        let name = |end: &str| place.path().join(format!("gpuslice-{uid}{end}"));
        assert_eq!(temporary(place.path(), uid), name(""));
        // Neither a file nor a link counts as this user's folder.
        fs::write(name(""), "").unwrap();
        symlink(place.path(), name("-1")).unwrap();
        assert_eq!(temporary(place.path(), uid), name("-2"));
        make(&name("-2")).unwrap();
        assert_eq!(temporary(place.path(), uid), name("-2"));
    }
}
