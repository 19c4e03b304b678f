//! The private folder of a run: who can enter it, and when it is gone.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use support::{Installation, eventually, start, told};

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("private_dir"));

const SLICED: [&str; 3] = ["--sim=rtx3090", "--memory=8GiB", "--name=test"];

fn folder_of(config: &str) -> PathBuf {
    Path::new(config.trim()).parent().unwrap().to_owned()
}

#[test]
fn a_pipe_ends_with_the_command_although_a_watcher_stays() {
    // The watcher waits for the sleep, which holds no file; the pipe must not wait.
    let mut command = HERE.run(&SLICED, "sleep 5 <&- >&- 2>&- & echo $GPUSLICE_CONFIG");
    let start = Instant::now();
    let (out, _, _) = told(&mut command);
    assert!(start.elapsed() < Duration::from_secs(4));
    assert!(folder_of(&out).exists());
}

#[test]
fn the_slice_file_is_private_and_gone_after_the_command() {
    let script = "echo $GPUSLICE_CONFIG; read line";
    let mut command = HERE.run(&SLICED, script);
    let (mut child, config) = start(command.stdin(Stdio::piped()));
    let folder = folder_of(&config);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(Path::new(&config))), (0o700, 0o600));
    drop(child.stdin.take());
    child.wait().unwrap();
    eventually("removed", || !folder.exists());
}

#[test]
fn the_folder_is_gone_even_when_the_command_is_killed() {
    let mut command = HERE.run(&SLICED, "echo $GPUSLICE_CONFIG; read line");
    let (mut child, config) = start(command.stdin(Stdio::piped()));
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    eventually("removed", || !folder_of(&config).exists());
}

#[test]
fn a_command_that_cannot_be_started_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let mut command = HERE.gpuslice();
    command.env("XDG_RUNTIME_DIR", place.path());
    command
        .arg("run")
        .args(SLICED)
        .args(["--", "no-such-command"]);
    assert_eq!(told(&mut command).2, 127);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_server_left_in_the_background_keeps_its_slice() {
    let script = "sh -c 'read line < $0; cat $GPUSLICE_CONFIG > $0.out' $0 & echo $GPUSLICE_CONFIG";
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = HERE.run(&SLICED, script);
    let (mut child, config) = start(command.arg(&fifo));
    assert!(child.wait().unwrap().success());
    // Long enough for a watcher that watches only the command to remove the folder.
    std::thread::sleep(Duration::from_millis(300));
    fs::write(&fifo, "go\n").unwrap();
    eventually("removed", || !folder_of(&config).exists());
    let seen = fs::read_to_string(place.path().join("fifo.out")).unwrap();
    assert!(seen.contains("\"name\": \"test\""), "{seen}");
}

#[test]
fn the_private_folder_is_in_the_runtime_folder_or_else_in_the_temporary_one() {
    let (runtime, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = HERE.run(&SLICED, "echo $GPUSLICE_CONFIG");
    command.env("TMPDIR", temporary.path());
    let parent = |text: String| folder_of(&text).parent().unwrap().to_owned();
    command.env("XDG_RUNTIME_DIR", runtime.path());
    assert_eq!(parent(told(&mut command).0), runtime.path());
    command.env("XDG_RUNTIME_DIR", "/no/such/folder");
    assert_eq!(parent(told(&mut command).0), temporary.path());
    command.env_remove("XDG_RUNTIME_DIR");
    assert_eq!(parent(told(&mut command).0), temporary.path());
}

#[test]
fn the_watcher_removes_nothing_but_private_folders() {
    let place = tempfile::tempdir().unwrap();
    let (_, err, status) = told(HERE.gpuslice().arg("tidy-up").arg(place.path()));
    assert_eq!(status, 125);
    assert!(err.contains("is not a private folder of ours"), "{err}");
    assert!(place.path().exists());
}
