//! Children that end: at their time limit, with this process, or when a signal ends the report.
//! Touches: process groups.

use super::interrupt;
use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Lets a child lead a group of its own, and end with the thread that starts it.
pub(crate) fn bound(command: &mut Command) -> &mut Command {
    let die = || {
        // SAFETY: prctl takes no pointers here, and may be called between fork and exec.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    command.process_group(0);
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(die) }
}

/// Runs a program to its end. Returns its standard output if it succeeds, and else an error with
/// what it has written to standard error.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<String> {
    let what = command.get_program().to_string_lossy().into_owned();
    let what = what.rsplit('/').next().unwrap_or_default().to_owned();
    bound(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command
        .spawn()
        .with_context(|| format!("cannot start {what}"))?;
    let done = finished(child, limit).with_context(|| what.clone())?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        // The last lines, without a panic's hint about backtraces.
        let lines = said.lines().filter(|line| !line.starts_with("note: "));
        let mut last: Vec<&str> = lines.rev().take(4).collect();
        last.reverse();
        bail!("{what} failed ({}): {}", done.status, last.join("; "));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Waits for a child of [`bound`], and kills its group at the time limit or at a signal.
pub(crate) fn finished(child: Child, limit: Duration) -> Result<Output> {
    let group = i32::try_from(child.id()).context("a process id")?;
    let start = Instant::now();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let mut end = Ok(());
    loop {
        match receiver.recv_timeout(Duration::from_millis(100)) {
            Ok(output) => return end.and(output.context("its output cannot be read")),
            Err(RecvTimeoutError::Disconnected) => bail!("its end was not seen"),
            Err(RecvTimeoutError::Timeout) if end.is_err() => {}
            Err(RecvTimeoutError::Timeout) => {
                end = interrupt::check();
                if end.is_ok() && start.elapsed() > limit {
                    end = Err(anyhow::anyhow!("not finished after {} s", limit.as_secs()));
                }
                if end.is_err() {
                    kill(group);
                }
            }
        }
    }
}

fn kill(group: i32) {
    // SAFETY: takes no pointers. The group's leader was not waited for, so its number is not reused.
    unsafe { libc::killpg(group, libc::SIGKILL) };
}

/// Makes this process the parent of what its children leave behind.
pub(crate) fn adopt() {
    // SAFETY: takes no pointers. Where it fails, orphans go to process 1 as usual.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Waits for what children have left behind, such as the watcher of a run, and kills what is still
/// there after a moment. No child may be waited for elsewhere meanwhile.
pub(crate) fn end_orphans() {
    let start = Instant::now();
    let patience = match interrupt::check() {
        Ok(()) => Duration::from_secs(5),
        Err(_) => Duration::ZERO,
    };
    loop {
        // SAFETY: no status is written to a null pointer.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } {
            0 => {}
            pid if pid > 0 => continue,
            _ => return,
        }
        if start.elapsed() > patience {
            for orphan in children() {
                // SAFETY: takes no pointers. A child that was not waited for keeps its number.
                unsafe { libc::kill(orphan, libc::SIGKILL) };
            }
        }
        if start.elapsed() > patience.saturating_add(Duration::from_secs(10)) {
            return;
        }
        // Several may be left, and no event reports the end of any of them.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The children of all threads.
fn children() -> Vec<libc::pid_t> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let listed = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let all: Vec<String> = listed.collect();
    let pids = all.iter().flat_map(|text| text.split_whitespace());
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// A process that works until it is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Result<Running> {
        let what = command.get_program().to_string_lossy().into_owned();
        let child = bound(command).spawn();
        Ok(Running(
            child.with_context(|| format!("cannot start {what}"))?,
        ))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.0.id()) {
            kill(group);
        }
        // It was killed, so it ends.
        let _ = self.0.wait();
    }
}
