//! A machine for one test: the programs of this machine, with a `/run`, an `/etc` and processes of
//! its own.
//! Touches: namespaces, and cgroups under the machine's own name.
//! Law: when a `Host` is dropped, or this process dies, all its processes, mounts and files are
//! gone.

use crate::{patience, place};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The time limit of a command on the machine. A thousand starts of the race take half of it.
const LIMIT: Duration = Duration::from_secs(900);

/// The result of a command.
#[derive(Debug, Clone)]
pub struct Done {
    /// The exit status, or 128 plus the signal.
    pub code: i32,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Done {
    /// Converts the output of an ended process.
    #[must_use]
    pub fn from(output: &Output) -> Done {
        use std::os::unix::process::ExitStatusExt;
        let signal = output.status.signal().unwrap_or_default();
        Done {
            code: output.status.code().unwrap_or(128 + signal),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns standard output if the command succeeded.
    ///
    /// # Panics
    /// When the command failed.
    #[track_caller]
    #[expect(
        clippy::must_use_candidate,
        reason = "often only the success is wanted"
    )]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "out: {}\nerr: {}", self.out, self.err);
        self.out
    }
}

/// A machine of its own for one test.
#[derive(Debug)]
pub struct Host {
    process: Child,
    init: u32,
    name: String,
}

impl Host {
    /// Makes a machine with one simulated RTX 3090.
    #[must_use]
    pub fn new() -> Host {
        Host::with("rtx3090")
    }

    /// Makes a machine with these simulated GPUs.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn with(gpus: &str) -> Host {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("gpuslice-{}-{count}", std::process::id());
        let build = place::target().canonicalize().expect("a build folder");
        let mut process = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--propagation", "private"])
            .args(["--mount-proc", "--kill-child"])
            .arg(place::package().join("host.sh"))
            .arg(build)
            .env_clear()
            .env("PATH", PATH)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let said = patience::lines(&mut process, "the machine's process 1");
        assert_eq!(said.next(), "ready", "the machine was not made");
        let id = process.id();
        let children = format!("/proc/{id}/task/{id}/children");
        let children = std::fs::read_to_string(children).expect("its child");
        let init = children.trim().parse().expect("one child");
        let host = Host {
            process,
            init,
            name,
        };
        host.sh(&format!(
            "mkdir -m 777 /run/sim; umask 0; {SIM} --state /run/sim start {gpus} && chmod 666 /run/sim/*;
             if [ -e /run/sim/meminfo ]; then mount --bind /run/sim/meminfo /proc/meminfo; fi
             GPUSLICE_SIM={gpus} GPUSLICE_SIM_STATE=/run/sim gpuslice devices --write
             sed -i '/\"minor\"/d' /run/gpuslice/devices.json"
        ))
        .ok();
        host
    }

    /// Lists the GPUs with their device minor numbers. The hook finds a container's GPU by its
    /// device nodes. A container without a node gets no GPU; containers of these tests have no
    /// node, and use the simulated driver.
    pub fn list_with_minors(&self, gpus: &str) {
        self.sh(&format!(
            "GPUSLICE_SIM={gpus} GPUSLICE_SIM_STATE=/run/sim gpuslice devices --write"
        ))
        .ok();
    }

    /// The machine's name, unique on the machine below. Its cgroups have this name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A command that will run on the machine.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--mount", "--pid", "--target", &self.init.to_string()])
            .args(["--", program])
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", "/root")
            .stdin(Stdio::null());
        command
    }

    /// A command on the machine that is killed at the time limit, so that a test fails instead of
    /// hanging.
    fn limited(&self, program: &str) -> Command {
        let mut command = self.command("timeout");
        let limit = LIMIT.as_secs().to_string();
        command.args(["--foreground", "--signal=KILL", &limit, program]);
        command
    }

    /// Runs a program on the machine.
    ///
    /// # Panics
    /// When there is no such program.
    #[must_use]
    pub fn run(&self, program: &str, arguments: &[&str]) -> Done {
        self.run_with(program, arguments, b"")
    }

    /// Runs a program on the machine with this standard input.
    ///
    /// # Panics
    /// When there is no such program.
    #[must_use]
    pub fn run_with(&self, program: &str, arguments: &[&str], input: &[u8]) -> Done {
        let mut command = self.limited(program);
        command.args(arguments).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("nsenter");
        let mut stdin = child.stdin.take().expect("its input");
        let input = input.to_vec();
        // The program may end before it has read all of its input.
        std::thread::spawn(move || stdin.write_all(&input));
        let what = format!("{program} {}", arguments.join(" "));
        // `timeout` kills the program earlier, so its output is still read.
        let limit = LIMIT + Duration::from_secs(30);
        Done::from(&patience::ended_within(child, &what, limit))
    }

    /// Runs a line of shell on the machine.
    #[must_use]
    pub fn sh(&self, script: &str) -> Done {
        self.run("bash", &["-c", script])
    }

    /// The path of a file of the machine, as this process can open it. No component may be a link.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.init));
        root.join(path.trim_start_matches('/'))
    }

    /// Writes a file on the machine, and creates its folders.
    ///
    /// # Panics
    /// When that fails.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        let folder = path.parent().expect("a folder");
        std::fs::create_dir_all(folder).expect("its folder");
        std::fs::write(path, text).expect("the file");
    }

    /// The names in a folder of the machine; empty if there is no such folder.
    #[must_use]
    pub fn list(&self, path: &str) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let name = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        let mut names: Vec<String> = entries.flatten().map(name).collect();
        names.sort();
        names
    }

    /// Lists every file that was created, changed or removed on this machine since it started, with
    /// size and modification time. Leaves out the folders of the runtimes: `/run` below its top,
    /// `/var/lib`, `/var/log`.
    #[must_use]
    pub fn changes(&self) -> String {
        self.sh(
            "cd /run/changed && find etc usr var opt root home srv tmp \\( -path var/lib -o -path var/log -o -path var/cache -o -path var/tmp \\) -prune -o -type d -printf '%p %y %m %U\\n' -o -printf '%p %y %s %T@ %m %U\\n' 2>/dev/null | sort
             find / -maxdepth 1 -printf '%p %y %m\\n' | sort",
        )
        .out
    }

    /// The mounts of the machine, without those that runtimes make below their own folders. The
    /// tenants' file system is left out, because it is mounted with the first slice and stays.
    #[must_use]
    pub fn mounts(&self) -> Vec<String> {
        let text = std::fs::read_to_string(format!("/proc/{}/mountinfo", self.init));
        let text = text.unwrap_or_default();
        let point = |line: &str| line.split(' ').nth(4).unwrap_or_default().to_owned();
        let mut points: Vec<String> = text.lines().map(point).collect();
        points.retain(|point| point != "/run/gpuslice/tenants");
        points.sort();
        points
    }

    /// Starts a program that keeps running, with its output in a file of the machine.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(&self, program: &str, arguments: &[&str], log: &str) -> Child {
        let log = std::fs::File::create(self.path(log)).expect("its log");
        let again = log.try_clone().expect("its log");
        let mut command = self.command(program);
        command.args(arguments).stdout(log).stderr(again);
        command.spawn().expect("nsenter")
    }

    /// Waits until a condition holds.
    ///
    /// # Panics
    /// When it does not hold within a minute.
    #[track_caller]
    pub fn wait_for(&self, what: &str, mut so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !so() {
            assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
            // Processes of the machine bring the condition about, and no event reports it.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Process 1 ends when its standard input closes, and all other processes end with it.
        drop(self.process.stdin.take());
        let _ = patience::ends(&mut self.process);
        for group in cgroups(&self.name) {
            let _ = remove_tree(&group);
        }
    }
}

/// The cgroups of that name, in every hierarchy.
fn cgroups(name: &str) -> Vec<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let below = std::fs::read_dir(top).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = below.map(|entry| entry.path().join(name)).collect();
    found.push(top.join(name));
    found.retain(|group| group.is_dir());
    found
}

/// Removes a cgroup with the cgroups below it. A cgroup's files cannot be removed, only its
/// folders.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(group)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    std::fs::remove_dir(group)
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SIM: &str = "/run/build/sim/gpuslice-sim";
