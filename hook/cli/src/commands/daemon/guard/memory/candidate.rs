//! The processes that may be made to give memory back: what they hold, and how they are signalled.
//! Touches: /proc and the promises, through descriptors that were opened before; processes, through
//! pidfds.
//! Law: measuring and signalling allocate nothing and open nothing. A pidfd never refers to another
//! process.

use super::victim::Facts;
use crate::runs::process::Process;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The most processes of one candidate.
pub(super) const MEMBERS: usize = 64;

/// The measurements that are kept, one in each tenth of a second: growth is that of a second.
const KEPT: usize = 10;

/// A process.
#[derive(Debug)]
struct Member {
    pid: u32,
    process: Process,
    /// `/proc/PID/statm`; None if it cannot be read.
    statm: Option<File>,
}

/// The facts with which a candidate begins.
#[derive(Clone, Debug, Default)]
pub(crate) struct Begin {
    /// The slice's name, or the program's.
    pub(crate) name: String,
    /// Whether it is a slice.
    pub(crate) is_slice: bool,
    /// The memory that it was promised.
    pub(crate) promised: u64,
    /// The device memory that it holds, by its ledger or by NVML, whichever is more.
    pub(crate) device: u64,
    /// The host memory that its promise does not count.
    pub(crate) allowance: u64,
    /// Its processes: those that the slice names (its command, the first processes of its containers,
    /// the users of its GPUs) by pid, then their descendants.
    pub(crate) pids: Vec<u32>,
}

/// A slice, or a process outside the slices.
#[derive(Debug)]
pub(crate) struct Candidate {
    begin: Begin,
    promise: Option<File>,
    members: Vec<Member>,
    past: [u64; KEPT],
    measured: usize,
    bytes: u64,
}

impl Member {
    /// Opens a process. `is_it` then checks that the pid still belongs to the listed process.
    fn open(pid: u32, is_it: impl Fn(u32) -> bool) -> Option<Member> {
        let process = Process::open(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
        let statm = File::open(format!("/proc/{pid}/statm")).ok();
        is_it(pid).then_some(Member {
            pid,
            process,
            statm,
        })
    }

    /// The private memory of the process, in pages.
    fn pages(&self) -> u64 {
        let mut text = [0u8; 128];
        let read = self.statm.as_ref();
        let read = read.and_then(|file| file.read_at(&mut text, 0).ok());
        let text = text.get(..read.unwrap_or(0)).unwrap_or_default();
        let mut numbers = text.split(|byte| *byte == b' ').map(number);
        // Total size, resident, and of these shared with files or other processes.
        let resident = numbers.nth(1).flatten().unwrap_or(0);
        let shared = numbers.next().flatten().unwrap_or(0);
        resident.saturating_sub(shared)
    }

    fn has_ended(&self) -> bool {
        self.process.wait_for(Duration::ZERO)
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.trim_ascii().parse().ok()
}

impl Candidate {
    /// Opens a descriptor and the size of each process; `promise` is the file of the slice's promise.
    /// Leaves out a process if `is_it` says that its pid now belongs to another one. Returns None if
    /// no process is left.
    pub(crate) fn open(
        begin: Begin,
        promise: Option<File>,
        is_it: impl Fn(u32) -> bool,
    ) -> Option<Candidate> {
        let pids = begin.pids.iter().take(MEMBERS);
        let members = pids.filter_map(|pid| Member::open(*pid, &is_it));
        let members: Vec<Member> = members.collect();
        (!members.is_empty()).then(|| Candidate {
            promise,
            members,
            past: [0; KEPT],
            measured: 0,
            bytes: begin.device,
            begin,
        })
    }

    /// The number by which it is known: its first process.
    pub(crate) fn id(&self) -> u64 {
        self.members.first().map_or(0, |member| member.pid.into())
    }

    pub(crate) fn name(&self) -> &str {
        &self.begin.name
    }

    /// The first process.
    pub(crate) fn pid(&self) -> u32 {
        self.members.first().map_or(0, |member| member.pid)
    }

    /// Measures what it holds. `page` is the size of a page.
    pub(crate) fn measure(&mut self, page: u64) {
        let pages = self.members.iter().map(Member::pages);
        let host = pages.fold(0, u64::saturating_add).saturating_mul(page);
        let beyond = host.saturating_sub(self.begin.allowance);
        let seen = self.begin.device.saturating_add(beyond);
        let mut head = [0u8; 8];
        let spent = self.promise.as_ref();
        let spent = spent.and_then(|file| file.read_exact_at(&mut head, 0).ok());
        // A tenant writes this value: it counts only up to the promise.
        let spent = spent.map_or(0, |()| u64::from_le_bytes(head));
        self.bytes = seen.max(spent.min(self.begin.promised));
        let place = self.measured % KEPT;
        if let Some(past) = self.past.get_mut(place) {
            *past = self.bytes;
        }
        self.measured = self.measured.saturating_add(1);
    }

    /// Forgets earlier measurements.
    pub(crate) fn begin_again(&mut self) {
        self.measured = 0;
    }

    /// Takes over the measurements of an earlier candidate for the same processes.
    pub(crate) fn continue_from(&mut self, earlier: &Candidate) {
        (self.past, self.measured) = (earlier.past, earlier.measured);
        self.bytes = earlier.bytes.max(self.begin.device);
    }

    /// Its facts by the last measurement.
    pub(crate) fn facts(&self) -> Facts {
        let oldest = match self.measured < KEPT {
            true => 0,
            false => self.measured % KEPT,
        };
        let before = match self.measured {
            0 => self.bytes,
            _ => self.past.get(oldest).copied().unwrap_or(self.bytes),
        };
        let grown = i128::from(self.bytes).saturating_sub(i128::from(before));
        Facts {
            is_slice: self.begin.is_slice,
            bytes: self.bytes,
            promised: self.begin.promised,
            growth: i64::try_from(grown).unwrap_or(0),
            is_gone: self.members.iter().all(Member::has_ended),
        }
    }

    /// Asks all its processes to end. Returns the number of those that got the signal.
    pub(crate) fn terminate(&self) -> usize {
        let sent = self.members.iter();
        sent.filter(|member| member.process.signal(Signal::SIGTERM).is_ok())
            .count()
    }

    /// Kills all its processes. Returns their number.
    pub(crate) fn kill(&self) -> usize {
        let sent = self.members.iter();
        sent.filter(|member| member.process.signal(Signal::SIGKILL).is_ok())
            .count()
    }
}
