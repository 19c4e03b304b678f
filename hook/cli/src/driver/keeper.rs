//! A child process that keeps the driver loaded while this process asks it several times.
//! Touches: one child process and its pipes; in the child NVML, standard input and output.
//! Law: the child ends with the process that has started it.

use super::ask::{self, LOOK, PATIENCE, QUIET};
use crate::base::{exit, streams};
use gpuslice_config::words::device::DeviceUuid;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nvml_wrapper::Nvml;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `gpuslice driver-keeper`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The GPUs.
    pub devices: Vec<DeviceUuid>,
}

/// Loads the driver for these GPUs, writes a line, and keeps it loaded until the end of the input.
///
/// # Errors
/// When NVML does not work, or the line cannot be written.
pub(crate) fn main(args: &Args) -> anyhow::Result<u8> {
    let nvml = Nvml::init()?;
    // The driver sets up a GPU only when its handle is taken.
    for device in &args.devices {
        let _ = nvml.device_by_uuid(device.to_string());
    }
    streams::print(b"\n")?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(exit::SUCCESS)
}

/// The child. The driver stays loaded until this is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    child: Option<Child>,
}

/// The driver did not answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the NVIDIA driver did not answer within {} s; {LOOK}", .0.as_secs())]
pub(crate) struct NotLoadedError(Duration);

/// The time limits of the wait for the driver.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    quiet: Duration,
    patience: Duration,
}

impl Keeper {
    /// Waits until the driver has set up these GPUs, and keeps it loaded. A driver that refuses is not
    /// reported: the next query is refused as well, with a reason.
    ///
    /// # Errors
    /// When the driver does not answer.
    pub(crate) fn load(
        devices: &[DeviceUuid],
        vars: &[(OsString, OsString)],
    ) -> Result<Keeper, NotLoadedError> {
        let devices: Vec<OsString> = devices.iter().map(|it| it.to_string().into()).collect();
        let mut arguments = vec![OsStr::new("driver-keeper")];
        arguments.extend(devices.iter().map(OsString::as_os_str));
        let bounds = Bounds {
            quiet: QUIET,
            patience: PATIENCE,
        };
        Keeper::start(ask::command(&arguments, vars), bounds, &streams::tell)
    }

    fn start(
        mut command: Command,
        bounds: Bounds,
        tell: &dyn Fn(&str),
    ) -> Result<Keeper, NotLoadedError> {
        let since = Instant::now();
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut keeper = Keeper {
            child: command.spawn().ok(),
        };
        let Some(answer) = keeper.child.as_mut().and_then(|child| child.stdout.take()) else {
            return Ok(keeper);
        };
        let is_ready = |until: Duration| {
            let left = until.saturating_sub(since.elapsed());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut wanted = [PollFd::new(answer.as_fd(), PollFlags::POLLIN)];
            poll(&mut wanted, timeout) != Ok(0)
        };
        if !is_ready(bounds.quiet) {
            let (waited, end) = (bounds.quiet.as_secs(), bounds.patience.as_secs());
            tell(&format!(
                "waiting for the NVIDIA driver for {waited} s (a limit is changed); giving up after \
                 {end} s"
            ));
            if !is_ready(bounds.patience) {
                return Err(NotLoadedError(bounds.patience));
            }
        }
        Ok(keeper)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            ask::give_up(child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Starts a script as the child. Returns the messages as well.
    fn script(text: &str, patience: Duration) -> (Result<Keeper, NotLoadedError>, Vec<String>) {
        let said = RefCell::new(Vec::new());
        let tell = |line: &str| said.borrow_mut().push(line.to_owned());
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        let quiet = Duration::from_millis(50);
        let keeper = Keeper::start(command, Bounds { quiet, patience }, &tell);
        (keeper, said.into_inner())
    }

    #[test]
    fn the_driver_stays_loaded_after_it_has_answered() {
        let long = Duration::from_secs(60);
        let (keeper, said) = script("sleep 0.3; echo; exec cat", long);
        let line =
            "waiting for the NVIDIA driver for 0 s (a limit is changed); giving up after 60 s";
        assert_eq!(said, [line]);
        let mut keeper = keeper.unwrap();
        let child = keeper.child.as_mut().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        // It ends with the input, so it does not outlive this process.
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        // A driver that refuses is asked again by the next query, which says why.
        assert!(script("exit 1", long).0.is_ok());
    }

    #[test]
    fn a_driver_that_is_not_loaded_in_time_is_given_up() {
        let (keeper, _) = script("exec sleep 1000", Duration::from_millis(400));
        let error = keeper.unwrap_err().to_string();
        let text = "the NVIDIA driver did not answer within 0 s; see whether nvidia-smi answers";
        assert!(error.starts_with(text), "{error}");
    }
}
