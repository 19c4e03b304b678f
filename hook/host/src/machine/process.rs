//! Process identity: a pid and a start time, which together are never reused until the next boot.
//! Touches: /proc.
//! Law: a pid means nothing in another pid namespace. A process that cannot be seen is not
//! considered dead.

use crate::base::read;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// A process of this machine, as this process's own /proc shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// Its pid.
    pub pid: i32,
    /// Its start time, in ticks since boot.
    pub start_time: u64,
}

impl ProcessId {
    /// Finds a live process; `None` if there is no such process. A zombie counts as ended.
    #[must_use]
    pub fn of(pid: i32) -> Option<ProcessId> {
        let stat = stat_of(pid).ok().filter(|stat| !stat.has_ended())?;
        let start_time = stat.start_time;
        Some(ProcessId { pid, start_time })
    }

    /// Whether it is still alive.
    #[must_use]
    pub fn lives(&self) -> bool {
        ProcessId::of(self.pid) == Some(*self)
    }
}

/// A container's first process. Its record is read from other pid and time namespaces, and after a
/// reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitProcess {
    /// Its pid, in the pid namespace of the /proc that it was found in.
    pub pid: i32,
    /// Its start time, in ticks since boot, in the initial time namespace.
    #[serde(rename = "starttime")]
    pub start_time: u64,
    /// The inode of that pid namespace; 0: unknown.
    #[serde(default)]
    pub pid_namespace: u64,
    /// Half of the kernel's boot id; 0: unknown.
    #[serde(default)]
    pub boot: u64,
}

/// Whether a process is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It is alive.
    Lives,
    /// It has ended.
    Ended,
    /// It is in a pid namespace that cannot be seen from here.
    Unseen,
}

/// The properties of the /proc that we read, as in [`InitProcess`].
#[derive(Clone, Copy, Debug)]
struct ProcView {
    pid_namespace: u64,
    boot: u64,
    /// The ticks by which our time namespace is ahead of the initial one.
    ahead: i64,
}

/// The inode of the initial pid namespace, in which every process of the machine is visible.
const INITIAL: u64 = 0xEFFF_FFFC;

fn here() -> ProcView {
    static HERE: OnceLock<ProcView> = OnceLock::new();
    *HERE.get_or_init(|| {
        let text = |path: &str| {
            let text = read::file(&PathBuf::from(path), 4096).unwrap_or_default();
            String::from_utf8_lossy(&text).into_owned()
        };
        let boot = text("/proc/sys/kernel/random/boot_id").replace('-', "");
        let half = boot.get(..16).map(|half| u64::from_str_radix(half, 16));
        ProcView {
            pid_namespace: namespace_of_proc(&text("/proc/self/status")),
            boot: half.and_then(Result::ok).unwrap_or(0),
            ahead: ahead(&text("/proc/self/timens_offsets")),
        }
    })
}

/// The pid namespace that /proc was mounted for. At createContainer that is the host's and not
/// ours.
fn namespace_of_proc(status: &str) -> u64 {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // One pid for each namespace, from that of /proc down to ours.
    let of = match numbers.map_or(0, |all| all.split_ascii_whitespace().count()) {
        1 => "self",
        _ => "1",
    };
    std::fs::metadata(format!("/proc/{of}/ns/pid")).map_or(0, |facts| facts.ino())
}

/// The offset of the clock that start times use, in ticks of 10 ms.
fn ahead(offsets: &str) -> i64 {
    let line = offsets
        .lines()
        .find_map(|line| line.strip_prefix("boottime"));
    let mut numbers = line.unwrap_or("").split_ascii_whitespace();
    let mut next = || numbers.next().and_then(|number| number.parse::<i64>().ok());
    let (seconds, nanoseconds) = (next().unwrap_or(0), next().unwrap_or(0));
    let ticks = nanoseconds.checked_div(10_000_000).unwrap_or(0);
    seconds.saturating_mul(100).saturating_add(ticks)
}

/// A process's entry in /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// `R`, `S`, `Z`, ...
    pub state: u8,
    /// Its parent's pid.
    pub parent: i32,
    /// Its threads. A main thread that has ended counts until the process is waited for.
    pub threads: u64,
    /// Its start time.
    pub start_time: u64,
}

impl ProcStat {
    /// Whether it has ended, even if its parent has not waited for it yet. A process whose main
    /// thread has ended is shown as a zombie while its other threads run and hold its memory.
    fn has_ended(self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

/// Parses `/proc/PID/stat`.
#[must_use]
pub fn parse(stat: &[u8]) -> Option<ProcStat> {
    // The name may contain spaces and parentheses; no later field does.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end..)?.get(2..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
    Some(ProcStat {
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}

fn stat_of(pid: i32) -> io::Result<ProcStat> {
    let text = read::file(&PathBuf::from(format!("/proc/{pid}/stat")), 4096)?;
    parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

impl InitProcess {
    /// Finds a live process.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn of(pid: i32) -> io::Result<InitProcess> {
        let here = here();
        Ok(InitProcess {
            pid,
            start_time: stat_of(pid)?
                .start_time
                .saturating_add_signed(here.ahead.saturating_neg()),
            pid_namespace: here.pid_namespace,
            boot: here.boot,
        })
    }

    /// The parent of this process, by its pid on the host. In the container's pid namespace
    /// `getppid` would return another.
    ///
    /// # Errors
    /// When /proc is not the host's.
    pub fn parent() -> io::Result<InitProcess> {
        let text = read::file(&PathBuf::from("/proc/self/stat"), 4096)?;
        let facts = parse(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        InitProcess::of(facts.parent)
    }

    /// Whether the process may still be alive. A process that cannot be seen counts as alive.
    #[must_use]
    pub fn lives(&self) -> bool {
        self.life() != Life::Ended
    }

    /// Whether the process is still alive. A zombie counts as ended: it holds nothing any more.
    #[must_use]
    pub fn life(&self) -> Life {
        self.life_from(here())
    }

    fn life_from(&self, here: ProcView) -> Life {
        let differs = |one: u64, other: u64| one != 0 && other != 0 && one != other;
        if differs(self.boot, here.boot) {
            return Life::Ended;
        }
        if differs(self.pid_namespace, here.pid_namespace) {
            let ended = here.pid_namespace == INITIAL && !is_populated(self.pid_namespace);
            return if ended { Life::Ended } else { Life::Unseen };
        }
        let same = |facts: ProcStat| {
            let seen = facts
                .start_time
                .saturating_add_signed(here.ahead.saturating_neg());
            seen.abs_diff(self.start_time) <= ROUNDING
        };
        match stat_of(self.pid).is_ok_and(|stat| same(stat) && !stat.has_ended()) {
            true => Life::Lives,
            false => Life::Ended,
        }
    }

    /// The time since its start; `None` if it ran before the last boot, or the clock cannot be read.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        let here = here();
        let text = read::file(&PathBuf::from("/proc/uptime"), 4096).ok()?;
        let text = String::from_utf8(text).ok()?;
        let (seconds, hundredths) = text.split_ascii_whitespace().next()?.split_once('.')?;
        let [seconds, hundredths] = [seconds, hundredths].map(|part| part.parse::<u64>().ok());
        let now = seconds?.checked_mul(100)?.checked_add(hundredths?)?;
        let now = now.checked_add_signed(here.ahead.checked_neg()?)?;
        let ticks = now.checked_sub(self.start_time)?;
        let is_of_this_boot = self.boot != 0 && self.boot == here.boot;
        is_of_this_boot.then(|| Duration::from_millis(ticks.saturating_mul(10)))
    }

    /// Whether both refer to one process.
    #[must_use]
    pub fn is(&self, other: &InitProcess) -> bool {
        self.pid == other.pid
            && self.pid_namespace == other.pid_namespace
            && self.start_time.abs_diff(other.start_time) <= ROUNDING
    }
}

/// Ticks by which a start time may differ, because a time namespace rounds at another offset.
const ROUNDING: u64 = 1;

/// Whether a pid namespace has a process, as seen from the initial one. Returns true in doubt.
fn is_populated(namespace: u64) -> bool {
    let Ok(listed) = std::fs::read_dir("/proc") else {
        return true;
    };
    let pids = listed.flatten().filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    });
    for entry in pids {
        match std::fs::metadata(entry.path().join("ns/pid")) {
            Ok(facts) if facts.ino() == namespace => return true,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
