//! Runs `gpuslice` on the host for queries of the driver, which a static hook cannot make.
//! Touches: a child process, with nothing in its environment, which dies with this one.
//! Law: a container's start never waits for a driver without a time limit.

use anyhow::{Context, bail};
use gpuslice_host::base::child;
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::base::read;
use gpuslice_host::machine::policy::Policy;
use gpuslice_host::slices::records::DeviceBudget;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The command's path. Only root may be able to write to it, as to everything that root runs for a
/// container.
fn command(paths: &HostPaths, policy: &Policy) -> anyhow::Result<PathBuf> {
    let path = policy.command.clone().unwrap_or_else(|| paths.command());
    let file = read::open(&path).with_context(|| format!("cannot run {}", path.display()))?;
    read::only_roots(&file).with_context(|| format!("cannot run {}", path.display()))?;
    Ok(path)
}

/// The command's time limit: a runtime waits for its hook, and the user for the runtime. A loaded
/// driver answers within a second. An unloaded driver takes longer than a container's start should
/// wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// The command has not ended within the time limit.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} has not ended after {seconds} s: the NVIDIA driver hangs or is still loading (check \
     nvidia-smi and journalctl -k --grep 'NVRM|Xid')",
    seconds = PATIENCE.as_secs()
)]
pub(crate) struct Hung(String);

fn run(paths: &HostPaths, policy: &Policy, arguments: &[&str]) -> anyhow::Result<()> {
    let path = command(paths, policy)?;
    let mut command = Command::new(&path);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .current_dir("/");
    let called = || format!("{} {}", path.display(), arguments.join(" "));
    let ended = end_of(command, PATIENCE);
    match ended.with_context(|| format!("cannot run {}", path.display()))? {
        Some((status, _)) if status.success() => Ok(()),
        Some((_, said)) => bail!("{}: {said}", called()),
        None => Err(Hung(called()).into()),
    }
}

/// Returns the command's exit status and its standard error, or `None` if it exceeds the time
/// limit. Then it and all of its descendants are killed.
fn end_of(mut command: Command, patience: Duration) -> io::Result<Option<(ExitStatus, String)>> {
    let start = Instant::now();
    // A command that went on could set a limit after the container's remains were removed.
    child::dies_with_us(&mut command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut said = Vec::new();
    let mut heard = child.stderr.take();
    if let Some(pipe) = &heard {
        fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    let mut pause = Duration::from_micros(100);
    loop {
        let ended = child.try_wait()?;
        if let Some(pipe) = &mut heard {
            // `read_to_end` keeps what it has read when the pipe has no more data.
            match pipe.take(SAID).read_to_end(&mut said) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(read) if read > 0 => {}
                _ => heard = None,
            }
        }
        if let Some(status) = ended {
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            return Ok(Some((status, said)));
        }
        let Some(left) = patience.checked_sub(start.elapsed()) else {
            let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
            // SIGKILL does not end a process that hangs in the kernel, so it is not waited for.
            let _ = killpg(group, Signal::SIGKILL);
            let _ = child.try_wait();
            return Ok(None);
        };
        thread::sleep(pause.min(left));
        pause = pause.saturating_mul(2).min(Duration::from_millis(10));
    }
}

/// The most bytes read from the pipe at a time, and after the command has ended: a pipe's capacity.
const SAID: u64 = 64 << 10;

/// Runs the command that writes the list of GPUs.
///
/// # Errors
/// When the list is not written.
pub(crate) fn list_devices(paths: &HostPaths, policy: &Policy) -> anyhow::Result<()> {
    let file = format!("--write={}", paths.devices().display());
    run(paths, policy, &["devices", &file]).context(
        "no list of GPUs exists, and gpuslice devices --write fails now (gpuslice-devices.service \
         runs it at boot, so that no container waits for the driver)",
    )
}

/// Runs the command that sets the driver's limit for a cgroup.
///
/// # Errors
/// When the limit is not set, for example because the driver does not support limits.
pub(crate) fn limit_driver(
    paths: &HostPaths,
    policy: &Policy,
    cgroup: &Path,
    budget: &DeviceBudget,
) -> anyhow::Result<()> {
    let (uuid, memory) = (budget.uuid.to_string(), budget.memory.get().to_string());
    let cgroup = cgroup.to_string_lossy();
    let arguments = [
        "driver-limit",
        "--cgroup",
        &cgroup,
        "--device",
        &uuid,
        "--memory",
        &memory,
    ];
    run(paths, policy, &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn what_ends_is_heard_whole() {
        let long = "i=0; while [ $i -lt 20000 ]; do echo 123456789; i=$((i+1)); done >&2; exit 3";
        let ended = end_of(script(long), Duration::from_secs(60)).unwrap();
        let (status, said) = ended.unwrap();
        assert_eq!((status.code(), said.len()), (Some(3), 199_999));
    }

    #[test]
    fn what_hangs_is_killed_with_all_that_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let text = "trap '' TERM; sleep 1000 & echo $! $$ >\"$0\"; while :; do wait; done";
        let mut command = script(text);
        command.arg(&pids);
        let start = Instant::now();
        let ended = end_of(command, Duration::from_millis(500)).unwrap();
        assert!(ended.is_none());
        assert!(start.elapsed() < Duration::from_secs(60));
        let pids = std::fs::read_to_string(&pids).unwrap();
        let pids: Vec<i32> = pids
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect();
        assert_eq!(pids.len(), 2);
        let lives = |pid: &i32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        while pids.iter().any(lives) {
            assert!(start.elapsed() < Duration::from_secs(60), "{pids:?} live");
            thread::yield_now();
        }
    }

    #[test]
    fn a_command_dies_with_the_process_that_runs_it() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let mut command = script("echo $$ >\"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 1000");
        command.arg(&pid);
        // SAFETY: the child calls only what a program with several threads may call after a fork, beside
        // the allocator, which glibc makes usable there.
        let child = match unsafe { nix::unistd::fork() }.unwrap() {
            nix::unistd::ForkResult::Parent { child } => child,
            nix::unistd::ForkResult::Child => {
                let _ = end_of(command, Duration::from_secs(60));
                // SAFETY: ends the child without the handlers of its parent.
                unsafe { libc::_exit(0) }
            }
        };
        let start = Instant::now();
        let passes = || start.elapsed() < Duration::from_secs(60);
        while !pid.exists() {
            assert!(passes(), "it has not started");
            thread::yield_now();
        }
        let command = std::fs::read_to_string(&pid).unwrap();
        nix::sys::signal::kill(child, Signal::SIGKILL).unwrap();
        nix::sys::wait::waitpid(child, None).unwrap();
        let stat = format!("/proc/{}/stat", command.trim());
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(passes(), "{command} lives");
            thread::yield_now();
        }
    }
}
