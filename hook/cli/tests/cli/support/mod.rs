//! Builds the installation that the tests run: gpuslice beside libgpuslice.so and the simulator.
//! Touches: cargo's folder for test files, /dev/shm; reads what `make` has built.

pub(crate) mod cached;
pub(crate) mod machine;
pub(crate) mod member;
pub(crate) mod terminal;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// An installation whose gpuslice was built for this test.
pub(crate) struct Installation {
    /// The folder of the executable.
    pub(crate) folder: PathBuf,
}

impl Installation {
    /// Makes an installation. `name` separates tests that run at once.
    pub(crate) fn new(name: &str) -> Installation {
        let built = built();
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // An earlier run may have left a folder, perhaps of another gpuslice.
        let _ = fs::remove_dir_all(&root);
        let folder = root.join("release");
        fs::create_dir_all(&folder).unwrap();
        // A link, not a copy: a freshly written file cannot be executed while a child of another
        // test still has it open for writing.
        fs::hard_link(env!("CARGO_BIN_EXE_gpuslice"), folder.join("gpuslice")).unwrap();
        for (from, to) in [
            ("release/libgpuslice.so", "release/libgpuslice.so"),
            ("sim", "sim"),
        ] {
            let from = built.join(from);
            assert!(
                from.exists(),
                "run `make` first: there is no {}",
                from.display()
            );
            symlink(from, root.join(to)).unwrap();
        }
        Installation { folder }
    }

    /// The executable.
    pub(crate) fn executable(&self) -> PathBuf {
        self.folder.join("gpuslice")
    }

    /// gpuslice, with an environment that says nothing about GPUs.
    pub(crate) fn gpuslice(&self) -> Command {
        let mut command = Command::new(self.executable());
        for name in VARIABLES {
            command.env_remove(name);
        }
        command
    }

    /// `gpuslice run` of a shell script, with these options.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.gpuslice();
        command
            .arg("run")
            .args(options)
            .args(["--", "sh", "-c", script]);
        command
    }
}

/// A runtime folder and a state folder without slices of other tests.
pub(crate) struct Home {
    pub(crate) runtime: TempDir,
    pub(crate) state: TempDir,
}

impl Home {
    /// Makes new folders on tmpfs.
    pub(crate) fn new() -> Home {
        let folder = || tempfile::tempdir_in("/dev/shm").unwrap();
        Home {
            runtime: folder(),
            state: folder(),
        }
    }

    /// Makes a command use these folders.
    pub(crate) fn of<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .env("XDG_STATE_HOME", self.state.path())
    }
}

/// What would change an answer.
const VARIABLES: [&str; 14] = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "GPUSLICE_CONFIG",
    "GPUSLICE_LOG",
    "GPUSLICE_LOG_FILE",
    "GPUSLICE_SIM",
    "GPUSLICE_SIM_STATE",
    "GPUSLICE_SIM_FAULTS",
    "COLUMNS",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "NO_COLOR",
];

/// The folder of what `make` has built.
pub(crate) fn built() -> PathBuf {
    let given = std::env::var_os("GPUSLICE_TARGET").map(PathBuf::from);
    given.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
}

/// The arguments with which this test binary runs one ignored test of a module, as a child.
pub(crate) fn only(module: &str, test: &str) -> [String; 4] {
    let (_, module) = module.split_once("::").unwrap();
    let options = ["--exact", "--ignored", "--nocapture"].map(str::to_owned);
    let [exact, ignored, nocapture] = options;
    [format!("{module}::{test}"), exact, ignored, nocapture]
}

/// The time limit of a program: far longer than any of them needs, also on a busy machine.
const SECONDS: u32 = 120;

/// Lets the kernel end a program by SIGALRM if it still runs then. So a test whose program hangs
/// fails instead of hanging, too.
fn limited(command: &mut Command) -> &mut Command {
    let limit = || {
        // SAFETY: takes no pointers.
        unsafe { libc::alarm(SECONDS) };
        Ok(())
    };
    // SAFETY: alarm(2) may be called between fork and exec.
    unsafe { command.pre_exec(limit) }
}

/// Starts a program that is killed if it hangs.
pub(crate) fn spawn(command: &mut Command) -> Child {
    limited(command).spawn().unwrap()
}

/// Starts a script that prints a line when it is ready, and returns that line.
pub(crate) fn start(command: &mut Command) -> (Child, String) {
    let mut child = spawn(command.stdout(Stdio::piped()));
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

/// Gives a command the default signal handlers. The caller of the tests may ignore some signals
/// (nohup, a background job), and a program that inherits this cannot be interrupted.
pub(crate) fn with_usual_signals(command: &mut Command) -> &mut Command {
    use nix::sys::signal::{SigHandler, Signal, signal};
    use std::os::unix::process::CommandExt;
    let usual = || {
        for one in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGPIPE] {
            // SAFETY: no handler is installed.
            unsafe { signal(one, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe { command.pre_exec(usual) }
}

/// Runs a program to its end. Returns standard output and error as text, and the exit status as a
/// shell reports it.
pub(crate) fn told(command: &mut Command) -> (String, String, i32) {
    let output = limited(command).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), status(&output))
}

fn status(output: &Output) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let signal = || output.status.signal().unwrap();
    output.status.code().unwrap_or_else(|| signal() | 128)
}

/// Waits until a condition holds, and fails after a minute.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        // Other processes bring the condition about, and no event reports it.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processor time that a process has used.
pub(crate) fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: u64 = [11, 12]
        .map(|field: usize| fields[field].parse::<u64>().unwrap())
        .iter()
        .sum();
    // Linux counts in hundredths of a second.
    Duration::from_millis(ticks.saturating_mul(10))
}
