//! Queries the driver for the inventory, in a child process that may hang or crash, and dies with us.
//! Touches: one child process, without the preload and without variables that hide devices;
//! standard error, if the driver is slow.
//! Law: every wait is announced to the user and has an end.

use super::cuda::CudaError;
use super::inventory::Inventory;
use super::probe::Answer;
use crate::base::streams::tell;
use gpuslice_host::base::child;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::DeserializeOwned;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time that a driver may take. If no process keeps it loaded (no persistence mode), the first
/// query waits until it has set up every GPU: tens of seconds for eight GPUs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The wait after which the user sees a message.
pub(crate) const QUIET: Duration = Duration::from_secs(5);

/// The advice for a user whose driver hangs.
pub(crate) const LOOK: &str = "see whether nvidia-smi answers, and look for errors of the driver: \
                        journalctl -k --grep 'NVRM|Xid'";

/// The time limits of a query.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// The wait before the first message.
    quiet: Duration,
    /// The total time.
    patience: Duration,
}

const BOUNDS: Bounds = Bounds {
    quiet: QUIET,
    patience: PATIENCE,
};

/// Reasons why there is no inventory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// The driver returned an error.
    #[error("{error}{said}")]
    Driver {
        /// The error.
        error: CudaError,
        /// The text it wrote on standard error, on a new line.
        said: String,
    },
    /// The driver did not answer.
    #[error("the NVIDIA driver did not answer within {} s ({why}); {LOOK}", after.as_secs())]
    Silent {
        /// The time waited.
        after: Duration,
        /// The reason for the query.
        why: &'static str,
    },
    /// The driver crashed the child.
    #[error("the NVIDIA driver crashed during a query ({status}){said}")]
    Crashed {
        /// The child's exit status.
        status: ExitStatus,
        /// The text it wrote, on a new line.
        said: String,
    },
    /// The child could not be started.
    #[error("cannot start a process to ask the NVIDIA driver")]
    Start(#[source] io::Error),
}

/// Variables removed from the child's environment: it must see every device, as the driver lists
/// them.
pub(super) const REMOVED: [&str; 4] = [
    "LD_PRELOAD",
    "GPUSLICE_CONFIG",
    "GPUSLICE_SLICE",
    "CUDA_VISIBLE_DEVICES",
];

/// Queries the inventory, with `vars` added to the environment. `why` is shown to a waiting user.
///
/// # Errors
/// [`AskError`], if there is no list of GPUs.
pub(crate) fn ask(vars: &[(OsString, OsString)], why: &'static str) -> Result<Inventory, AskError> {
    let (answer, said) = child::<Answer>(&["inventory-probe".as_ref()], vars, why)?;
    answer.map_err(|error| AskError::Driver { error, said })
}

/// Like [`ask`], without messages and with a short time limit.
///
/// # Errors
/// As for [`ask`], and when there is no answer in that time.
pub(crate) fn within(
    vars: &[(OsString, OsString)],
    why: &'static str,
    patience: Duration,
) -> Result<Inventory, AskError> {
    let answer: Answer = child_within(&["inventory-probe".as_ref()], vars, why, patience)?;
    answer.map_err(|error| AskError::Driver {
        error,
        said: String::new(),
    })
}

/// Starts gpuslice with these arguments as the child that queries the driver. Returns its answer
/// (the last line of its output) and its standard error, on a new line.
///
/// # Errors
/// When there is no answer.
pub(crate) fn child<T: DeserializeOwned>(
    arguments: &[&OsStr],
    vars: &[(OsString, OsString)],
    why: &'static str,
) -> Result<(T, String), AskError> {
    answer(command(arguments, vars), why, BOUNDS, &tell)
}

/// Like [`child()`], for an optional answer. It shows no messages, and `patience` limits the wait.
///
/// # Errors
/// When there is no answer in that time.
pub(crate) fn child_within<T: DeserializeOwned>(
    arguments: &[&OsStr],
    vars: &[(OsString, OsString)],
    why: &'static str,
    patience: Duration,
) -> Result<T, AskError> {
    Asked::start(arguments, vars)?.answer(why, patience)
}

/// A child that queries the driver while this process does something else.
#[derive(Debug)]
pub(crate) struct Asked {
    child: Child,
    since: Instant,
}

impl Asked {
    /// Starts gpuslice with these arguments as the child that queries the driver.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(
        arguments: &[&OsStr],
        vars: &[(OsString, OsString)],
    ) -> Result<Asked, AskError> {
        Asked::start_command(command(arguments, vars))
    }

    fn start_command(mut command: Command) -> Result<Asked, AskError> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        child::dies_with_us(command.stderr(Stdio::piped()));
        let child = command.spawn().map_err(AskError::Start)?;
        let since = Instant::now();
        Ok(Asked { child, since })
    }

    /// Returns the child's answer. It shows no messages, and `patience` limits the time since the
    /// start.
    ///
    /// # Errors
    /// When there is no answer in that time.
    pub(crate) fn answer<T: DeserializeOwned>(
        self,
        why: &'static str,
        patience: Duration,
    ) -> Result<T, AskError> {
        let bounds = Bounds {
            quiet: patience,
            patience,
        };
        let answer = self.answer_in(why, bounds, &|_| {});
        answer.map(|(answer, _)| answer)
    }

    /// Waits until the child ends or the time limit is reached.
    fn answer_in<T: DeserializeOwned>(
        self,
        why: &'static str,
        bounds: Bounds,
        tell: &dyn Fn(&str),
    ) -> Result<(T, String), AskError> {
        let Asked { mut child, since } = self;
        let Some((answer, said, status)) = hear(&mut child, since, why, bounds, tell) else {
            give_up(child);
            let after = bounds.patience;
            return Err(AskError::Silent { after, why });
        };
        let line = answer.lines().next_back().unwrap_or_default();
        let said = match said.trim() {
            "" => String::new(),
            text => format!(":\n{text}"),
        };
        match serde_json::from_str(line) {
            Ok(answer) if status.success() => Ok((answer, said)),
            _ => Err(AskError::Crashed { status, said }),
        }
    }
}

/// The children that were given up. A child that hangs in the kernel survives its signal.
static GIVEN_UP: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// Kills a child, without waiting for its end. Those that were given up before and have ended are
/// reaped, so that a process that lives long keeps no zombies.
pub(super) fn give_up(mut child: Child) {
    let _ = child.kill();
    let mut all = GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner);
    all.push(child);
    all.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
}

pub(super) fn command(arguments: &[&OsStr], vars: &[(OsString, OsString)]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(arguments)
        .envs(vars.iter().map(|(name, value)| (name, value)));
    for name in REMOVED {
        command.env_remove(OsStr::new(name));
    }
    command
}

/// Runs the child until it ends or the time limit is reached.
fn answer<T: DeserializeOwned>(
    command: Command,
    why: &'static str,
    bounds: Bounds,
    tell: &dyn Fn(&str),
) -> Result<(T, String), AskError> {
    Asked::start_command(command)?.answer_in(why, bounds, tell)
}

/// Returns the child's standard output and error, and its exit status. Returns None if the time
/// limit is reached.
///
/// It uses no threads, because starting a thread makes libc reserve a signal of the process. The
/// program that `gpuslice run` executes in its place must inherit the signals as the caller set
/// them.
fn hear(
    child: &mut Child,
    start: Instant,
    why: &str,
    bounds: Bounds,
    tell: &dyn Fn(&str),
) -> Option<(String, String, ExitStatus)> {
    let mut told = false;
    // Returns the time until the next action is due; None if the time limit is reached.
    let mut left = || {
        let waited = start.elapsed();
        if !told && waited >= bounds.quiet {
            told = true;
            let (waited, end) = (bounds.quiet.as_secs(), bounds.patience.as_secs());
            tell(&format!(
                "waiting for the NVIDIA driver for {waited} s ({why}); giving up after {end} s"
            ));
        }
        let next = if told { bounds.patience } else { bounds.quiet };
        next.checked_sub(waited).filter(|left| !left.is_zero())
    };
    let mut out = Pipe::new(child.stdout.take()?.into());
    let mut err = Pipe::new(child.stderr.take()?.into());
    // The time limit may have passed while this process did something else.
    out.take();
    err.take();
    while out.open || err.open {
        let timeout = PollTimeout::try_from(left()?).unwrap_or(PollTimeout::MAX);
        let mut wanted: Vec<PollFd<'_>> = [&out, &err]
            .iter()
            .filter(|pipe| pipe.open)
            .map(|pipe| PollFd::new(pipe.file.as_fd(), PollFlags::POLLIN))
            .collect();
        match poll(&mut wanted, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
        out.take();
        err.take();
    }
    // A child that has closed both pipes is about to end, unless the driver hangs during its
    // unloading.
    let mut pause = Duration::from_micros(50);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some((out.text(), err.text(), status)),
            Ok(None) => std::thread::sleep(pause.min(left()?)),
            Err(_) => return None,
        }
        pause = pause.saturating_mul(2).min(Duration::from_millis(20));
    }
}

/// One end of a pipe, and the data read from it.
struct Pipe {
    file: File,
    open: bool,
    bytes: Vec<u8>,
}

impl Pipe {
    fn new(descriptor: OwnedFd) -> Pipe {
        // If this fails, reads block until the child writes, and the time limit has no effect.
        let _ = fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        Pipe {
            file: File::from(descriptor),
            open: true,
            bytes: Vec::new(),
        }
    }

    /// Reads the available data.
    fn take(&mut self) {
        if !self.open {
            return;
        }
        // At the end of the available data, `read_to_end` returns an error but keeps the data read
        // so far.
        self.open = match self.file.read_to_end(&mut self.bytes) {
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const SHORT: Bounds = Bounds {
        quiet: Duration::from_millis(50),
        patience: Duration::from_millis(400),
    };

    /// Returns the result of a child that runs this script, and the messages shown during the wait.
    fn script(text: &str, bounds: Bounds) -> (Result<(u32, String), AskError>, Vec<String>) {
        let said = RefCell::new(Vec::new());
        let tell = |line: &str| said.borrow_mut().push(line.to_owned());
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        let answer = answer(command, "a test needs it", bounds, &tell);
        (answer, said.into_inner())
    }

    #[test]
    fn a_driver_that_hangs_is_named_once_and_given_up() {
        // Includes a child that has closed its output, and one that ends only when killed.
        for hangs in [
            "exec sleep 1000",
            "exec >&- 2>&-; exec sleep 1000",
            "trap '' TERM; exec sleep 1000",
        ] {
            let start = Instant::now();
            let (answer, told) = script(hangs, SHORT);
            let error = answer.unwrap_err().to_string();
            assert!(
                error.starts_with("the NVIDIA driver did not answer within 0 s")
                    && error.contains("(a test needs it); see whether nvidia-smi answers"),
                "{error}"
            );
            assert!(start.elapsed() >= SHORT.patience);
            assert!(start.elapsed() < Duration::from_secs(60), "{hangs}");
            let line =
                "waiting for the NVIDIA driver for 0 s (a test needs it); giving up after 0 s";
            assert_eq!(told, [line]);
        }
    }

    #[test]
    fn a_driver_that_is_slow_is_named_and_waited_for() {
        let long = Bounds {
            patience: Duration::from_secs(60),
            ..SHORT
        };
        let (answer, told) = script("sleep 0.3; echo noise; echo 7", long);
        assert_eq!(answer.unwrap(), (7, String::new()));
        assert_eq!(told.len(), 1, "{told:?}");
    }

    #[test]
    fn of_a_driver_that_answers_nothing_is_told() {
        let (answer, told) = script("echo 7", BOUNDS);
        assert_eq!((answer.unwrap().0, told.len()), (7, 0));
        assert_eq!((QUIET.as_secs(), PATIENCE.as_secs()), (5, 120));
    }
}
