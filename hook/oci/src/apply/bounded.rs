//! Runs work that may hang in the kernel, such as on a network file system whose server is gone, in a
//! forked child with a time limit.
//! Touches: a child process; the kernel's calls that end it.
//! Law: the runtime waits for the hook, and for all that holds its standard streams. So the child has
//! none of them, and a child that cannot be killed is left behind.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// Returns the text that `work` returns, or `None` if it has not ended within the time limit.
///
/// # Errors
/// If the child cannot be created.
pub(super) fn text_within(
    patience: Duration,
    work: impl FnOnce() -> String,
) -> io::Result<Option<String>> {
    let start = Instant::now();
    let (answer, end) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&answer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // SAFETY: the hook has one thread. Where tests have several, the child uses what glibc makes usable
    // after a fork.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => answer_with(end, work),
    };
    drop(end);
    let (mut answer, mut text) = (File::from(answer), Vec::new());
    let mut pause = Duration::from_micros(50);
    loop {
        // `read_to_end` keeps what it has read when the pipe has no more data.
        match answer.read_to_end(&mut text) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            ended => {
                let _ = waitpid(child, None);
                ended?;
                return Ok(Some(String::from_utf8_lossy(&text).into_owned()));
            }
        }
        let Some(left) = patience.checked_sub(start.elapsed()) else {
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
            return Ok(None);
        };
        thread::sleep(pause.min(left));
        pause = pause.saturating_mul(2).min(Duration::from_millis(10));
    }
}

/// The child: works, and writes the text into the pipe, the only descriptor that it keeps.
fn answer_with(end: OwnedFd, work: impl FnOnce() -> String) -> ! {
    let detach = || -> nix::Result<()> {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        dup2_stdin(&end)?;
        dup2_stdout(&end)?;
        dup2_stderr(&end)
    };
    if detach().is_ok() {
        drop(end);
        close_from(3);
        let _ = io::stdout().write_all(work().as_bytes());
        let _ = io::stdout().flush();
    }
    // SAFETY: ends the child without the handlers of its parent.
    unsafe { libc::_exit(0) }
}

/// Closes every descriptor from this number on.
fn close_from(first: libc::c_uint) {
    // SAFETY: takes no pointers. The child uses none of these descriptors any more.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if Errno::result(closed).is_err() {
        // Linux before 5.9. The hook opens few.
        for number in 3..256 {
            // SAFETY: as above.
            unsafe { libc::close(number) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_arrives_whole_and_a_hanging_child_is_left() {
        let long = "x".repeat(1 << 20);
        let answer = text_within(Duration::from_secs(60), || long.clone());
        assert_eq!(answer.unwrap(), Some(long));
        let start = Instant::now();
        let hangs = || {
            thread::sleep(Duration::from_secs(1000));
            String::new()
        };
        assert_eq!(text_within(Duration::from_millis(50), hangs).unwrap(), None);
        assert!(start.elapsed() < Duration::from_secs(100));
    }
}
