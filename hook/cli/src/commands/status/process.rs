//! Lists the processes of this machine, and finds those that have a ledger mapped.
//! Touches: /proc, and one page of a ledger that is not on tmpfs (mapped, never read).
//!
//! A ledger stores process ids of the processes' own pid namespaces. In this namespace, these ids
//! may belong to other processes. So a process is accepted only if it has mapped the ledger. The
//! ledger is identified by device and inode, because every container's ledger is inode 2 of a tmpfs
//! of its own.
//!
//! Law: /proc is read once per snapshot, whatever the number of slices and slots.

use super::users::User;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::{major, minor};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A process that has mapped a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The process id in this pid namespace.
    pub(super) pid: u32,
    /// The process name.
    pub(super) name: String,
}

/// A file's identity in /proc/PID/maps: `MAJOR:MINOR`, and the inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId {
    device: String,
    inode: String,
}

impl FileId {
    /// Returns the identity of a file that may be mapped.
    pub(super) fn of(path: &Path) -> Option<FileId> {
        let facts = fs::metadata(path).ok()?;
        // On a layered file system, /proc/PID/maps shows another device and inode than stat.
        let file = File::open(path).ok().filter(|_| facts.is_file());
        let layered = file
            .filter(|file| fstatfs(file).is_ok_and(|found| found.filesystem_type() != TMPFS_MAGIC));
        layered
            .and_then(|file| FileId::as_mapped(&file))
            .or_else(|| {
                let device = facts.dev();
                Some(FileId {
                    device: format!("{:02x}:{:02x}", major(device), minor(device)),
                    inode: facts.ino().to_string(),
                })
            })
    }

    /// Maps a page of the file, and reads the identity that the kernel shows for it.
    fn as_mapped(file: &File) -> Option<FileId> {
        let length = NonZeroUsize::new(4096)?;
        let (rights, flags) = (ProtFlags::PROT_NONE, MapFlags::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses; nothing reads it.
        let place = unsafe { mmap(None, length, rights, flags, file, 0) }.ok()?;
        let start = format!("{:x}-", place.as_ptr().addr());
        let maps = fs::read("/proc/self/maps").unwrap_or_default();
        // SAFETY: unmaps the mapping that was just made; no pointer into it exists.
        let _ = unsafe { munmap(place, length.get()) };
        let maps = String::from_utf8_lossy(&maps).into_owned();
        let line = maps.lines().find(|line| line.starts_with(&start))?;
        FileId::in_line(line)
    }

    fn in_line(line: &str) -> Option<FileId> {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (device, inode) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        Some(FileId { device, inode })
    }
}

/// The facts about a process in /proc/PID/status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The process id in the process's innermost pid namespace.
    own_number: Option<u32>,
    /// Its parent.
    parent: u32,
    /// Its effective user.
    pub(super) user: u32,
}

/// The relevant mappings of a process.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    files: BTreeSet<FileId>,
    /// Whether the preload library is mapped.
    pub(super) library: bool,
    /// Whether the CUDA driver is mapped.
    pub(super) driver: bool,
}

/// The processes of this machine at one moment. Each fact is read only on demand.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    all: OnceCell<BTreeMap<u32, Facts>>,
    by_own_number: OnceCell<BTreeMap<u32, Vec<u32>>>,
    by_slice_file: OnceCell<BTreeMap<Vec<u8>, Vec<u32>>>,
    mapped: RefCell<BTreeMap<u32, Option<Rc<Mapped>>>>,
}

impl Processes {
    /// Returns every process.
    pub(crate) fn all(&self) -> &BTreeMap<u32, Facts> {
        self.all.get_or_init(|| {
            let listed = fs::read_dir("/proc").into_iter().flatten();
            let numbers = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
            numbers.filter_map(|pid| Some((pid, facts(pid)?))).collect()
        })
    }

    /// Returns the processes with this `pid` in their own namespace that have mapped the ledger.
    /// There is more than one if containers with pid namespaces of their own share a slice.
    pub(super) fn find(&self, pid: u32, ledger: &FileId) -> Vec<u32> {
        let by_own_number = self.by_own_number.get_or_init(|| {
            let mut named: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for (pid, facts) in self.all() {
                if let Some(own_number) = facts.own_number {
                    named.entry(own_number).or_default().push(*pid);
                }
            }
            named
        });
        let named = by_own_number.get(&pid).map_or(&[][..], Vec::as_slice);
        let has_mapped = |pid: &&u32| {
            let mapped = self.mapped(**pid);
            mapped.is_some_and(|mapped| mapped.files.contains(ledger))
        };
        named.iter().filter(has_mapped).copied().collect()
    }

    /// Returns the user of a process; None if the process has ended.
    pub(super) fn user(&self, pid: u32) -> Option<User> {
        self.all().get(&pid).map(|facts| User(facts.user))
    }

    /// Returns the mappings of a process; None if they are not visible.
    pub(super) fn mapped(&self, pid: u32) -> Option<Rc<Mapped>> {
        let known = self.mapped.borrow().get(&pid).cloned();
        known.unwrap_or_else(|| {
            let mapped = read_maps(pid).map(Rc::new);
            self.mapped.borrow_mut().insert(pid, mapped.clone());
            mapped
        })
    }

    /// Returns the processes of the run's user whose environment names the slice file. Processes of
    /// other users are ignored, because any user can put any path into an environment.
    pub(crate) fn naming(&self, file: &Path, user: u32) -> Vec<u32> {
        let by_slice_file = self.by_slice_file.get_or_init(|| {
            let mut named: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
            for pid in self.all().keys() {
                if let Some(file) = variable(*pid, b"GPUSLICE_CONFIG=") {
                    named.entry(file).or_default().push(*pid);
                }
            }
            named
        });
        let named = by_slice_file.get(file.as_os_str().as_bytes());
        let is_the_users = |pid: &&u32| {
            let facts = self.all().get(pid);
            facts.is_some_and(|facts| facts.user == user)
        };
        named
            .into_iter()
            .flatten()
            .filter(is_the_users)
            .copied()
            .collect()
    }

    /// Returns the processes of the container with this first process: those of its cgroup and, if
    /// the container has a pid namespace of its own, those of that namespace.
    pub(crate) fn of_container(&self, pid: i32) -> BTreeSet<u32> {
        let Ok(first) = u32::try_from(pid) else {
            return BTreeSet::new();
        };
        if !self.all().contains_key(&first) {
            return BTreeSet::new();
        }
        let in_cgroup = cgroup(first).and_then(|cgroup| processes_of(&cgroup));
        let namespace = pid_namespace(first).filter(|own| Some(own) != pid_namespace(0).as_ref());
        let in_namespace = self
            .all()
            .keys()
            .filter(|pid| namespace.is_some() && pid_namespace(**pid) == namespace);
        let mut found: BTreeSet<u32> = in_namespace.copied().collect();
        found.extend(in_cgroup.unwrap_or_default());
        found.insert(first);
        found
    }

    /// Checks whether a process is a descendant of one of these.
    pub(super) fn descends_from(&self, pid: u32, ancestors: &BTreeSet<u32>) -> bool {
        let (mut pid, mut left) = (pid, self.all().len());
        while let Some(facts) = self.all().get(&pid).filter(|_| left > 0) {
            if ancestors.contains(&pid) {
                return true;
            }
            (pid, left) = (facts.parent, left.saturating_sub(1));
        }
        false
    }
}

impl Processes {
    /// Returns the ancestors of a process, its parent first.
    pub(crate) fn ancestors(&self, pid: u32) -> Vec<u32> {
        let mut ancestors = Vec::new();
        let mut at = self.all().get(&pid);
        while let Some(facts) = at.filter(|_| ancestors.len() < self.all().len()) {
            ancestors.push(facts.parent);
            at = self.all().get(&facts.parent);
        }
        ancestors
    }
}

/// Returns the pid namespace of a process. The process id 0 stands for this process.
fn pid_namespace(pid: u32) -> Option<PathBuf> {
    let process = match pid {
        0 => "self".to_owned(),
        pid => pid.to_string(),
    };
    fs::read_link(format!("/proc/{process}/ns/pid")).ok()
}

/// Returns the memory cgroup of a process. Returns None on a host that has only cgroup version 1.
pub(crate) fn cgroup(pid: u32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(PathBuf::from(format!("/sys/fs/cgroup{path}")))
}

/// Returns the processes of a cgroup.
pub(crate) fn processes_of(cgroup: &Path) -> Option<Vec<u32>> {
    let all = fs::read_to_string(cgroup.join("cgroup.procs")).ok()?;
    Some(all.lines().filter_map(|line| line.parse().ok()).collect())
}

fn read_maps(pid: u32) -> Option<Mapped> {
    let maps = fs::read(format!("/proc/{pid}/maps")).ok()?;
    let maps = String::from_utf8_lossy(&maps);
    let mut mapped = Mapped::default();
    for line in maps.lines() {
        if let Some(file) = FileId::in_line(line).filter(|file| file.inode != "0") {
            mapped.files.insert(file);
        }
        mapped.library |= line.contains("/libgpuslice.so");
        mapped.driver |= line.contains("/libcuda.so");
    }
    Some(mapped)
}

/// Returns the value of an environment variable of a process.
pub(crate) fn variable(pid: u32, name_and_equals: &[u8]) -> Option<Vec<u8>> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    variables.find_map(|variable| variable.strip_prefix(name_and_equals).map(<[u8]>::to_vec))
}

/// Returns the name of a process. The kernel truncates it to 15 bytes, even inside a character.
pub(crate) fn name(pid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(name.trim_end_matches('\n').to_owned())
}

fn facts(pid: u32) -> Option<Facts> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let fields = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_ascii_whitespace())
    };
    Some(Facts {
        own_number: fields("NSpid:").and_then(|mut all| all.next_back()?.parse().ok()),
        parent: fields("PPid:")?.next()?.parse().ok()?,
        user: fields("Uid:")?.nth(1)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_file_of_the_same_number_on_another_file_system_is_another_file() {
        let line = |device| format!("7f00-7f10 rw-s 00000000 {device} 2   /ledger/ledger");
        let id = |device| FileId::in_line(&line(device)).unwrap();
        assert_ne!(id("00:38"), id("00:41"));
        assert_eq!(id("00:38"), id("00:38"));
    }

    #[test]
    fn a_file_is_named_as_maps_name_it_whatever_its_file_system_is() {
        // This test maps its own executable, which is on a disk or an overlay.
        let own = std::env::current_exe().unwrap();
        let mapped = read_maps(std::process::id()).unwrap();
        assert!(mapped.files.contains(&FileId::of(&own).unwrap()));
    }

    #[test]
    fn a_name_that_is_cut_inside_a_letter_is_still_a_name() {
        let name_of = "import ctypes, sys; \
            ctypes.CDLL(None).prctl(15, 'a日本語モデル'.encode()[:15], 0, 0, 0); \
            print(flush=True); sys.stdin.read()";
        let mut child = Command::new("python3")
            .args(["-c", name_of])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        let out = child.stdout.as_mut().unwrap();
        std::io::Read::read_exact(out, &mut ready).unwrap();
        assert_eq!(name(child.id()).unwrap(), "a日本語モ\u{fffd}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_descends_from_itself_and_its_parents() {
        let processes = Processes::default();
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        let of = |pid| BTreeSet::from([pid]);
        assert!(processes.descends_from(own, &of(own)));
        assert!(parent == 0 || processes.descends_from(own, &of(parent)));
        assert!(!processes.descends_from(own, &of(u32::MAX)));
    }
}
