//! Waits for processes that are not children of this one, and sends them signals.
//! Touches: /proc, descriptors of processes (pidfd).

use gpuslice_host::machine::process::ProcessId;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// A process that may be another user's.
#[derive(Debug)]
pub(crate) enum Process {
    /// Identified by a pidfd, which can never refer to another process.
    Descriptor(OwnedFd),
    /// Identified by process id and start time, on kernels before 5.3.
    Number(ProcessId),
}

/// The polling interval for a process without a pidfd.
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);

impl Process {
    /// Finds a running process.
    pub(crate) fn open(pid: Pid) -> io::Result<Process> {
        // SAFETY: pidfd_open takes two numbers and no pointer.
        let number = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
        match RawFd::try_from(number) {
            Ok(number) if number >= 0 => {
                // SAFETY: the kernel has just created this descriptor, and no other code owns it.
                let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
                Ok(Process::Descriptor(descriptor))
            }
            _ if Errno::last() == Errno::ESRCH => Err(Errno::ESRCH.into()),
            _ => ProcessId::of(pid.as_raw())
                .map(Process::Number)
                .ok_or_else(|| Errno::ESRCH.into()),
        }
    }

    /// Sends a signal to the process, never to another one with its number. Allocates nothing for a
    /// process with a pidfd.
    ///
    /// # Errors
    /// The kernel's, ESRCH if the process has ended.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        match self {
            Process::Descriptor(descriptor) => {
                // SAFETY: pidfd_send_signal takes numbers, and a null pointer for the usual details.
                let sent = unsafe {
                    libc::syscall(
                        libc::SYS_pidfd_send_signal,
                        descriptor.as_raw_fd(),
                        signal as libc::c_int,
                        std::ptr::null::<libc::siginfo_t>(),
                        0,
                    )
                };
                Errno::result(sent).map(drop)
            }
            Process::Number(process) if process.lives() => kill(Pid::from_raw(process.pid), signal),
            Process::Number(_) => Err(Errno::ESRCH),
        }
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&self) {
        while !self.wait_for(Duration::MAX) {}
    }

    /// Waits for the end of the process, but not longer than this. Returns whether it has ended.
    pub(crate) fn wait_for(&self, time: Duration) -> bool {
        match self {
            Process::Descriptor(descriptor) => {
                let mut wanted = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
                let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::NONE);
                matches!(poll(&mut wanted, timeout), Ok(1..))
            }
            Process::Number(process) => {
                let start = Instant::now();
                while process.lives() {
                    if start.elapsed() >= time {
                        return false;
                    }
                    std::thread::sleep(INTERVAL);
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_has_ended_is_gone_although_nobody_has_reaped_it() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let by_number = Process::Number(ProcessId::of(pid.as_raw()).unwrap());
        let by_descriptor = Process::open(pid).unwrap();
        drop(child.stdin.take());
        by_number.wait();
        by_descriptor.wait();
        assert_eq!(ProcessId::of(pid.as_raw()), None);
        child.wait().unwrap();
        assert!(Process::open(pid).is_err());
    }

    #[test]
    fn a_signal_reaches_the_process_and_no_other() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let process = Process::open(pid).unwrap();
        let start_time = 0;
        let other = Process::Number(ProcessId {
            pid: pid.as_raw(),
            start_time,
        });
        assert_eq!(other.signal(Signal::SIGKILL), Err(Errno::ESRCH));
        assert!(!process.wait_for(Duration::ZERO));
        assert_eq!(process.signal(Signal::SIGKILL), Ok(()));
        child.wait().unwrap();
        assert!(process.wait_for(Duration::ZERO));
        assert_eq!(process.signal(Signal::SIGKILL), Err(Errno::ESRCH));
    }

    #[test]
    fn a_number_that_another_process_has_got_since_is_not_waited_for() {
        let pid = Pid::this().as_raw();
        Process::Number(ProcessId { pid, start_time: 0 }).wait();
    }
}
