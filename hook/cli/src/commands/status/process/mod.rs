//! Lists the processes of this machine, and finds those that have a ledger mapped.
//! Touches: /proc, and what `maps` touches.
//!
//! A ledger stores process ids of the processes' own pid namespaces. In this namespace, these ids
//! may belong to other processes. So a process is accepted only if it has mapped the ledger. The
//! ledger is identified by device and inode, because every container's ledger is inode 2 of a tmpfs
//! of its own.
//!
//! Law: /proc is read once per snapshot, whatever the number of slices and slots.

mod facts;
mod maps;
mod read;

pub(crate) use facts::Facts;
pub(super) use maps::{FileId, Mapped};
pub(super) use read::{Environment, Start, command_line};
pub(crate) use read::{name, variable};

use gpuslice_host::machine::process::ProcessId;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use read::{boot_time, read_all};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// A process that has mapped a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The process id in this pid namespace.
    pub(super) pid: u32,
    /// The process name.
    pub(super) name: String,
}

/// The processes of this machine at one moment. Each fact is read only on demand.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    all: OnceCell<BTreeMap<u32, Facts>>,
    /// The facts that were read before `all`.
    some: RefCell<BTreeMap<u32, Option<Facts>>>,
    by_own_number: OnceCell<BTreeMap<u32, Vec<u32>>>,
    by_slice_file: OnceCell<BTreeMap<Vec<u8>, Vec<u32>>>,
    mapped: RefCell<BTreeMap<u32, Option<Rc<Mapped>>>>,
    /// Whether a process has mapped the first ledger that was asked for.
    has_mapped: RefCell<BTreeMap<u32, (FileId, bool)>>,
    environments: RefCell<BTreeMap<u32, Option<Rc<Environment>>>>,
    boot: OnceCell<Option<u64>>,
    made: Made,
}

/// The moment at which a list of processes was begun, in clock ticks since the machine started.
#[derive(Debug)]
struct Made(u64);

impl Default for Made {
    fn default() -> Made {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME);
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
        let ticks = ticks
            .and_then(|ticks| u64::try_from(ticks).ok())
            .unwrap_or(100);
        let now = now.map_or(Duration::MAX, Duration::from);
        let part = u64::from(now.subsec_millis()).saturating_mul(ticks) / 1000;
        Made(now.as_secs().saturating_mul(ticks).saturating_add(part))
    }
}

impl Processes {
    /// Returns every process.
    pub(crate) fn all(&self) -> &BTreeMap<u32, Facts> {
        self.all.get_or_init(|| {
            let listed = fs::read_dir("/proc").into_iter().flatten();
            let numbers = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
            let with_facts = |pid| Some((pid, Facts::of(pid)?));
            numbers.filter_map(with_facts).collect()
        })
    }

    /// Takes one of the facts about a process; None if it has ended.
    fn fact<T>(&self, pid: u32, take: impl FnOnce(&Facts) -> T) -> Option<T> {
        match self.all.get() {
            Some(all) => all.get(&pid).map(take),
            None => {
                let mut some = self.some.borrow_mut();
                let facts = some.entry(pid).or_insert_with(|| Facts::of(pid));
                facts.as_ref().map(take)
            }
        }
    }

    /// Returns the effective user of a process; None if it has ended.
    pub(crate) fn user(&self, pid: u32) -> Option<u32> {
        self.fact(pid, |facts| facts.user)
    }

    /// Checks whether the number of a process is still that of the process that was listed here: it
    /// started before the list was made.
    pub(crate) fn is_still(&self, pid: u32) -> bool {
        let number = i32::try_from(pid).ok();
        let started = number
            .and_then(ProcessId::of)
            .map(|process| process.start_time);
        let is_listed = self.fact(pid, |_| ()).is_some();
        is_listed && started.is_some_and(|started| started <= self.made.0)
    }

    /// Checks whether a process has the same number here and in its own namespace.
    pub(super) fn has_same_number(&self, pid: u32) -> bool {
        let own_number = self.fact(pid, |facts| facts.own_number);
        own_number.flatten() == Some(pid)
    }

    /// Returns the name of a process; None if it has ended.
    pub(crate) fn name(&self, pid: u32) -> Option<String> {
        self.fact(pid, |facts| facts.name.clone())
    }

    /// Reads the facts about a process that a ledger names, before they are wanted.
    pub(super) fn prepare(&self, pid: u32, ledger: &FileId) {
        if self.has_same_number(pid) {
            self.has_mapped(pid, ledger);
        }
    }

    /// Checks whether a process has mapped the ledger.
    pub(super) fn has_mapped(&self, pid: u32, ledger: &FileId) -> bool {
        if let Some(known) = self.mapped.borrow().get(&pid) {
            return known.as_ref().is_some_and(|mapped| mapped.has(ledger));
        }
        let known = self.has_mapped.borrow().get(&pid).copied();
        match known {
            Some((known, has_mapped)) if known == *ledger => has_mapped,
            // Other ledgers are asked for, too.
            Some(_) => self.mapped(pid).is_some_and(|mapped| mapped.has(ledger)),
            None => {
                let has_mapped = maps::has_mapped(pid, ledger);
                let mut known = self.has_mapped.borrow_mut();
                known.insert(pid, (*ledger, has_mapped));
                has_mapped
            }
        }
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
        let has_mapped = |pid: &&u32| self.has_mapped(**pid, ledger);
        named.iter().filter(has_mapped).copied().collect()
    }

    /// Returns the mappings of a process; None if they are not visible.
    pub(super) fn mapped(&self, pid: u32) -> Option<Rc<Mapped>> {
        let known = self.mapped.borrow().get(&pid).cloned();
        known.unwrap_or_else(|| {
            let mapped = Mapped::of(pid).map(Rc::new);
            self.mapped.borrow_mut().insert(pid, mapped.clone());
            mapped
        })
    }

    /// Returns the environment of a process; None if it is not visible.
    pub(super) fn environment(&self, pid: u32) -> Option<Rc<Environment>> {
        let known = self.environments.borrow().get(&pid).cloned();
        known.unwrap_or_else(|| {
            let read = read_all(&format!("/proc/{pid}/environ"));
            let read = read.map(|bytes| Rc::new(Environment(bytes)));
            self.environments.borrow_mut().insert(pid, read.clone());
            read
        })
    }

    /// Returns the processes of the run's user whose environment names the slice file. Processes of
    /// other users are ignored, because any user can put any path into an environment.
    pub(crate) fn naming(&self, file: &Path, user: u32) -> Vec<u32> {
        let by_slice_file = self.by_slice_file.get_or_init(|| {
            let mut named: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
            for pid in self.all().keys() {
                let environment = self.environment(*pid);
                let file = environment
                    .as_ref()
                    .and_then(|it| it.get("GPUSLICE_CONFIG"));
                if let Some(file) = file {
                    named.entry(file.to_vec()).or_default().push(*pid);
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
    pub(crate) fn descends_from(&self, pid: u32, ancestors: &BTreeSet<u32>) -> bool {
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

impl Processes {
    /// Returns the time since the start of a process; None if it has ended.
    pub(crate) fn age(&self, pid: u32) -> Option<Duration> {
        self.start(pid).map(|start| Duration::from_secs(start.age))
    }

    /// Returns the start of a process; None if it has ended.
    pub(super) fn start(&self, pid: u32) -> Option<Start> {
        let process = ProcessId::of(i32::try_from(pid).ok()?)?;
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten()?;
        let since_boot = process.start_time.checked_div(u64::try_from(ticks).ok()?)?;
        let boot = self.boot.get_or_init(boot_time);
        Some(Start::at((*boot)?.saturating_add(since_boot)))
    }
}

/// Returns the pid namespace of a process; 0 means this process.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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
        let cut = "a日本語モ\u{fffd}";
        assert_eq!(name(child.id()).unwrap(), cut);
        assert_eq!(Processes::default().name(child.id()).unwrap(), cut);
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
