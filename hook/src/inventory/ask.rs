//! Asks the driver for the inventory, through a child that may hang or crash.
//! Touches: one child process, without the preload and without variables that hide devices.

use super::Inventory;
use super::cuda::CudaError;
use super::probe::Answer;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a driver may take. A cold start of a machine with eight GPUs takes a few seconds.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no inventory.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The driver said so itself.
    #[error(transparent)]
    Driver(#[from] CudaError),
    /// The driver did not answer.
    #[error("the NVIDIA driver does not answer: no list of GPUs after {} s", PATIENCE.as_secs())]
    Silent,
    /// The driver took the child down.
    #[error("the NVIDIA driver failed while it was asked for its GPUs ({status}){said}")]
    Crashed {
        /// How the child ended.
        status: ExitStatus,
        /// What it wrote, on a new line.
        said: String,
    },
    /// The child could not be started.
    #[error("cannot start a process to ask the NVIDIA driver")]
    Start(#[source] std::io::Error),
}

/// Variables that must not reach the child: it is to see every device, as the driver tells it.
const REMOVED: [&str; 3] = ["LD_PRELOAD", "GPUSLICE_CONFIG", "CUDA_VISIBLE_DEVICES"];

/// Asks, with `vars` added to the environment.
///
/// # Errors
/// [`AskError`] says why there is no list.
pub fn ask(vars: &[(OsString, OsString)]) -> Result<Inventory, AskError> {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("inventory-probe")
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
    match serde_json::from_str::<Answer>(line) {
        Ok(answer) if status.success() => Ok(answer?),
        _ => Err(AskError::Crashed {
            status: ExitStatus::from_raw(status.into_raw()),
            said: match said.trim() {
                "" => String::new(),
                text => format!(":\n{text}"),
            },
        }),
    }
}

/// All that the child writes on standard output and error; None when it takes too long.
fn read(child: &mut Child) -> Option<(String, String)> {
    let (mut out, mut err) = (child.stdout.take()?, child.stderr.take()?);
    let (send, receive) = mpsc::channel();
    let to_end = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (send_err, receive_err) = mpsc::channel();
    std::thread::spawn(move || send.send(to_end(&mut out)));
    std::thread::spawn(move || send_err.send(to_end(&mut err)));
    let answer = receive.recv_timeout(PATIENCE).ok()?;
    let said = receive_err.recv_timeout(PATIENCE).ok()?;
    Some((answer, said))
}
