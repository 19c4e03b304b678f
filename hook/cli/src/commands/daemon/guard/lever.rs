//! Refuses new opens of GPUs to the processes of a container.
//! Touches: the container's cgroup: the devices controller of version 1, a device program of version 2.
//! Law: what was allowed before is allowed again when the lever is dropped. With version 2 the kernel
//! does so even if this process is killed. For version 1, `denied` keeps the rules in a file.
//!
//! Descriptors that are open already go on working. So the lever acts on the next process, not on the
//! one that holds memory beyond its slice.

use gpuslice_host::machine::process;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the kernel shows cgroups.
const ROOT: &str = "/sys/fs/cgroup";

/// The cgroup of a container that decides over devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// The folder of the devices controller of version 1.
    V1(PathBuf),
    /// The folder of version 2.
    V2(PathBuf),
}

impl Group {
    /// Finds the cgroup of a process, by the text of its `/proc/PID/cgroup`. None for the root: a
    /// process that is in no cgroup of its own.
    pub(super) fn in_text(text: &str, root: &Path) -> Option<Group> {
        let paths = |wanted: &dyn Fn(&str) -> bool| {
            let mut lines = text.lines().map(|line| line.splitn(3, ':'));
            lines.find_map(|mut fields| {
                let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                let is_plain = !path.split('/').any(|part| part == "..");
                let path = path
                    .strip_prefix('/')
                    .filter(|path| !path.is_empty() && is_plain);
                wanted(controllers).then_some(path)
            })
        };
        let has_devices = |names: &str| names.split(',').any(|name| name == "devices");
        match paths(&has_devices).flatten() {
            Some(path) => Some(Group::V1(root.join("devices").join(path))),
            // On hybrid hosts, the engine may use only version 2.
            None => {
                let path = paths(&|names: &str| names.is_empty())??;
                let unified = root.join("unified");
                let root = if unified.exists() {
                    unified
                } else {
                    root.to_owned()
                };
                Some(Group::V2(root.join(path)))
            }
        }
    }

    /// Finds the cgroup of a container by its first process. None if the process shares its cgroup
    /// with this one, with the process that has started it or with the host's first process: other
    /// programs would lose their GPUs.
    pub(super) fn of_container(pid: i32) -> Option<Group> {
        let of = |pid: &str| {
            let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
            Group::in_text(&text, Path::new(ROOT))
        };
        let group = of(&pid.to_string())?;
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let parent = process::parse(&stat)?.parent.to_string();
        let others = [of("self"), of("1"), of(&parent)];
        let is_own = others
            .into_iter()
            .all(|other| other.as_ref() != Some(&group));
        is_own.then_some(group)
    }
}

/// The major numbers of NVIDIA's devices, from the text of `/proc/devices`.
pub(super) fn majors_in(text: &str) -> Vec<u32> {
    let characters = text.split("Block devices:").next().unwrap_or_default();
    let lines = characters.lines().filter_map(|line| {
        let (number, name) = line.trim().split_once(' ')?;
        name.starts_with("nvidia").then(|| number.parse().ok())?
    });
    let mut majors: Vec<u32> = lines.collect();
    majors.sort_unstable();
    majors.dedup();
    majors
}

/// Opens of these devices are refused until this is dropped.
#[derive(Debug)]
pub(super) enum Lever {
    /// The rules that are restored at the end.
    V1(RulesBefore),
    /// The program's link. The kernel removes the program when the last copy of this descriptor is
    /// closed, so that a killed process leaves nothing.
    V2(OwnedFd),
}

/// The rules of a cgroup of version 1 that applied before GPUs were refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RulesBefore {
    /// The cgroup.
    folder: PathBuf,
    /// Its inode, which the kernel gives to no other cgroup: a path may be used again.
    inode: u64,
    /// The lines that are written to `devices.allow`.
    rules: Vec<String>,
}

impl RulesBefore {
    /// The cgroup.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Restores the rules.
    ///
    /// # Errors
    /// The kernel's; `NotFound` if the cgroup is gone.
    pub(super) fn restore(&self) -> io::Result<()> {
        if fs::metadata(&self.folder)?.ino() != self.inode {
            return Err(io::ErrorKind::NotFound.into());
        }
        let allow = self.folder.join("devices.allow");
        let mut rules = self.rules.iter();
        rules.try_for_each(|rule| fs::write(&allow, rule))
    }
}

impl Lever {
    /// Refuses new opens of character devices with these major numbers. With version 1, calls `keep`
    /// with the present rules before it changes them, so that they can be saved.
    ///
    /// # Errors
    /// The kernel's; `NotFound` if a cgroup of version 1 allows none of these devices.
    pub(super) fn pull(
        group: &Group,
        majors: &[u32],
        keep: impl FnOnce(&RulesBefore),
    ) -> io::Result<Lever> {
        match group {
            Group::V1(folder) => {
                let rules = rules_v1(folder, majors)?;
                keep(&rules);
                // An error in the middle restores what was changed.
                let deny = folder.join("devices.deny");
                let lever = Lever::V1(rules.clone());
                let mut rules = rules.rules.iter();
                rules.try_for_each(|rule| fs::write(&deny, rule))?;
                Ok(lever)
            }
            Group::V2(folder) => deny_v2(folder, majors).map(Lever::V2),
        }
    }

    /// The rules that the kernel does not restore if this process is killed.
    pub(super) fn rules_before(&self) -> Option<&RulesBefore> {
        match self {
            Lever::V1(rules) => Some(rules),
            Lever::V2(_) => None,
        }
    }
}

impl Drop for Lever {
    fn drop(&mut self) {
        match self {
            // The cgroup may be gone.
            Lever::V1(rules) => drop(rules.restore()),
            // A child that another thread is just starting has a copy of the descriptor.
            Lever::V2(link) => detach(link),
        }
    }
}

/// Returns the rules of a cgroup of version 1 that allow these devices.
fn rules_v1(folder: &Path, majors: &[u32]) -> io::Result<RulesBefore> {
    let listed = fs::read_to_string(folder.join("devices.list"))?;
    // Everything is allowed: the kernel then keeps a list of exceptions.
    let has_all = listed.lines().any(|rule| rule.starts_with("a "));
    let is_ours = |rule: &&str| {
        let major = rule
            .strip_prefix("c ")
            .and_then(|rest| rest.split(':').next());
        let major = major.and_then(|major| major.parse().ok());
        major.is_some_and(|major| majors.contains(&major))
    };
    let all = majors.iter().map(|major| format!("c {major}:* rwm"));
    let rules: Vec<String> = match has_all {
        true => all.collect(),
        false => listed.lines().filter(is_ours).map(str::to_owned).collect(),
    };
    if rules.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(RulesBefore {
        folder: folder.to_owned(),
        inode: fs::metadata(folder)?.ino(),
        rules,
    })
}

/// An instruction of a BPF program.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u8,
    /// The destination register in the low four bits, the source register in the high ones.
    registers: u8,
    offset: i16,
    value: i32,
}

/// The program: returns 0, which refuses, for a character device with one of the major numbers, and 1
/// for every other. The kernel passes a `struct bpf_cgroup_dev_ctx` in register 1.
fn program(majors: &[u32]) -> Vec<Instruction> {
    const LOAD_WORD: u8 = 0x61;
    const AND: u8 = 0x57;
    const JUMP_IF_EQUAL: u8 = 0x15;
    const JUMP_IF_NOT_EQUAL: u8 = 0x55;
    const MOVE: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    /// `BPF_DEVCG_DEV_CHAR`, in the low half of the first member.
    const CHARACTER: i32 = 2;
    let one = |code, registers, offset, value| Instruction {
        code,
        registers,
        offset,
        value,
    };
    let count = i16::try_from(majors.len()).unwrap_or(i16::MAX);
    let mut program = vec![
        one(LOAD_WORD, 0x13, 0, 0),
        one(AND, 0x03, 0, 0xffff),
        // Skips loading and comparing the number.
        one(JUMP_IF_NOT_EQUAL, 0x03, count.saturating_add(1), CHARACTER),
        one(LOAD_WORD, 0x12, 4, 0),
    ];
    for (place, major) in (0i16..).zip(majors) {
        // Jumps past the other comparisons and the two instructions that allow, to those that refuse.
        let over = count.saturating_sub(place).saturating_add(1);
        program.push(one(JUMP_IF_EQUAL, 0x02, over, major.cast_signed()));
    }
    program.extend([one(MOVE, 0, 0, 1), one(EXIT, 0, 0, 0)]);
    program.extend([one(MOVE, 0, 0, 0), one(EXIT, 0, 0, 0)]);
    program
}

/// The start of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
}

/// The start of `union bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
#[derive(Default)]
struct LinkAttributes {
    program: u32,
    target: u32,
    kind: u32,
    flags: u32,
}

fn deny_v2(folder: &Path, majors: &[u32]) -> io::Result<OwnedFd> {
    const PROG_LOAD: libc::c_int = 5;
    const LINK_CREATE: libc::c_int = 28;
    const PROG_TYPE_CGROUP_DEVICE: u32 = 15;
    const CGROUP_DEVICE: u32 = 6;
    let group = File::open(folder)?;
    let program = program(majors);
    let load = LoadAttributes {
        kind: PROG_TYPE_CGROUP_DEVICE,
        count: u32::try_from(program.len()).unwrap_or(0),
        instructions: program.as_ptr().expose_provenance() as u64,
        license: c"GPL".as_ptr().expose_provenance() as u64,
        ..LoadAttributes::default()
    };
    // The kernel gives up checking the program when a signal arrives at this thread.
    let is_interrupted = |loaded: &io::Result<OwnedFd>| matches!(loaded, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    let loaded = (0..1000)
        .map(|_| bpf(PROG_LOAD, &load))
        .find(|loaded| !is_interrupted(loaded))
        .unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))?;
    let number = |descriptor: i32| u32::try_from(descriptor).unwrap_or(u32::MAX);
    let link = LinkAttributes {
        program: number(loaded.as_raw_fd()),
        target: number(group.as_raw_fd()),
        kind: CGROUP_DEVICE,
        flags: 0,
    };
    bpf(LINK_CREATE, &link)
}

/// The start of `union bpf_attr` for `BPF_LINK_DETACH`.
#[repr(C)]
struct DetachAttributes {
    link: u32,
}

/// Removes a link's program at once. Before Linux 5.9 the kernel cannot: closing the descriptor does.
fn detach(link: &OwnedFd) {
    const LINK_DETACH: libc::c_int = 34;
    let attributes = DetachAttributes {
        link: u32::try_from(link.as_raw_fd()).unwrap_or(u32::MAX),
    };
    // An error leaves it to the end of the descriptor.
    let _ = call(LINK_DETACH, &attributes);
}

/// Calls bpf(2) for a command that opens a descriptor.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<OwnedFd> {
    let opened = call(command, attributes)?;
    // SAFETY: the kernel has just created this descriptor, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// Calls bpf(2) with the start of its attributes; the kernel takes the rest as zero.
fn call<T>(command: libc::c_int, attributes: &T) -> io::Result<i32> {
    // SAFETY: the kernel reads that many bytes, and the buffers that they name outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[path = "lever_tests.rs"]
mod tests;
