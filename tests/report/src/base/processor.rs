//! The processor time of this machine: all of it, and that of the report.
//! Touches: /proc/stat, the clock, the accounting of this process.

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Processor time since the machine started, in seconds of one core.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    all: f64,
    busy: f64,
    own: f64,
}

/// What others did with the processors while something was measured.
#[derive(Clone, Copy, Serialize, Deserialize, Default)]
pub(crate) struct Load {
    /// The share of all cores that processes outside the report used, in percent.
    pub(crate) others_percent: f64,
}

impl Reading {
    /// Reads the clocks now.
    pub(crate) fn now() -> Reading {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let numbers: Vec<f64> = line
            .split_whitespace()
            .skip(1)
            // user, nice, system, idle, iowait, irq, softirq, steal; the guests' time is in user.
            .take(8)
            .filter_map(|number| number.parse().ok())
            // Linux counts in hundredths of a second.
            .map(|ticks: f64| ticks / 100.0)
            .collect();
        let all: f64 = numbers.iter().sum();
        let idle: f64 = numbers.iter().skip(3).take(2).sum();
        Reading {
            all,
            busy: all - idle,
            own: own(libc::RUSAGE_SELF) + own(libc::RUSAGE_CHILDREN),
        }
    }

    /// The load since an earlier reading.
    pub(crate) fn since(&self, earlier: &Reading) -> Load {
        let all = self.all - earlier.all;
        let others = (self.busy - earlier.busy) - (self.own - earlier.own);
        Load {
            others_percent: match all > 0.0 {
                true => (others / all * 100.0).clamp(0.0, 100.0),
                false => 0.0,
            },
        }
    }
}

impl Load {
    /// Whether others used so much that numbers suffer.
    pub(crate) fn is_busy(self) -> bool {
        self.others_percent > 5.0
    }
}

fn own(whose: libc::c_int) -> f64 {
    // SAFETY: a struct of numbers, of which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct outlives the call.
    unsafe { libc::getrusage(whose, &raw mut usage) };
    [usage.ru_utime, usage.ru_stime]
        .into_iter()
        .map(|time| time.tv_sec as f64 + time.tv_usec as f64 / 1e6)
        .sum()
}

/// The processor time of a process, with that of its children that have ended, in seconds.
pub(crate) fn of_process(pid: u32) -> Result<f64> {
    let id = i32::try_from(pid).context("a process id")?;
    let mut clock = 0;
    // SAFETY: the clock's number outlives the call.
    let code = unsafe { libc::clock_getcpuclockid(id, &raw mut clock) };
    ensure!(code == 0, "process {pid} is gone");
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time outlives the call.
    let code = unsafe { libc::clock_gettime(clock, &raw mut time) };
    ensure!(code == 0, "process {pid} is gone");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // cutime and cstime, in hundredths of a second.
    let ticks = fields.split_whitespace().skip(13).take(2);
    let children: f64 = ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9 + children / 100.0)
}
