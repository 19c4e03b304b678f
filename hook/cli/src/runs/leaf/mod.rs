//! The cgroup of a run, for which the driver enforces the limit.
//! Touches: the mounted cgroups of version 2; the private folder of the run, which links the cgroup.
//! Law: a link exists before the cgroup, so that the watcher of a killed run removes it. Only
//! cgroups that are named like a run's are removed.

use crate::runs::process::INTERVAL;
use crate::runs::run_dir;
use gpuslice_host::machine::cgroups;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The prefix of the name of a run's cgroup. The letters of the private folder's name follow.
const PREFIX: &str = "gpuslice-run-";

/// The kernel's controller of device memory.
const DMEM: &str = "dmem";

/// How often the kernel is asked to remove a cgroup whose last process has just ended.
const TRIES: u32 = 10;

/// Reasons why a run has no cgroup of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoLeaf {
    /// Only cgroups of version 1 are mounted, or none.
    #[error("cgroup v2 is not mounted here")]
    NoVersion2,
    /// The cgroup cannot be created, or entered.
    #[error("no cgroup can be made in {} ({error}): run as root, or in a delegated cgroup", folder.display())]
    Cannot {
        /// The folder of the cgroup in which it would be.
        folder: PathBuf,
        error: io::Error,
    },
    /// The kernel counts device memory only in cgroups in whose parent the controller is on.
    #[error(
        "the kernel cannot count device memory below {}, which has other processes: start the run \
         with systemd-run --scope -p Delegate=yes", folder.display()
    )]
    Crowded {
        /// The folder of that cgroup.
        folder: PathBuf,
    },
}

/// A run's own cgroup. Dropping it moves this process back, and removes the cgroup. `exec` drops
/// nothing: then the run's watcher removes it.
#[derive(Debug)]
pub(crate) struct Leaf {
    folder: PathBuf,
    /// Its path in `/proc/PID/cgroup`.
    path: String,
    /// The cgroup in which this process was before.
    before: PathBuf,
}

impl Leaf {
    /// Creates the cgroup beside this process's own processes, and links it in the run's private
    /// folder. `needs_dmem`: the driver enforces the limit by the kernel's controller.
    ///
    /// # Errors
    /// [`NoLeaf`] says why there is none. Then nothing is left.
    pub(crate) fn create(private: &Path, needs_dmem: bool) -> Result<Leaf, NoLeaf> {
        let mount = cgroups::mount().ok_or(NoLeaf::NoVersion2)?;
        let own = cgroups::path_of(None).map_err(|error| NoLeaf::Cannot {
            folder: mount.to_owned(),
            error,
        })?;
        let before = below(mount, &own);
        let name = private.file_name().and_then(OsStr::to_str);
        let name = name.and_then(|name| name.strip_prefix(run_dir::PREFIX));
        let name = format!("{PREFIX}{}", name.unwrap_or("x"));
        let mut fault = None;
        for above in parents(&own) {
            match make(private, mount, &above, name.as_ref(), needs_dmem) {
                Ok((folder, path)) => {
                    return Ok(Leaf {
                        folder,
                        path,
                        before,
                    });
                }
                Err(error) => fault = fault.or(Some(error)),
            }
        }
        Err(fault.unwrap_or(NoLeaf::NoVersion2))
    }

    /// The folder of the cgroup.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of the cgroup in `/proc/PID/cgroup`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Moves this process into the cgroup, and so all processes that it starts from now on.
    ///
    /// # Errors
    /// When the kernel does not permit that.
    pub(crate) fn enter(&self) -> Result<(), NoLeaf> {
        enter(&self.folder).map_err(|error| NoLeaf::Cannot {
            folder: self.folder.clone(),
            error,
        })
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        if cgroups::path_of(None).is_ok_and(|own| own == self.path) {
            let _ = enter(&self.before);
        }
        remove(&self.folder);
    }
}

/// Leaves the cgroup of an enclosing run, for a program without a slice.
pub(crate) fn leave() {
    let Some((mount, own)) = cgroups::mount().zip(cgroups::path_of(None).ok()) else {
        return;
    };
    let outside = outside_of_runs(&own);
    if outside != own {
        // A process that may not leave stays limited.
        let _ = enter(&below(mount, &outside));
    }
}

/// Returns the cgroup of a run, as its private folder links it.
pub(crate) fn of(private: &Path) -> Option<PathBuf> {
    of_a_run(fs::read_link(private.join(run_dir::CGROUP)).ok()?)
}

/// Returns the folder of a cgroup, if it is named like a run's.
pub(crate) fn of_a_run(folder: PathBuf) -> Option<PathBuf> {
    let is_ours = cgroups::mount().is_some_and(|mount| folder.starts_with(mount))
        && is_of_a_run(folder.file_name()?);
    is_ours.then_some(folder)
}

/// Whether the path of a cgroup is that of a run's, or below it.
pub(crate) fn is_below_a_run(path: &str) -> bool {
    Path::new(path).iter().any(is_of_a_run)
}

/// Waits until no process is in the cgroup of a run, or below it.
pub(crate) fn wait_until_empty(folder: &Path) {
    while is_populated(folder) {
        std::thread::sleep(INTERVAL);
    }
}

/// Removes the cgroup of a run, if no process is in it.
pub(crate) fn remove(folder: &Path) {
    for _ in 0..TRIES {
        match remove_all(folder) {
            // The last process is just ending.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                if is_populated(folder) {
                    return;
                }
                std::thread::sleep(INTERVAL);
            }
            _ => return,
        }
    }
}

/// Removes a cgroup and those below it. A cgroup's files are removed with it.
fn remove_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_all(&entry.path())?;
        }
    }
    fs::remove_dir(folder)
}

fn is_populated(folder: &Path) -> bool {
    let events = fs::read_to_string(folder.join("cgroup.events"));
    events.is_ok_and(|text| text.lines().any(|line| line == "populated 1"))
}

fn is_of_a_run(name: &OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    random.is_some_and(|random| random.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// Returns the path without the cgroups of enclosing runs at its end. A slice of its own is not
/// held to the limit of the slice that was left.
fn outside_of_runs(own: &str) -> String {
    let mut path = Path::new(own);
    while path.file_name().is_some_and(is_of_a_run) {
        path = path.parent().unwrap_or(Path::new("/"));
    }
    path.to_string_lossy().into_owned()
}

/// Returns the cgroups in which a run's own may be, the preferred one first: this process's, and the
/// one above a session's. The processes of a session keep the kernel from counting below it.
fn parents(own: &str) -> Vec<String> {
    let own = outside_of_runs(own);
    let above = Path::new(&own)
        .extension()
        .filter(|extension| *extension == "scope")
        .and_then(|_| Path::new(&own).parent());
    let above = above.map(|above| above.to_string_lossy().into_owned());
    std::iter::once(own.clone()).chain(above).collect()
}

fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

fn make(
    private: &Path,
    mount: &Path,
    above: &str,
    name: &OsStr,
    needs_dmem: bool,
) -> Result<(PathBuf, String), NoLeaf> {
    let parent = below(mount, above);
    let cannot = |error| NoLeaf::Cannot {
        folder: parent.clone(),
        error,
    };
    if needs_dmem && !counts_below(mount, above, DMEM) {
        return Err(NoLeaf::Crowded { folder: parent });
    }
    let folder = parent.join(name);
    let link = private.join(run_dir::CGROUP);
    let _ = fs::remove_file(&link);
    symlink(&folder, &link).map_err(cannot)?;
    fs::create_dir(&folder).map_err(|error| {
        let _ = fs::remove_file(&link);
        cannot(error)
    })?;
    let path = Path::new(above).join(name).to_string_lossy().into_owned();
    Ok((folder, path))
}

/// Turns a controller on for the cgroups below, from the root down. Returns whether it is on.
fn counts_below(mount: &Path, above: &str, controller: &str) -> bool {
    let mut path = mount.to_owned();
    let mut folders = vec![path.clone()];
    for name in Path::new(above.trim_start_matches('/')) {
        path.push(name);
        folders.push(path.clone());
    }
    folders.iter().all(|folder| {
        let is_on = || {
            let on = fs::read_to_string(folder.join("cgroup.subtree_control"));
            on.is_ok_and(|on| on.split_whitespace().any(|name| name == controller))
        };
        is_on() || {
            let _ = fs::write(
                folder.join("cgroup.subtree_control"),
                format!("+{controller}"),
            );
            is_on()
        }
    })
}

/// Moves this process into a cgroup.
fn enter(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_not_limited_by_the_run_that_it_has_left() {
        assert_eq!(outside_of_runs("/a/gpuslice-run-x/gpuslice-run-y"), "/a");
        assert_eq!(outside_of_runs("/gpuslice-run-x"), "/");
        for other in ["/a/gpuslice-run-1.service", "/a/gpuslice-devices.service"] {
            assert_eq!(outside_of_runs(other), other);
        }
        assert_eq!(outside_of_runs("/"), "/");
    }

    #[test]
    fn the_cgroup_of_a_session_has_its_users_cgroup_as_the_second_choice() {
        let session = "/user.slice/user-0.slice/session-5.scope";
        assert_eq!(parents(session), [session, "/user.slice/user-0.slice"]);
        assert_eq!(
            parents("/system.slice/a.service"),
            ["/system.slice/a.service"]
        );
        assert_eq!(parents("/"), ["/"]);
    }

    /// Every controller of version 2 behaves as dmem does, which this kernel may not have.
    #[test]
    fn the_kernel_counts_only_below_cgroups_without_processes() {
        let mount = cgroups::mount();
        let controllers = mount.map(|mount| fs::read_to_string(mount.join("cgroup.controllers")));
        let controllers = controllers.and_then(Result::ok).unwrap_or_default();
        let threaded = ["cpu", "cpuset", "perf_event", "pids"];
        let mut names = controllers.split_whitespace();
        let controller = names.find(|name| !threaded.contains(name));
        let name = format!("gpuslice-counts-{}", std::process::id());
        let made = mount.map(|mount| mount.join(&name));
        let made = made.filter(|folder| fs::create_dir(folder).is_ok());
        let (Some(mount), Some(controller), Some(folder)) = (mount, controller, made) else {
            eprintln!("not run: no cgroup with a controller can be made here");
            return;
        };
        let above = format!("/{name}");
        let mut sleeper = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        fs::write(folder.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
        assert!(!counts_below(mount, &above, controller));
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(counts_below(mount, &above, controller));
        assert!(counts_below(mount, &above, controller), "it stays on");
        remove(&folder);
        assert!(!folder.exists());
    }

    #[test]
    fn only_a_cgroup_of_a_run_is_taken_for_one() {
        let private = tempfile::tempdir().unwrap();
        let link = private.path().join(run_dir::CGROUP);
        for elsewhere in [
            "/tmp/gpuslice-run-x",
            "/sys/fs/cgroup/unified/user.slice",
            "x",
        ] {
            symlink(elsewhere, &link).unwrap();
            assert_eq!(of(private.path()), None, "{elsewhere}");
            fs::remove_file(&link).unwrap();
        }
    }
}
