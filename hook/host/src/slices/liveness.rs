//! Finds signs of life of a slice whose containers' first processes have ended, or whose record cannot
//! be read.
//! Touches: /proc, which must be the host's; the slice's ledger, by reading.
//! Law: when in doubt the slice is alive, because memory must not be promised twice.

use crate::base::ledger_room::room;
use crate::base::paths::HostPaths;
use crate::base::read;
use crate::machine::process::InitProcess;
use crate::slices::records::{Damaged, Member, SliceRecord};
use gpuslice_config::ledger::{Errno, LedgerError, Snapshot};
use nix::sys::stat::{major, minor};
use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bytes that are read of a process's mount table: a host has hundreds of mounts, of 200 bytes
/// each.
const CAP: usize = 16 << 20;

/// The shortest id, in letters, that a longer word may begin with and still name the slice.
const LONG: usize = 12;

/// The first sign of life of a slice whose record cannot be read, as text for a message.
///
/// # Errors
/// When this process is short of descriptors or memory, so it sees neither the ledger nor processes.
pub fn first_sign(paths: &HostPaths, damaged: &Damaged) -> Result<Option<String>, LedgerError> {
    let slice = damaged.slice.as_str();
    if let Some(owner) = owners(&damaged.text).find(InitProcess::lives) {
        return Ok(Some(format!("its process {} still runs", owner.pid)));
    }
    match in_ledger(paths, slice) {
        Ok(Some(pid)) => return Ok(Some(format!("process {pid} holds memory of its slice"))),
        Err(error) if error.is_passing() => return Err(error),
        Ok(None) | Err(_) => {}
    }
    Ok(sign_of(&Mounts::of(paths, slice, slice), Some(slice)))
}

/// Why a container leaves its slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Its creation failed, so it has not run any program.
    NotMade,
    /// It has ended. Its first process may still live: a process that waits in the driver survives
    /// SIGKILL.
    Ended,
}

/// Whether a slice whose last containers leave must stay: a process of them may hold its memory.
///
/// A ledger that cannot be read does not say whether one does. Its tenant may have damaged it for
/// good, so it must not keep the slice for ever: the slice stays while a first process lives, or a
/// process is in a container's cgroup or has a container's files mounted. If this process itself is
/// short of descriptors or memory, the slice stays until the next look.
#[must_use]
pub fn is_held(paths: &HostPaths, record: &SliceRecord, leaving: Leaving) -> bool {
    match in_ledger(paths, &record.slice) {
        Ok(found) => found.is_some(),
        Err(error) => {
            let has_sign = |one: &Member| {
                if one.owner.lives() {
                    return true;
                }
                // A short id may be a word in the path of any cgroup, and would keep the slice for ever.
                let id = Some(one.id.as_str()).filter(|id| id.len() >= LONG);
                sign_of(&Mounts::of(paths, &record.slice, &one.id), id).is_some()
            };
            let has_run = leaving == Leaving::Ended;
            error.is_passing() || has_run && record.containers.iter().any(has_sign)
        }
    }
}

/// The first sign of life of a slice's container outside the ledger, as text for a message: a process
/// with its mounts, or in a cgroup named after this id. This process is none: a hook may be in such a
/// cgroup.
fn sign_of(mounts: &Mounts, id: Option<&str>) -> Option<String> {
    let mut seen = HashSet::new();
    // By its pid in /proc, which may be another pid namespace's.
    let own = fs::read_link("/proc/self").unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let name = entry.file_name();
        let pid = name.to_str()?.parse::<i32>().ok();
        pid.filter(|_| own.as_os_str() != name)
    });
    for pid in pids {
        if id.is_some_and(|id| in_cgroup(pid, id))
            && InitProcess::of(pid).is_ok_and(|owner| owner.lives())
        {
            return Some(format!("process {pid} is in a cgroup named after it"));
        }
        // Processes of one mount namespace share one mount table.
        let namespace = fs::metadata(format!("/proc/{pid}/ns/mnt"));
        let Ok(namespace) = namespace.map(|facts| facts.ino()) else {
            continue;
        };
        if seen.insert(namespace) && mounts.are_in(pid) {
            return Some(format!("process {pid} has its files mounted"));
        }
    }
    None
}

/// The processes that a record's text names, even if the text is truncated or partly overwritten.
fn owners(text: &[u8]) -> impl Iterator<Item = InitProcess> {
    const PID: &str = "\"pid\":";
    const STARTTIME: &str = ",\"starttime\":";
    let text = String::from_utf8_lossy(text).into_owned();
    let starts: Vec<usize> = text.match_indices(PID).map(|(at, _)| at).collect();
    starts.into_iter().filter_map(move |at| {
        let (pid, rest) = number(text.get(at.saturating_add(PID.len())..)?)?;
        let (start_time, _) = number(rest.strip_prefix(STARTTIME)?)?;
        Some(InitProcess {
            pid: pid.parse().ok()?,
            start_time: start_time.parse().ok()?,
            pid_namespace: 0,
            boot: 0,
        })
    })
}

/// The leading number of a text, and the text after it.
fn number(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at_checked(end)
}

/// A live process that has a slot in the slice's ledger, by its pid in its own pid namespace. A slice
/// without a ledger has none.
///
/// # Errors
/// When the ledger cannot be read: whether a process lives in it is then unknown.
pub fn in_ledger(paths: &HostPaths, slice: &str) -> Result<Option<u32>, LedgerError> {
    let file = paths.ledger_file(slice);
    let path = CString::new(file.as_os_str().as_bytes()).unwrap_or_default();
    let mut bytes = room(&file);
    match Snapshot::read(&path, &mut bytes) {
        Ok(snapshot) => {
            let mut slots = snapshot.slots().filter(|record| record.alive);
            Ok(slots.next().map(|record| record.pid))
        }
        Err(LedgerError::Open(Errno(libc::ENOENT))) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a process is in a cgroup named after this id, which mostly is a container's.
fn in_cgroup(pid: i32, id: &str) -> bool {
    let text = read::file(Path::new(&format!("/proc/{pid}/cgroup")), 1 << 16);
    text.is_ok_and(|text| names(&String::from_utf8_lossy(&text), id))
}

/// Whether the text contains the id as a separate word, or a long id at the start of a word. The cgroup of
/// conmon does not count, `libpod-conmon-ID.scope`: conmon watches the container from outside, and starts
/// the command that removes it.
fn names(text: &str, id: &str) -> bool {
    let part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    !id.is_empty()
        && text.match_indices(id).any(|(at, _)| {
            let (before, from) = text.split_at_checked(at).unwrap_or_default();
            let after = from.get(id.len()..).unwrap_or_default();
            let ends = id.len() >= LONG || !part(after.chars().next());
            !part(before.chars().next_back()) && ends && !before.ends_with("conmon-")
        })
}

/// The mounts of a slice's container.
struct Mounts {
    /// The device of its ledger's own file system.
    ledger: Option<String>,
    /// The device of the containers' folders, and the path of this one.
    folder: Option<(String, String)>,
}

impl Mounts {
    fn of(paths: &HostPaths, slice: &str, container: &str) -> Mounts {
        let device = |path: &Path| fs::metadata(path).map(|facts| facts.dev());
        let shown = |device| format!("{}:{}", major(device), minor(device));
        let (own, above) = (device(&paths.ledger(slice)), device(&paths.ledgers()));
        let ledger = match (own, above) {
            // The device identifies the ledger only if it has a file system of its own.
            (Ok(own), Ok(above)) if own != above => Some(shown(own)),
            _ => None,
        };
        let folders = fs::canonicalize(paths.containers()).ok();
        let folder = folders.and_then(|folders| {
            let path = folders.join(container).join("root");
            Some((shown(device(&folders).ok()?), path.to_str()?.to_owned()))
        });
        Mounts { ledger, folder }
    }

    /// Whether the process has one of these mounts. On the host the ledger's whole file system is
    /// mounted; in a container only one file of it.
    fn are_in(&self, pid: i32) -> bool {
        let table = read::file(Path::new(&format!("/proc/{pid}/mountinfo")), CAP);
        let table = table.unwrap_or_default();
        String::from_utf8_lossy(&table).lines().any(|line| {
            let mut fields = line.split(' ').skip(2);
            let (device, root) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
            let ledger = self.ledger.as_deref() == Some(device) && root != "/";
            // The kernel appends this to the path of a mount whose folder was removed.
            let root = root.strip_suffix("//deleted").unwrap_or(root);
            ledger || self.is_folder(device, root)
        })
    }

    /// Whether a mount is the container's folder. A mount table lists the path below the file
    /// system's root, which may be /run.
    fn is_folder(&self, device: &str, root: &str) -> bool {
        let same = |(on, path): &(String, String)| {
            let own = path.rsplitn(4, '/').take(3).map(str::len).sum::<usize>();
            // The last three parts, `containers/ID/root`, are never the mount point's.
            on == device && root.len() > own.saturating_add(2) && path.ends_with(root)
        };
        self.folder.as_ref().is_some_and(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_cut_still_names_its_processes() {
        let text = br#"{"version":1,"containers":[{"id":"a","name":"a","pid":12,"starttime":345,"bundle":"/b"},{"id":"b","pid":9"#;
        let found: Vec<InitProcess> = owners(text).collect();
        let one = InitProcess {
            pid: 12,
            start_time: 345,
            pid_namespace: 0,
            boot: 0,
        };
        assert_eq!(found, [one]);
        assert_eq!(owners(b"{").count(), 0);
        assert_eq!(owners(b"\xff\"pid\":,\"starttime\":1").count(), 0);
    }

    #[test]
    fn an_id_is_found_in_a_cgroups_path_as_a_word() {
        let id = "0123456789abcdef";
        assert!(names(
            &format!("0::/kubepods/cri-containerd-{id}.scope\n"),
            id
        ));
        assert!(names(&format!("0::/crio-{id}9999.scope\n"), id));
        assert!(!names(&format!("0::/crio-9{id}.scope\n"), id));
        assert!(names("0::/machine/c1\n", "c1"));
        assert!(!names("0::/machine/c12\n", "c1"));
        assert!(!names("0::/\n", ""));
    }

    #[test]
    fn the_cgroup_of_conmon_is_no_sign_of_its_container() {
        let id = "0123456789abcdef";
        for conmon in ["libpod-conmon", "crio-conmon"] {
            let path = format!("0::/machine.slice/{conmon}-{id}.scope\n");
            assert!(!names(&path, id), "{path}");
        }
        let payload = format!("0::/machine.slice/libpod-{id}.scope");
        assert!(names(&format!("{payload}/container\n"), id));
        // A container with a writable cgroup cannot hide its processes by such a name.
        assert!(names(&format!("{payload}/conmon-1\n"), id));
    }
}
