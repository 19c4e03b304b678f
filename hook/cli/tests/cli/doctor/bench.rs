//! A simulated machine, processes in slices on it, and the answer of `gpuslice doctor`.
//! Touches: /dev/shm, children that end with their handles.

use crate::support::machine::Machine;
use crate::support::{Home, Installation, eventually, spawn, told};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;

pub(super) static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("doctor"));

/// A program that uses the GPU, prints its process id, and waits.
pub(super) const GPU: &str = "\
import ctypes, os, time
cu = ctypes.CDLL('libcuda.so.1')
def use():
    context, place = ctypes.c_void_p(), ctypes.c_uint64()
    cu.cuInit(0)
    cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cu.cuCtxSetCurrent(context)
    return cu.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(1 << 20))
def wait():
    print(os.getpid(), flush=True)
    time.sleep(1000)
";

/// The whole of [`GPU`], run at once.
pub(super) fn uses_gpu() -> String {
    format!("{GPU}use()\nwait()\n")
}

/// A process with all that it has started, which end with this handle.
pub(super) struct Running {
    child: Child,
    /// The process that printed its id.
    pub(super) pid: u32,
}

impl Running {
    /// Whether a process belongs to it, by its process group.
    pub(super) fn has(&self, pid: u32) -> bool {
        let pid = Pid::from_raw(i32::try_from(pid).unwrap());
        let group = nix::unistd::getpgid(Some(pid));
        group.is_ok_and(|group| group.as_raw().cast_unsigned() == self.child.id())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Starts a command in a process group of its own, which prints the id of a process.
pub(super) fn start(command: &mut Command) -> Running {
    let command = command.process_group(0).stdin(Stdio::null());
    let mut child = spawn(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let number = line.split_whitespace().next().unwrap_or_default();
    let pid = number.parse();
    let pid = pid.unwrap_or_else(|_| panic!("no process id: {line:?} {command:?}"));
    Running { child, pid }
}

/// The name of a process, as the kernel has it.
fn name(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

/// What doctor says.
pub(super) struct Said {
    pub(super) json: Value,
    /// The first line of the text.
    pub(super) verdict: String,
    pub(super) text: String,
    pub(super) status: i32,
}

impl Said {
    /// The codes, with their severity.
    pub(super) fn codes(&self) -> Vec<(&str, &str)> {
        let findings = self.json["findings"].as_array().unwrap().iter();
        findings
            .map(|one| {
                (
                    one["code"].as_str().unwrap(),
                    one["severity"].as_str().unwrap(),
                )
            })
            .collect()
    }

    /// The cause is first, and breaks the slice.
    pub(super) fn is_broken_by(&self, code: &str) {
        assert_eq!(
            self.codes().first(),
            Some(&(code, "error")),
            "{}",
            self.text
        );
        assert_eq!(self.json["in_force"], false, "{}", self.text);
        assert_eq!(self.status, 1, "{}", self.text);
        assert!(
            self.verdict.contains(" NOT ") || self.verdict.contains("is in no slice"),
            "{}",
            self.text
        );
    }

    /// The finding is first, and does not break the slice.
    pub(super) fn is_warned_of(&self, code: &str) {
        assert_eq!(
            self.codes().first(),
            Some(&(code, "warning")),
            "{}\n{}",
            self.text,
            self.json
        );
        assert_eq!(self.json["in_force"], true, "{}", self.text);
        assert_eq!(self.status, 0, "{}", self.text);
    }

    /// There is no finding.
    pub(super) fn is_healthy(&self) {
        assert_eq!(self.codes(), [], "{}", self.text);
        assert_eq!(
            (&self.json["in_force"], self.status),
            (&Value::Bool(true), 0)
        );
    }
}

/// Asks doctor, as text and as JSON.
pub(super) fn asked(mut command: impl FnMut() -> Command) -> Said {
    let (text, err, status) = told(&mut command());
    assert_eq!(err, "", "{text}");
    let (json, _, same) = told(command().arg("--json"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["schema"], same),
        (&Value::from(1), status),
        "{text}{json}"
    );
    // Each finding says what to do, in one sentence without an end.
    for finding in json["findings"].as_array().unwrap() {
        let (sentence, fix) = (finding["sentence"].as_str(), finding["fix"].as_str());
        assert!(
            sentence.is_some_and(|it| it.len() > 20 && !it.ends_with('.')),
            "{finding}"
        );
        assert!(
            fix.is_some_and(|it| it.len() > 10 && !it.ends_with('.')),
            "{finding}"
        );
    }
    Said {
        verdict: text.lines().next().unwrap_or_default().to_owned(),
        json,
        text,
        status,
    }
}

/// A machine with slices.
pub(super) struct Bench {
    pub(super) machine: Machine,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::of("rtx3090")
    }

    pub(super) fn of(sim: &str) -> Bench {
        Bench {
            machine: Machine::new(&HERE, sim),
        }
    }

    /// Starts a shell script in a slice of 8 GiB, which prints the id of a process that has or will
    /// have this name.
    pub(super) fn script(&self, options: &[&str], script: &str, program: &str) -> Running {
        let options = [&["--memory=8GiB", "--name=llama"], options].concat();
        let running = start(&mut self.machine.run(&options, script));
        eventually(program, || name(running.pid) == program);
        running
    }

    /// Starts a Python program in a slice with these options.
    pub(super) fn python(&self, options: &[&str], program: &str) -> Running {
        start(
            &mut self
                .machine
                .run_command(options, &["python3", "-c", program]),
        )
    }

    /// Starts a program of the slice by these words behind `gpuslice run`.
    pub(super) fn words(&self, options: &[&str], words: &[&str]) -> Running {
        start(&mut self.machine.run_command(options, words))
    }

    /// Asks doctor on this machine.
    pub(super) fn doctor(&self, words: &[&str]) -> Said {
        asked(|| doctor(&self.machine.home, words))
    }

    pub(super) fn about(&self, running: &Running) -> Said {
        self.doctor(&[&running.pid.to_string()])
    }
}

/// `gpuslice doctor` with these words.
pub(super) fn doctor(home: &Home, words: &[&str]) -> Command {
    let mut command = HERE.gpuslice();
    command.arg("doctor").args(words);
    home.of(&mut command);
    command
}

/// A folder that other users can enter.
pub(super) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    mode(folder.path(), 0o755);
    folder
}

pub(super) fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Builds a C program that prints its process id and waits.
pub(super) fn program(folder: &Path, compiler: &str, options: &[&str]) -> PathBuf {
    const SOURCE: &str = "#include <stdio.h>\n#include <unistd.h>\n\
        int main(void) { printf(\"%d\\n\", (int) getpid()); fflush(stdout); sleep(1000); return 0; }";
    built(folder, compiler, options, SOURCE)
}

/// Builds a C program.
pub(super) fn built(folder: &Path, compiler: &str, options: &[&str], source: &str) -> PathBuf {
    let (file, program) = (folder.join("a.c"), folder.join("program"));
    fs::write(&file, source).unwrap();
    let mut cc = Command::new(compiler);
    cc.args(options).arg("-o").args([&program, &file]);
    assert_eq!(told(&mut cc), (String::new(), String::new(), 0));
    program
}

/// An installation whose files a test can change, and that other users can use: a folder with
/// gpuslice, a copy of the library, and the simulator.
pub(super) fn copied() -> (TempDir, PathBuf) {
    let root = folder();
    let release = root.path().join("release");
    fs::create_dir(&release).unwrap();
    let copy = |from: &Path, to: &Path| {
        let copied = Command::new("cp").arg("-rL").args([from, to]).status();
        assert!(copied.unwrap().success());
    };
    copy(&HERE.executable(), &release);
    copy(&HERE.folder.join("libgpuslice.so"), &release);
    copy(&HERE.folder.with_file_name("sim"), root.path());
    (root, release)
}

/// `gpuslice run` of another installation, in a home of this machine.
pub(super) fn run_by(bench: &Bench, release: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(release.join("gpuslice"));
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "GPUSLICE_CONFIG",
        "GPUSLICE_SIM",
    ] {
        command.env_remove(name);
    }
    bench.machine.home.of(&mut command);
    command.env("GPUSLICE_SIM_STATE", bench.machine.state.path());
    command.args([
        "run",
        "--sim=rtx3090",
        "--memory=8GiB",
        "--name=llama",
        "--",
    ]);
    command.args(words);
    command
}

/// Whether the test may mount and change users.
pub(super) fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        eprintln!("not run: only root can make this set-up");
    }
    is_root
}
