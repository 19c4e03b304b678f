//! Finds the process for which a slice is made: the shell that calls gpuslice, or Slurm's step.
//! Touches: /proc.

use super::format::Format;
use anyhow::{Context, bail};
use gpuslice_host::machine::process::ProcessId;
use std::fs;

/// Finds the owner: the process that an option names, or else the caller's shell or Slurm's step.
///
/// # Errors
/// When there is no such process.
pub(super) fn find(given: Option<i32>, format: Format) -> anyhow::Result<ProcessId> {
    let pid = match (given, format) {
        (Some(pid), _) => pid,
        (None, Format::Slurm) => step().context(
            "there is no slurmstepd above this process: name the slice's owner with --owner",
        )?,
        (None, Format::Shell | Format::Json) => shell(parent()),
    };
    if pid <= 0 {
        bail!("the caller has ended");
    }
    ProcessId::of(pid).with_context(|| format!("there is no process {pid} to own the slice"))
}

fn parent() -> i32 {
    nix::unistd::getppid().as_raw()
}

/// The most processes above this one that are looked at.
const DEPTH: usize = 64;

/// Returns the shell of which a process is a part. A shell forks a part of itself for a pipeline or
/// `$(...)`. That process ends before the shell uses what it has printed.
fn shell(mut pid: i32) -> i32 {
    for _ in 0..DEPTH {
        match Stat::of(pid) {
            Some(stat) if stat.is_part_of_a_shell() => pid = stat.parent,
            _ => break,
        }
    }
    pid
}

/// Returns the daemon of the Slurm step in which this process runs.
fn step() -> Option<i32> {
    let mut pid = parent();
    for _ in 0..DEPTH {
        let stat = Stat::of(pid)?;
        if stat.name.starts_with("slurmstepd") {
            return Some(pid);
        }
        pid = stat.parent;
    }
    None
}

/// A process, as `/proc/PID/stat` shows it.
struct Stat {
    name: String,
    parent: i32,
    flags: u64,
}

/// The kernel's PF_FORKNOEXEC: the process was forked, and has executed no program since.
const FORKED: u64 = 0x40;

/// The names of shells.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "busybox"];

impl Stat {
    fn of(pid: i32) -> Option<Stat> {
        // The kernel cuts a process's name after 15 bytes, even inside a character.
        let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Stat::parse(&String::from_utf8_lossy(&line))
    }

    /// Parses a line. The name in parentheses may contain any character.
    fn parse(line: &str) -> Option<Stat> {
        let (before, after) = line.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let mut fields = after.split_ascii_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let flags = fields.nth(4)?.parse().ok()?;
        Some(Stat {
            name: name.to_owned(),
            parent,
            flags,
        })
    }

    fn is_a_shell(&self) -> bool {
        SHELLS.contains(&self.name.as_str())
    }

    /// Process 1 takes the place of a parent that has ended, but may be the shell of a container.
    fn is_part_of_a_shell(&self) -> bool {
        let has_parent = || self.parent > 1 || Stat::of(1).is_some_and(|first| first.is_a_shell());
        self.flags & FORKED != 0 && self.is_a_shell() && has_parent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_line_of_stat_is_read_whatever_the_process_is_called() {
        let stat = Stat::parse("7 (a ) (b) S 3 7 7 0 -1 4194368 1 2 3").unwrap();
        assert_eq!(
            (stat.name.as_str(), stat.parent, stat.flags),
            ("a ) (b", 3, 4_194_368)
        );
        for line in ["", "7", "7 (a) S", "7 (a) S x", "7 )a( S 3 7 7 0 -1 64"] {
            assert!(Stat::parse(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_process_whose_name_is_cut_inside_a_letter_is_read() {
        let folder = tempfile::tempdir().unwrap();
        // The kernel keeps 15 bytes of this name.
        let program = folder.path().join("éééééééé");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("60").spawn().unwrap();
        let stat = Stat::of(i32::try_from(child.id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(stat.map(|stat| stat.parent), Some(own));
    }

    /// The shell prints its own pid, and the pid of what it has forked for a part of its script.
    #[test]
    fn a_part_of_a_shell_belongs_to_the_shell() {
        let script = "echo $$; (exec 3<&0; sh -c 'echo $PPID' </dev/null; read line <&3)";
        let mut child = Command::new("bash")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        let mut next = || lines.next().unwrap().unwrap().parse::<i32>().unwrap();
        let (whole, part) = (next(), next());
        assert_ne!(whole, part);
        assert_eq!(shell(part), whole);
        assert_eq!(shell(whole), whole);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
