//! The facts about one process that decide whether a slice holds for it.
//! Touches: /proc of that process.
//! Law: nothing is written, and the process is not stopped. A file that the process chose is opened
//! below the process's own root, and only if it is a regular file.

pub(super) mod maps;
pub(super) mod root;

use crate::commands::status::process::name;
use crate::launch::program;
use maps::Maps;
use nix::unistd::geteuid;
use root::{Creds, Root};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of attempts to examine a process that is still being started.
const ATTEMPTS: u32 = 250;
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a process cannot be examined.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unexamined {
    /// It does not exist, or has ended.
    #[error("there is no process {0}")]
    Gone(u32),
    /// The kernel does not let this user look into it.
    #[error(
        "process {pid} ({name}) cannot be examined {}",
        match whose {
            Some(whose) => format!("by this user: run gpuslice doctor {pid} as root{whose}"),
            None => "by root here: the kernel does not permit it (CAP_SYS_PTRACE is missing, or a \
                     security module forbids it)".to_owned(),
        }
    )]
    NotPermitted {
        pid: u32,
        name: String,
        /// ` or as USER`, if that would help. None: this user is root, and no other has more rights.
        whose: Option<String>,
    },
}

/// The facts.
#[derive(Debug)]
pub(super) struct ProcessFacts {
    pub(super) pid: u32,
    /// The name that the kernel shows.
    pub(super) name: String,
    pub(super) creds: Creds,
    /// The program's file, as the process sees it; None if it was removed.
    pub(super) executable: PathBuf,
    pub(super) environment: Environment,
    pub(super) maps: Maps,
    /// The process's root folder, in its mount namespace.
    pub(super) root: Root,
    /// Whether ld.so ignored LD_PRELOAD because the program has privileges of its own.
    pub(super) is_secure: bool,
    /// Whether the process runs under a seccomp filter.
    pub(super) is_filtered: bool,
    /// Whether the process is in another mount namespace than this one.
    pub(super) is_elsewhere: bool,
    pub(super) limits: Limits,
}

/// The limits that the library needs room in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// The highest number of open files.
    pub(super) open_files: Option<u64>,
    /// The largest address space in bytes.
    pub(super) address_space: Option<u64>,
    /// The open files.
    pub(super) open: Option<u64>,
    /// The size of the address space.
    pub(super) size: u64,
}

/// The environment with which a process was started.
#[derive(Debug, Default)]
pub(super) struct Environment(Vec<u8>);

impl Environment {
    /// Returns the value of a variable.
    pub(super) fn get(&self, name: &[u8]) -> Option<&OsStr> {
        let mut all = self.0.split(|byte| *byte == 0);
        let value = all.find_map(|one| one.strip_prefix(name)?.strip_prefix(b"="));
        value.map(OsStr::from_bytes)
    }

    /// Returns the value of a variable that is set and not empty.
    pub(super) fn path(&self, name: &[u8]) -> Option<&Path> {
        self.get(name).filter(|it| !it.is_empty()).map(Path::new)
    }

    /// Checks whether a program has written its title over its environment. The variables are then
    /// unknown.
    pub(super) fn is_overwritten(&self) -> bool {
        !self.0.is_empty() && !self.0.contains(&b'=')
    }
}

/// Returns whether the kernel says that a process has ended and only waits for its parent. A process
/// whose main thread has ended has the same state as long as its other threads run.
fn has_ended(status: &str) -> bool {
    let threads = field(status, "Threads:").and_then(|count| count.parse().ok());
    let is_alone = threads.is_none_or(|count: u32| count < 2);
    is_alone && field(status, "State:").is_some_and(|state| state.starts_with(['Z', 'X']))
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim())
}

fn numbers(status: &str, name: &str) -> Vec<u32> {
    let all = field(status, name).unwrap_or_default();
    let numbers = all.split_ascii_whitespace();
    numbers.filter_map(|one| one.parse().ok()).collect()
}

impl ProcessFacts {
    /// Examines a process. A process that is just being started is given a moment.
    ///
    /// # Errors
    /// When it has ended, or this user may not examine it.
    pub(super) fn read(pid: u32) -> Result<ProcessFacts, Unexamined> {
        let executable = || fs::read_link(format!("/proc/{pid}/exe")).ok();
        for _ in 0..ATTEMPTS {
            let before = executable();
            let facts = ProcessFacts::read_once(pid)?;
            let is_same_program = before.as_ref() == Some(&facts.executable);
            if is_same_program && !facts.is_being_started() {
                return Ok(facts);
            }
            std::thread::sleep(PAUSE);
        }
        ProcessFacts::read_once(pid)
    }

    fn read_once(pid: u32) -> Result<ProcessFacts, Unexamined> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let status = fs::read(folder.join("status")).map_err(|_| Unexamined::Gone(pid))?;
        let status = String::from_utf8_lossy(&status);
        if has_ended(&status) {
            return Err(Unexamined::Gone(pid));
        }
        let creds = Creds::of(&numbers(&status, "Uid:"), &numbers(&status, "Gid:"));
        let name = name(pid).unwrap_or_default();
        let unseen = |error: io::Error| match error.kind() {
            ErrorKind::PermissionDenied => Unexamined::NotPermitted {
                pid,
                name: crate::base::text::printable(&name),
                whose: (!geteuid().is_root()).then(|| creds.whose()),
            },
            _ => Unexamined::Gone(pid),
        };
        let environment = fs::read(folder.join("environ")).map_err(unseen)?;
        let maps = fs::read(folder.join("maps")).map_err(unseen)?;
        let root = Root::of(&folder.join("root")).map_err(unseen)?;
        let executable = fs::read_link(folder.join("exe")).map_err(unseen)?;
        let namespace = |path: &Path| fs::read_link(path.join("ns/mnt")).ok();
        let (own, other) = (namespace(Path::new("/proc/self")), namespace(&folder));
        let filter = field(&status, "Seccomp:").unwrap_or("0");
        let size = field(&status, "VmSize:").and_then(|size| size.split(' ').next()?.parse().ok());
        let open = fs::read_dir(folder.join("fd")).map(Iterator::count).ok();
        let limits = fs::read_to_string(folder.join("limits")).unwrap_or_default();
        Ok(ProcessFacts {
            pid,
            executable,
            environment: Environment(environment),
            maps: Maps::parse(&maps),
            is_secure: is_secure(&fs::read(folder.join("auxv")).unwrap_or_default()),
            is_filtered: filter != "0",
            is_elsewhere: own != other || !root.is_ours(),
            limits: Limits {
                open_files: soft(&limits, "Max open files"),
                address_space: soft(&limits, "Max address space"),
                open: open.and_then(|open| u64::try_from(open).ok()),
                size: size.unwrap_or(0u64).saturating_mul(1024),
            },
            root,
            creds,
            name,
        })
    }

    /// Checks whether ld.so may not have loaded the program's libraries yet.
    fn is_being_started(&self) -> bool {
        self.maps.is_loading() || self.is_before_its_loader() || self.is_still_the_runtime()
    }

    /// Checks whether the kernel has not mapped the program's ld.so yet. A process has a new
    /// program's name and environment a moment before it has the program's files.
    fn is_before_its_loader(&self) -> bool {
        let file = self.program().ok();
        let loader = file.and_then(|file| program::loader(&file, &self.executable).ok()?);
        loader.is_some_and(|loader| maps::is_any_loader(&loader)) && !self.maps.has_loader()
    }

    /// Checks whether a container's process still executes its runtime (runc, crun), which is no file of
    /// the container. Engines call a container running a moment before it executes its program.
    fn is_still_the_runtime(&self) -> bool {
        let program = self.program().and_then(|file| file.metadata());
        let is_program = |found: &fs::Metadata| {
            let own = program.as_ref().map(|own| (own.dev(), own.ino()));
            own.is_ok_and(|own| own == (found.dev(), found.ino()))
        };
        self.is_elsewhere
            && self.maps.libraries().is_empty()
            && !self
                .root
                .facts(&self.executable)
                .is_some_and(|found| is_program(&found))
    }

    /// Returns the process as it is named in sentences: `process 4242 (vllm)`.
    pub(super) fn shown(&self) -> String {
        format!(
            "process {} ({})",
            self.pid,
            crate::base::text::printable(&self.name)
        )
    }

    /// Opens the program's file, even if it was removed.
    pub(super) fn program(&self) -> io::Result<fs::File> {
        fs::File::open(format!("/proc/{}/exe", self.pid))
    }
}

/// Returns a soft limit; None if it is unlimited.
fn soft(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Checks the auxiliary vector: the kernel says there that a program gained privileges.
fn is_secure(vector: &[u8]) -> bool {
    const AT_SECURE: u64 = 23;
    let (entries, _) = vector.as_chunks::<16>();
    entries.iter().any(|entry| {
        let word = |at: usize| {
            let bytes = entry.get(at..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
        };
        word(0) == AT_SECURE && word(8) != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_whole_and_a_title_is_no_environment() {
        let environment = Environment(b"A=1\0LD_PRELOAD=/l.so\0EMPTY=\0".to_vec());
        assert_eq!(environment.get(b"LD_PRELOAD"), Some(OsStr::new("/l.so")));
        assert_eq!(environment.get(b"PRELOAD"), None);
        assert_eq!(environment.path(b"EMPTY"), None);
        assert!(!environment.is_overwritten() && !Environment::default().is_overwritten());
        assert!(Environment(b"vllm worker 3\0\0\0\0".to_vec()).is_overwritten());
    }

    #[test]
    fn a_process_whose_main_thread_has_ended_lives_as_long_as_its_threads() {
        let status = |threads| format!("Name:\tserver\nState:\tZ (zombie)\nThreads:\t{threads}\n");
        assert!(has_ended(&status(1)) && !has_ended(&status(2)));
        assert!(has_ended("State:\tZ (zombie)\n") && !has_ended("State:\tS (sleeping)\n"));
    }

    #[test]
    fn a_program_with_privileges_is_known_by_its_auxiliary_vector() {
        let vector = |value: u64| {
            let words = [6u64, 4096, 23, value, 0, 0];
            words.map(u64::to_ne_bytes).concat()
        };
        assert!(is_secure(&vector(1)) && !is_secure(&vector(0)) && !is_secure(b""));
    }

    #[test]
    fn a_limit_is_its_soft_number_or_none() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 4096                 files\n\
                      Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(soft(limits, "Max open files"), Some(1024));
        assert_eq!(soft(limits, "Max address space"), None);
    }

    #[test]
    fn root_is_not_told_to_become_root() {
        let said = |whose: Option<&str>| {
            let name = "init".to_owned();
            let whose = whose.map(str::to_owned);
            Unexamined::NotPermitted {
                pid: 1,
                name,
                whose,
            }
            .to_string()
        };
        assert_eq!(
            said(Some(" or as user me")),
            "process 1 (init) cannot be examined by this user: run gpuslice doctor 1 as root or as \
             user me"
        );
        assert_eq!(
            said(None),
            "process 1 (init) cannot be examined by root here: the kernel does not permit it \
             (CAP_SYS_PTRACE is missing, or a security module forbids it)"
        );
    }

    #[test]
    fn this_process_can_be_examined() {
        let facts = ProcessFacts::read(std::process::id()).unwrap();
        assert!(!facts.is_elsewhere && !facts.is_secure && !facts.maps.files.is_empty());
        assert!(facts.limits.open.unwrap() > 2);
        assert!(matches!(
            ProcessFacts::read(u32::MAX),
            Err(Unexamined::Gone(_))
        ));
    }

    #[test]
    fn a_program_whose_loader_is_not_mapped_yet_is_being_started() {
        let mut facts = ProcessFacts::read(std::process::id()).unwrap();
        assert!(!facts.is_being_started());
        facts.maps = Maps::parse(b"7ffc49757000-7ffc49778000 rw-p 0 00:00 0  [stack]\n");
        assert!(facts.is_being_started());
    }

    #[test]
    fn a_program_that_has_just_been_executed_is_never_without_its_libraries() {
        for _ in 0..200 {
            let mut program = std::process::Command::new("sleep")
                .arg("60")
                .spawn()
                .unwrap();
            let facts = ProcessFacts::read(program.id());
            program.kill().unwrap();
            program.wait().unwrap();
            assert!(!facts.unwrap().maps.named("libc.so").is_empty());
        }
    }
}
