//! Counts what a program costs from its start to its end: system calls, page faults, and
//! instructions.
//! Touches: ptrace, in the calling thread.

use nix::sys::personality::{self, Persona};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The kernel's part of a program's start and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Start {
    /// The system calls of its first thread.
    pub system_calls: u64,
    /// Page faults that needed no disk, without those of the fork that it was started by: these
    /// depend on the test's own process.
    pub page_faults: u64,
}

impl Start {
    /// Runs a program to its end.
    ///
    /// # Panics
    /// If it cannot be started or traced, or if it fails.
    #[must_use]
    pub fn count(command: Command) -> Start {
        let (child, before) = traced(command);
        ptrace::setoptions(child, ptrace::Options::PTRACE_O_TRACESYSGOOD).expect("it is traced");
        let (mut stops, mut signal) = (0u64, None);
        loop {
            ptrace::syscall(child, signal.take()).expect("the program goes on");
            match waited(child) {
                (WaitStatus::PtraceSyscall(_), _) => stops = stops.saturating_add(1),
                (WaitStatus::Stopped(_, other), _) => signal = Some(other),
                (ended, page_faults) => {
                    succeeds(&ended);
                    // A call stops at its entry and at its return; exit_group returns never.
                    let system_calls = stops.div_ceil(2);
                    return Start {
                        system_calls,
                        page_faults: page_faults.saturating_sub(before),
                    };
                }
            }
        }
    }
}

/// Runs a program to its end, and counts the instructions that its first thread executes outside of
/// the kernel. Each repetition of a string instruction counts. Valgrind is faster and names the
/// functions, but it does not know the system calls that mount.
///
/// # Panics
/// If the program cannot be started or traced, or if it fails.
#[must_use]
pub fn instructions(command: Command) -> u64 {
    let (child, _) = traced(command);
    let (mut steps, mut signal) = (0u64, None);
    loop {
        ptrace::step(child, signal.take()).expect("the program goes on");
        match waited(child).0 {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => steps = steps.saturating_add(1),
            WaitStatus::Stopped(_, other) => signal = Some(other),
            ended => {
                succeeds(&ended);
                return steps;
            }
        }
    }
}

/// Starts a program that stops at its first instruction, at the same addresses each time. Returns
/// its process and the page faults until then.
fn traced(mut command: Command) -> (Pid, u64) {
    // SAFETY: between fork and exec the child makes two system calls, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            personality::set(Persona::ADDR_NO_RANDOMIZE)?;
            ptrace::traceme().map_err(Into::into)
        });
    }
    #[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
    let child = command.spawn().expect("the program starts");
    let child = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    let (stopped, page_faults) = waited(child);
    assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    (child, page_faults)
}

/// Waits until a program stops or ends. Returns that, and its page faults until then.
fn waited(child: Pid) -> (WaitStatus, u64) {
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both pointers are to live memory of the right types.
    let pid = unsafe { libc::wait4(child.as_raw(), &raw mut status, 0, usage.as_mut_ptr()) };
    assert_eq!(pid, child.as_raw(), "the program is waited for");
    // SAFETY: zeroed, and then written by wait4. Zeroes are a valid value too.
    let usage = unsafe { usage.assume_init() };
    let status = WaitStatus::from_raw(child, status).expect("a known status");
    (status, u64::try_from(usage.ru_minflt).unwrap_or(0))
}

fn succeeds(ended: &WaitStatus) {
    assert!(
        matches!(ended, WaitStatus::Exited(_, 0)),
        "the program ends with success: {ended:?}"
    );
}
