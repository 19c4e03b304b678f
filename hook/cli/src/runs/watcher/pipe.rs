//! Writes to a pipe whose reader may have ended.
//! Touches: the pipe, the calling thread's signal mask.

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use std::io::{self, Write};
use std::ptr;

/// Writes all bytes to a pipe. The end of its reader is an error here, and SIGPIPE does not end this
/// process: `gpuslice run` does not ignore the signal, because its command would inherit that.
///
/// # Errors
/// When the bytes cannot be written.
pub(super) fn write_all(pipe: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGPIPE);
    let mut former = SigSet::empty();
    pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut former))?;
    let written = pipe.write_all(bytes);
    let is_broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if written.as_ref().is_err_and(is_broken) && !former.contains(Signal::SIGPIPE) {
        let no_time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the set and the time are valid; no information about the signal is asked for.
        unsafe { libc::sigtimedwait(set.as_ref(), ptr::null_mut(), &raw const no_time) };
    }
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&former), None)?;
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_a_reader_ends_no_process() {
        // A process of its own has SIGPIPE as a command inherits it, and one thread.
        // SAFETY: the child calls only functions that are safe in a signal handler.
        let child = match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Parent { child } => child,
            nix::unistd::ForkResult::Child => {
                let code = written_to_nobody();
                // SAFETY: takes a number only.
                unsafe { libc::_exit(code) }
            }
        };
        let status = nix::sys::wait::waitpid(child, None).unwrap();
        assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
    }

    fn written_to_nobody() -> i32 {
        // SAFETY: no handler is set.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let Ok((reader, mut writer)) = io::pipe() else {
            return 1;
        };
        drop(reader);
        let written = write_all(&mut writer, b"x");
        i32::from(!written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
    }
}
