//! A host for runs: a mount namespace whose /run, /dev/shm and state folders are its own, with
//! a simulated card.
//! Touches: namespaces, child processes. Needs root.
//! Law: whatever a fault leaves behind is in this namespace, so that it is seen and removed.

use super::super::row::{Fault, Outcome, right};
use super::life::{self, Judge};
use super::slice::files;
use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Run};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The folders that a host has for itself.
const OWN: [&str; 5] = ["/run", "/dev/shm", "/var/log", "/var/lib", "/mnt"];
/// The state of its simulated machine.
pub(crate) const STATE: &str = "/var/lib/sim";
/// The programs before a command, see [`super::trace::trace`].
pub(crate) const EXECS: usize = 1;

/// A host, and a process that keeps its namespace.
pub(crate) struct Host {
    keeper: Child,
    namespace: PathBuf,
    scenario: String,
    /// The files of an idle host on which slices have run.
    files: BTreeSet<PathBuf>,
}

impl Host {
    /// A host with an RTX 3090, on which one slice has run.
    pub(crate) fn new() -> Host {
        Host::with("rtx3090")
    }

    /// A host with the GPUs of this scenario.
    pub(crate) fn with(scenario: &str) -> Host {
        let mounts = OWN.map(|folder| format!("mount -t tmpfs none {folder}"));
        let script = format!(
            "{} && mkdir {STATE} && echo ready && exec cat",
            mounts.join(" && ")
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        command
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut keeper = command.spawn().expect("unshare");
        let mut line = String::new();
        let mut said = BufReader::new(keeper.stdout.take().expect("a pipe"));
        said.read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n", "the host was not made");
        let namespace = std::fs::read_link(format!("/proc/{}/ns/mnt", keeper.id()));
        let namespace = namespace.expect("a mount namespace");
        let scenario = scenario.to_owned();
        let mut host = Host {
            keeper,
            namespace,
            scenario,
            files: BTreeSet::new(),
        };
        let run = host.slice("8GiB", &["true"]).answer();
        assert_eq!(
            (run.end.as_str(), run.stderr.as_str()),
            ("exit 0", ""),
            "{run:?}"
        );
        host.is_idle().expect("an idle host");
        host.files = host.listed();
        host
    }

    /// A program on this host, which knows its simulated machine.
    pub(crate) fn run(&self, program: impl AsRef<std::ffi::OsStr>) -> Run {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.keeper.id());
        let run = Run::new("nsenter").arg(namespace).arg("--").arg(program);
        run.env("GPUSLICE_SIM_STATE", STATE)
            .folder("/".as_ref())
            .patience(PATIENCE)
    }

    /// gpuslice with these words.
    pub(crate) fn gpuslice(&self, words: &[&str]) -> Run {
        self.run(place::gpuslice()).args(words)
    }

    /// The slices that `gpuslice status` shows.
    pub(crate) fn status(&self) -> Outcome<Answer> {
        succeeds(self.gpuslice(&["status", "--json"]))
    }

    /// `gpuslice run` of a command in a slice of this size.
    pub(crate) fn slice(&self, memory: &str, command: &[&str]) -> Run {
        let memory = format!("--memory={memory}");
        let run = self.gpuslice(&["run", "--sim", &self.scenario, &memory, "--"]);
        run.args(command)
    }

    /// `gpuslice run` of a program that lives once in a slice of 8 GiB.
    pub(crate) fn life(&self, judge: Judge) -> Run {
        let program = life::program("life").display().to_string();
        self.slice("8GiB", &[&program, judge.word(), &(8u64 << 30).to_string()])
    }

    /// A path on this host.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.keeper.id()))
    }

    /// The files that an idle host does not have.
    pub(crate) fn new_files(&self) -> Vec<PathBuf> {
        let history = self.path("/var/log/gpuslice/history");
        let listed = self.listed();
        // Past runs are kept there on purpose, for `gpuslice history`.
        let new = listed.difference(&self.files);
        new.filter(|path| !path.starts_with(&history))
            .cloned()
            .collect()
    }

    fn listed(&self) -> BTreeSet<PathBuf> {
        OWN.iter()
            .flat_map(|folder| files(&self.path(folder)))
            .collect()
    }

    /// The processes of this host but its keeper, with their command lines.
    pub(crate) fn processes(&self) -> Vec<(i32, String)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let is_here = std::fs::read_link(entry.path().join("ns/mnt"));
            if is_here.is_ok_and(|found| found == self.namespace)
                && pid != self.keeper.id().cast_signed()
            {
                let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
            }
        }
        found
    }

    /// Waits until no process is left but `daemons`.
    pub(crate) fn is_quiet(&self, daemons: &[i32]) -> Outcome {
        let start = Instant::now();
        loop {
            let mut left = self.processes();
            left.retain(|(pid, _)| !daemons.contains(pid));
            if left.is_empty() {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(Fault::Leak(format!("processes: {left:?}")));
            }
            // The end of another process's children cannot be waited for.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until no process is left.
    pub(crate) fn is_idle(&self) -> Outcome {
        self.is_quiet(&[])
    }

    /// Asserts that no process is left, that `gpuslice gc` finds nothing that it cannot remove,
    /// and that no file is left afterwards.
    pub(crate) fn is_clean(&self) -> Outcome {
        self.is_idle()?;
        let collected = succeeds(self.gpuslice(&["gc"]))?;
        let shown = self.status()?;
        let shown: serde_json::Value = serde_json::from_str(&shown.stdout)
            .map_err(|error| Fault::Wrong(format!("status --json: {error}")))?;
        let slices = shown["slices"].as_array().map_or(usize::MAX, Vec::len);
        right(slices == 0, || format!("slices are left: {shown}"))?;
        let left = self.new_files();
        match left.is_empty() {
            true => Ok(()),
            false => Err(Fault::Leak(format!("files: {left:?} after {collected:?}"))),
        }
    }

    /// Asserts that the host is clean, and that the whole card can be promised again.
    pub(crate) fn is_as_new(&self) -> Outcome {
        self.is_clean()?;
        self.promises_all()
    }

    /// Asserts that the whole card can be promised, and that no process is left afterwards.
    pub(crate) fn promises_all(&self) -> Outcome {
        let whole = succeeds(self.slice("23GiB", &["true"]))?;
        right(whole.stderr.is_empty(), || format!("{whole:?}"))?;
        self.is_idle()
    }
}

/// Runs a command that has to succeed.
pub(crate) fn succeeds(run: Run) -> Outcome<Answer> {
    let answer = ends(run)?;
    right(answer.end == "exit 0", || format!("{answer:?}"))?;
    Ok(answer)
}

/// Runs a command that has to end.
pub(crate) fn ends(run: Run) -> Outcome<Answer> {
    let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.answer()));
    answer.map_err(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        Fault::Hang(said.unwrap_or_else(|| "a command does not end".into()))
    })
}

impl Drop for Host {
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            // SAFETY: takes numbers only. The process is in this namespace, which is the test's own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
