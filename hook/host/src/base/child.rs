//! Children that must not outlive this process.
//! Touches: the commands that the caller names.

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the kernel kill a command when this process dies, or the thread that starts it ends. The
/// command's own children are not killed.
pub fn dies_with_us(command: &mut Command) {
    let own = getpid();
    let dies = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // This process may have died before.
        match getppid() == own {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    };
    // SAFETY: the closure makes three system calls, and allocates nothing.
    unsafe { command.pre_exec(dies) };
}
