//! `gpuslice run` becomes the command, with its signals, exit status and files.

use crate::support::{Installation, eventually, start, told, with_usual_signals};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("process"));

const SLICED: [&str; 3] = ["--sim=rtx3090", "--memory=8GiB", "--name=test"];

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

#[test]
fn the_exit_status_is_the_commands() {
    for (script, status) in [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 125", 125),
        ("exit 255", 255),
        ("kill -TERM $$", 128 + 15),
        ("kill -KILL $$", 128 + 9),
        ("ulimit -c 0; kill -SEGV $$", 128 + 11),
    ] {
        let (out, err, seen) = told(&mut HERE.run(&SLICED, script));
        assert_eq!(
            (out.as_str(), err.as_str(), seen),
            ("", "", status),
            "{script}"
        );
    }
}

#[test]
fn a_command_that_cannot_be_started_is_127_or_126_as_in_a_shell() {
    for (command, status, why) in [
        ("no-such-command", 127, "No such file or directory"),
        ("/etc/passwd", 126, "Permission denied"),
        ("/", 126, "Permission denied"),
    ] {
        let seen = told(HERE.gpuslice().args(["run", "--", command]));
        let message = format!("gpuslice: cannot run {command}: {why}\n");
        assert_eq!(seen, (String::new(), message, status));
    }
}

#[test]
fn the_command_is_the_process_that_was_started() {
    let mut command = HERE.run(&SLICED, "echo $$; read line");
    let (mut child, line) = start(command.stdin(Stdio::piped()));
    assert_eq!(line, child.id().to_string());
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Counts signals, also in a file, and exits with the count. A shell runs its traps between two
/// commands, so it sleeps only briefly. A SIGTERM or the alarm of [`start`] ends it.
const COUNTS: &str =
    "n=0; trap 'n=$((n+1)); echo $n > $0' USR1 INT HUP; trap 'exit $n' TERM; echo ready
    while :; do sleep 0.01; done";

fn has_counted(file: &Path, count: &str) {
    eventually("counted", || {
        fs::read_to_string(file).is_ok_and(|text| text == count)
    });
}

#[test]
fn a_signal_to_gpuslice_reaches_the_command_once() {
    let place = tempfile::tempdir().unwrap();
    let counted = place.path().join("counted");
    let mut command = HERE.run(&SLICED, COUNTS);
    let command = command.arg(&counted);
    let (mut child, _) = start(with_usual_signals(command));
    for (signal, count) in [
        (Signal::SIGUSR1, "1\n"),
        (Signal::SIGINT, "2\n"),
        (Signal::SIGHUP, "3\n"),
    ] {
        kill(pid_of(&child), signal).unwrap();
        has_counted(&counted, count);
    }
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_signal_to_the_process_group_reaches_the_command_once() {
    let place = tempfile::tempdir().unwrap();
    let counted = place.path().join("counted");
    let mut command = HERE.run(&SLICED, COUNTS);
    let command = command.arg(&counted);
    let (mut child, _) = start(with_usual_signals(command).process_group(0));
    let group = Pid::from_raw(-pid_of(&child).as_raw());
    // ^C sends SIGINT to the group. It kills `sleep`, and the shell counts it.
    kill(group, Signal::SIGINT).unwrap();
    has_counted(&counted, "1\n");
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_stopped_command_is_a_stopped_job() {
    let (mut child, _) = start(&mut HERE.run(&SLICED, "echo ready; kill -STOP $$; exit 7"));
    let stat = format!("/proc/{}/stat", child.id());
    eventually("stopped", || {
        fs::read_to_string(&stat).unwrap().contains(") T ")
    });
    kill(pid_of(&child), Signal::SIGCONT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn signals_are_ignored_and_blocked_as_the_caller_left_them() {
    let script = "exec grep -E 'Sig(Blk|Ign)' /proc/self/status";
    let bare = |prefix: &str| {
        told(Command::new("sh").args(["-c", &format!("{prefix}; exec sh -c \"$0\""), script]))
    };
    let gpuslice = HERE.executable();
    for prefix in ["trap '' PIPE USR1", "trap '' CHLD", ":"] {
        let text = format!(
            "{prefix}; exec {} run --sim rtx3090 --memory 8GiB -- sh -c \"$0\"",
            gpuslice.display()
        );
        let mut sliced = Command::new("sh");
        sliced.args(["-c", &text, script]);
        assert_eq!(told(&mut sliced), bare(prefix), "{prefix}");
    }
}

#[test]
fn the_files_are_the_callers_and_no_other() {
    let script = "cat; echo to-err >&2; ls /proc/$$/fd";
    let seen = |command: &mut Command| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"from-in\n").unwrap();
        drop(writer);
        told(command.stdin(reader))
    };
    let sliced = seen(&mut HERE.run(&SLICED, script));
    assert_eq!(sliced, seen(Command::new("sh").args(["-c", script])));
    assert!(sliced.0.starts_with("from-in\n0\n1\n"), "{}", sliced.0);
}
