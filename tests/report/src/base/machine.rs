//! What this machine is, and how busy it is.
//! Touches: /proc, /etc/os-release, git.

use super::place;
use super::processor::Reading;
use serde::Serialize;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// The machine of a report.
#[derive(Serialize)]
pub(crate) struct Machine {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) system: String,
    pub(crate) virtual_machine: bool,
    pub(crate) driver: &'static str,
    /// The scheduling of the report itself: `normal`, or what it was started with.
    pub(crate) scheduling: String,
    pub(crate) load_average: String,
    /// Use of the processors by others in the two seconds before the report, in percent.
    pub(crate) others_percent: f64,
    /// The same over the whole report, when it has ended.
    pub(crate) others_percent_during: f64,
}

impl Machine {
    /// Describes this machine. Takes two seconds, in which it measures how busy the machine is.
    pub(crate) fn describe() -> Machine {
        let before = Reading::now();
        // The load is a rate, so it takes time to measure.
        std::thread::sleep(Duration::from_secs(2));
        let load = Reading::now().since(&before);
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
        };
        let model = field("model name").or_else(|| field("CPU part"));
        let flags = field("flags").unwrap_or_default();
        Machine {
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            commit: commit(),
            processor: format!(
                "{} ({})",
                model.unwrap_or_else(|| "unknown".to_owned()),
                std::env::consts::ARCH
            ),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: system(),
            virtual_machine: flags.split(' ').any(|flag| flag == "hypervisor"),
            driver: "simulated: drivers that answer at once, and the simulated driver; no GPU",
            scheduling: scheduling(),
            load_average: read("/proc/loadavg")
                .split(' ')
                .take(3)
                .collect::<Vec<_>>()
                .join(" "),
            others_percent: load.others_percent,
            others_percent_during: 0.0,
        }
    }

    /// Why the numbers of this report are not for publication. None: nothing speaks against it.
    pub(crate) fn warning(&self) -> Option<String> {
        let mut reasons = Vec::new();
        let busy = self.others_percent.max(self.others_percent_during);
        if busy > 5.0 {
            reasons.push(format!(
                "other processes used up to {busy:.0} % of the processors"
            ));
        }
        if self.scheduling != "normal" {
            reasons.push(format!(
                "the report ran with scheduling {}",
                self.scheduling
            ));
        }
        if self.commit.ends_with("changed") {
            reasons.push("the source has changes that are not committed".to_owned());
        }
        (!reasons.is_empty()).then(|| format!("Not for publication: {}.", reasons.join("; ")))
    }

    /// The rows of the table that describes the machine.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let virtual_machine = if self.virtual_machine {
            ", a virtual machine"
        } else {
            ""
        };
        vec![
            ("date", self.date.clone()),
            ("commit", self.commit.clone()),
            (
                "processor",
                format!("{}, {} cores{virtual_machine}", self.processor, self.cores),
            ),
            ("memory", self.memory.clone()),
            ("system", format!("{}, Linux {}", self.system, self.kernel)),
            ("driver", self.driver.to_owned()),
            ("scheduling", self.scheduling.clone()),
            (
                "load",
                format!(
                    "load average {} at the start; others used {:.1} % of the processors before, {:.1} % during the report",
                    self.load_average, self.others_percent, self.others_percent_during
                ),
            ),
        ]
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn commit() -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(place::source())
            .args(words)
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}, changed"),
    }
}

fn memory() -> String {
    let meminfo = read("/proc/meminfo");
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map_or_else(
        || "unknown".to_owned(),
        |kib| format!("{:.1} GiB", kib / 1048576.0),
    )
}

fn system() -> String {
    let release = read("/etc/os-release");
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

fn scheduling() -> String {
    // SAFETY: takes no pointers; 0 is this thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // SAFETY: takes no pointers; 0 is this process.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    match (policy, nice) {
        (libc::SCHED_OTHER, 0) => "normal".to_owned(),
        (libc::SCHED_IDLE, _) => "idle".to_owned(),
        (libc::SCHED_OTHER, nice) => format!("nice {nice}"),
        (policy, _) => format!("policy {policy}"),
    }
}
