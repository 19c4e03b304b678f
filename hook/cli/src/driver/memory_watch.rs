//! The memory in use on each GPU, asked often: NVML is loaded once, in a child that may hang.
//! Touches: one child process and its pipes; in the child NVML, standard input and output.
//! Law: an answer is never waited for longer than the caller allows.

use super::nvml::uuid_of;
use crate::base::streams;
use gpuslice_config::words::device::DeviceKind;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nvml_wrapper::Nvml;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The memory in use by uuid. GPUs for which NVML reports none are missing.
pub(crate) type Used = BTreeMap<String, u64>;

/// Answers each line of standard input with one line: `uuid=bytes`, separated by blanks. Ends with
/// the input.
///
/// # Errors
/// When NVML does not work, or an answer cannot be written.
pub(crate) fn main() -> anyhow::Result<u8> {
    let nvml = Nvml::init()?;
    let count = nvml.device_count()?;
    let devices = (0..count).filter_map(|index| {
        let device = nvml.device_by_index(index).ok()?;
        let uuid = uuid_of(&device, DeviceKind::Gpu)?;
        Some((uuid.to_string(), device))
    });
    let devices: Vec<_> = devices.collect();
    for line in io::stdin().lock().lines() {
        line?;
        let mut answer = String::new();
        for (uuid, device) in &devices {
            if let Ok(memory) = device.memory_info() {
                let _ = write!(answer, "{uuid}={} ", memory.used);
            }
        }
        answer.push('\n');
        streams::print(answer.as_bytes())?;
    }
    Ok(crate::base::exit::SUCCESS)
}

/// The child.
#[derive(Debug)]
pub(crate) struct MemoryWatch {
    child: Child,
    questions: ChildStdin,
    answers: ChildStdout,
    /// What was read of the next answer.
    partial: Vec<u8>,
    /// The time of a question without an answer.
    asked: Option<Instant>,
}

/// The child does not answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the NVIDIA driver does not report the memory in use")]
pub(crate) struct SilentError;

impl MemoryWatch {
    /// Starts the child.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start() -> io::Result<MemoryWatch> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("driver-memory")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        for name in super::ask::REMOVED {
            command.env_remove(name);
        }
        let mut child = command.spawn()?;
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let questions = child.stdin.take().ok_or_else(gone)?;
        let answers = child.stdout.take().ok_or_else(gone)?;
        fcntl(&answers, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        fcntl(&questions, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(MemoryWatch {
            child,
            questions,
            answers,
            partial: Vec::new(),
            asked: None,
        })
    }

    /// Asks, and waits for the answer for up to `wait`. Returns None if it has not come yet; the next
    /// call waits on for it.
    ///
    /// # Errors
    /// When the child has ended, or has not answered for `patience`.
    pub(crate) fn ask(
        &mut self,
        wait: Duration,
        patience: Duration,
    ) -> Result<Option<Used>, SilentError> {
        if self.asked.is_none() {
            self.questions.write_all(b"\n").map_err(|_| SilentError)?;
            self.asked = Some(Instant::now());
        }
        let mut wanted = [PollFd::new(self.answers.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut wanted, timeout);
        let mut part = [0; 4096];
        match self.answers.read(&mut part) {
            Ok(0) => return Err(SilentError),
            Ok(read) => self
                .partial
                .extend_from_slice(part.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(SilentError),
        }
        let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') else {
            let is_silent = self.asked.is_some_and(|asked| asked.elapsed() > patience);
            return if is_silent {
                Err(SilentError)
            } else {
                Ok(None)
            };
        };
        let used = parse(self.partial.get(..end).unwrap_or_default());
        self.partial.clear();
        self.asked = None;
        Ok(Some(used))
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        // A child that hangs in the kernel survives the signal; its end is not waited for.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

fn parse(line: &[u8]) -> Used {
    let text = String::from_utf8_lossy(line);
    let pairs = text.split_ascii_whitespace();
    let pairs = pairs.filter_map(|pair| {
        let (uuid, used) = pair.split_once('=')?;
        Some((uuid.to_owned(), used.parse().ok()?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_memory_of_each_gpu() {
        let used = parse(b"GPU-1=5 GPU-2=7 nonsense GPU-3=x");
        let expected = [("GPU-1".to_owned(), 5), ("GPU-2".to_owned(), 7)];
        assert_eq!(used, BTreeMap::from(expected));
        assert!(parse(b"").is_empty());
    }
}
