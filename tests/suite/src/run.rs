//! Runs a program on a simulated machine, bare or under the preload, and keeps its output.
//! Touches: a child process and its process group.

use crate::place;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a program may take. The slowest client needs three seconds on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A program's output, and how the program ended.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// `exit 0`, `signal 6`.
    pub end: String,
}

impl fmt::Debug for Answer {
    /// As text, so that a failing comparison can be read.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "\n--- {}\n{}--- stderr\n{}---",
            self.end, self.stdout, self.stderr
        )
    }
}

impl Answer {
    /// The standard output of a program that has succeeded and complained of nothing.
    ///
    /// # Panics
    /// When it has not.
    #[must_use]
    pub fn clean(self) -> String {
        assert!(
            self.end == "exit 0" && self.stderr.is_empty(),
            "a clean end was expected: {self:?}"
        );
        self.stdout
    }
}

/// The scenario on the driver branch that `GPUSLICE_SUITE_BRANCH` names (535, 550, 580, 615), if
/// real cards of this kind have that branch. In this way whole test binaries run on each branch.
#[must_use]
pub fn on_branch(scenario: &str) -> String {
    let branch = std::env::var("GPUSLICE_SUITE_BRANCH").unwrap_or_default();
    let cards = ["rtx3090", "h200"];
    match cards.contains(&scenario) && !branch.is_empty() {
        true => format!("{scenario}@{branch}"),
        false => scenario.to_owned(),
    }
}

/// A program to be run.
pub struct Run {
    command: Command,
    preload: Vec<OsString>,
    patience: Duration,
}

impl Run {
    /// A program with an environment of its own. It inherits nothing that could change its output,
    /// and the loader finds the simulated driver.
    #[must_use]
    pub fn new(program: impl AsRef<OsStr>) -> Run {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env(
                "PATH",
                std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
            )
            .env("HOME", "/tmp")
            .env("LANG", "C.UTF-8")
            .env("LC_ALL", "C.UTF-8")
            .env("COLUMNS", "100")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("LD_LIBRARY_PATH", place::sim())
            .stdin(Stdio::null());
        Run {
            command,
            preload: Vec::new(),
            patience: PATIENCE,
        }
    }

    /// An argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Run {
        self.command.arg(argument);
        self
    }

    /// Several arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Run {
        self.command.args(arguments);
        self
    }

    /// An environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// The folder in which it runs.
    #[must_use]
    pub fn folder(mut self, folder: &Path) -> Run {
        self.command.current_dir(folder);
        self
    }

    /// On the simulated machine `scenario`, whose state is kept in `state`. Where the scenario
    /// names a driver branch, the loader finds the libraries of that branch.
    #[must_use]
    pub fn on(self, scenario: &str, state: &Path) -> Run {
        let scenario = &on_branch(scenario);
        let run = self
            .env("GPUSLICE_SIM", scenario)
            .env("GPUSLICE_SIM_STATE", state);
        let Some((_, branch)) = scenario.rsplit_once('@') else {
            return run;
        };
        let branch = branch.split('-').next().unwrap_or(branch);
        let mut path = place::sim_branch(branch).into_os_string();
        path.push(":");
        path.push(place::sim());
        run.env("LD_LIBRARY_PATH", path)
    }

    /// With a library preloaded, after those that were named before.
    #[must_use]
    pub fn preload(mut self, library: impl Into<OsString>) -> Run {
        self.preload.push(library.into());
        self
    }

    /// With the shim preloaded, which changes nothing without a slice.
    #[must_use]
    pub fn with_shim(self) -> Run {
        self.preload(place::shim())
    }

    /// With the slice file that the shim reads.
    #[must_use]
    pub fn slice(self, file: &Path) -> Run {
        self.env("GPUSLICE_CONFIG", file)
    }

    /// Where its standard error goes, for tests that talk with the program while it runs.
    #[must_use]
    pub fn stderr(mut self, to: impl Into<Stdio>) -> Run {
        self.command.stderr(to);
        self
    }

    /// The command, for tests that talk with the program while it runs.
    #[must_use]
    pub fn into_command(mut self) -> Command {
        if !self.preload.is_empty() {
            self.command
                .env("LD_PRELOAD", self.preload.join(OsStr::new(" ")));
        }
        self.command
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it cannot be started, or does not end in time.
    #[must_use]
    pub fn answer(self) -> Answer {
        let patience = self.patience;
        let mut command = self.into_command();
        command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {:?}: {error}", command.get_program()));
        let stdout = reader(child.stdout.take());
        let stderr = reader(child.stderr.take());
        let ended = wait(&mut child, patience);
        let answer = Answer {
            stdout: stdout.join().unwrap_or_default(),
            stderr: stderr.join().unwrap_or_default(),
            end: ended.unwrap_or_else(|| "killed: it did not end in time".into()),
        };
        assert!(
            !answer.end.starts_with("killed"),
            "{command:?} hangs: {answer:?}"
        );
        answer
    }

    /// Gives up on it after this long.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Run {
        self.patience = patience;
        self
    }
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut said = Vec::new();
        // Of a broken pipe the output so far is kept; the comparison shows what is missing.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut said));
        String::from_utf8_lossy(&said).into_owned()
    })
}

/// Waits for the end of a program. If it does not end in time, kills its whole process group.
fn wait(child: &mut Child, patience: Duration) -> Option<String> {
    let start = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "neither exited nor was killed".into(),
            });
        }
        if start.elapsed() > patience {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.wait();
            return None;
        }
        // There is no portable way to wait for a child with a time limit.
        thread::sleep(Duration::from_millis(2));
    }
}

/// A simulated machine of its own: a scenario and a folder for its state.
pub struct Machine {
    scenario: String,
    folder: tempfile::TempDir,
}

impl Machine {
    /// A machine on which nothing has run yet.
    ///
    /// # Panics
    /// When its folder cannot be created.
    #[must_use]
    pub fn new(scenario: &str) -> Machine {
        let folder = tempfile::Builder::new().prefix("gpuslice-suite-").tempdir();
        let folder =
            folder.unwrap_or_else(|error| panic!("no folder for a machine's state: {error}"));
        std::fs::create_dir(folder.path().join("state"))
            .unwrap_or_else(|error| panic!("no folder for a machine's state: {error}"));
        Machine {
            scenario: scenario.into(),
            folder,
        }
    }

    /// Where the simulated driver keeps its state.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// A folder for whatever else the test writes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A program on this machine.
    #[must_use]
    pub fn place(&self, run: Run) -> Run {
        run.on(&self.scenario, &self.state())
    }
}
