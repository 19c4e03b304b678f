//! Asks the driver for the inventory, through a child that may hang or crash.
//! Touches: one child process, without the preload and without variables that hide devices.

use super::Inventory;
use super::cuda::CudaError;
use super::probe::Answer;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::DeserializeOwned;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a driver may take. A cold start of a machine with eight GPUs takes a few seconds.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no inventory.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The driver said so itself.
    #[error("{error}{said}")]
    Driver {
        /// What it said.
        error: CudaError,
        /// What it wrote on standard error, on a new line.
        said: String,
    },
    /// The driver did not answer.
    #[error("the NVIDIA driver does not answer: no answer after {} s", PATIENCE.as_secs())]
    Silent,
    /// The driver took the child down.
    #[error("the NVIDIA driver failed while it was asked ({status}){said}")]
    Crashed {
        /// How the child ended.
        status: ExitStatus,
        /// What it wrote, on a new line.
        said: String,
    },
    /// The child could not be started.
    #[error("cannot start a process to ask the NVIDIA driver")]
    Start(#[source] io::Error),
}

/// Variables that must not reach the child: it is to see every device, as the driver tells it.
const REMOVED: [&str; 4] = [
    "LD_PRELOAD",
    "GPUSLICE_CONFIG",
    "GPUSLICE_SLICE",
    "CUDA_VISIBLE_DEVICES",
];

/// Asks, with `vars` added to the environment.
///
/// # Errors
/// [`AskError`] says why there is no list.
pub fn ask(vars: &[(OsString, OsString)]) -> Result<Inventory, AskError> {
    let (answer, said) = child::<Answer>(&["inventory-probe".as_ref()], vars)?;
    answer.map_err(|error| AskError::Driver { error, said })
}

/// Starts gpuslice with these arguments as the child that talks to the driver. Its answer, the
/// last line of its output, and what it wrote on standard error, on a new line.
///
/// # Errors
/// When there is no answer.
pub fn child<T: DeserializeOwned>(
    arguments: &[&OsStr],
    vars: &[(OsString, OsString)],
) -> Result<(T, String), AskError> {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .envs(vars.iter().map(|(name, value)| (name, value)));
    for name in REMOVED {
        command.env_remove(OsStr::new(name));
    }
    let mut child = command.spawn().map_err(AskError::Start)?;
    let Some((answer, said)) = read(&mut child) else {
        // A driver that hangs in the kernel cannot be killed; it is not waited for either.
        let _ = child.kill();
        let _ = child.try_wait();
        return Err(AskError::Silent);
    };
    let status = child.wait().map_err(AskError::Start)?;
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

/// All that the child writes on standard output and error; None when it takes too long.
///
/// Without threads: starting one makes libc take a signal of the process for itself, and the
/// command that `gpuslice run` becomes must find the signals as the caller left them.
fn read(child: &mut Child) -> Option<(String, String)> {
    let deadline = Instant::now().checked_add(PATIENCE)?;
    let mut out = Pipe::new(child.stdout.take()?.into());
    let mut err = Pipe::new(child.stderr.take()?.into());
    while out.open || err.open {
        let left = deadline.checked_duration_since(Instant::now())?;
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
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
    Some((out.text(), err.text()))
}

/// One end of a pipe, and what came through it.
struct Pipe {
    file: File,
    open: bool,
    bytes: Vec<u8>,
}

impl Pipe {
    fn new(descriptor: OwnedFd) -> Pipe {
        // Should this fail, a read waits for the child instead of the clock: no worse than
        // having no limit.
        let _ = fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        Pipe {
            file: File::from(descriptor),
            open: true,
            bytes: Vec::new(),
        }
    }

    /// Takes what there is.
    fn take(&mut self) {
        if !self.open {
            return;
        }
        // `read_to_end` keeps what it has read when it stops for want of more.
        self.open = match self.file.read_to_end(&mut self.bytes) {
            Ok(_) => false,
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        };
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}
