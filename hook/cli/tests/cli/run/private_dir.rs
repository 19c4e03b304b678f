//! The private folder of a run: its permissions, and its removal.

use crate::support::{Home, Installation, eventually, spawn, start, told};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("private_dir"));

const SLICED: [&str; 3] = ["--sim=rtx3090", "--memory=8GiB", "--name=test"];

fn folder_of(config: &str) -> PathBuf {
    Path::new(config.trim()).parent().unwrap().to_owned()
}

#[test]
fn a_pipe_ends_with_the_command_although_a_watcher_stays() {
    // The watcher waits for the process that reads the fifo, which has no other file open. The pipe
    // must not wait for the watcher.
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = "sh -c 'read line < $0' $0 <&- >&- 2>&- & echo $GPUSLICE_CONFIG";
    let (out, _, _) = told(HERE.run(&SLICED, script).arg(&fifo));
    assert!(folder_of(&out).exists());
    fs::write(&fifo, "go\n").unwrap();
    eventually("removed", || !folder_of(&out).exists());
}

#[test]
fn the_slice_file_is_private_and_gone_after_the_command() {
    let script = "echo $GPUSLICE_CONFIG; read line";
    let mut command = HERE.run(&SLICED, script);
    let (mut child, config) = start(command.stdin(Stdio::piped()));
    let folder = folder_of(&config);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // Everybody may traverse root's folder, but only a caller who knows a name in it can open a
    // file.
    let root = nix::unistd::geteuid().is_root();
    let whole = if root { 0o711 } else { 0o700 };
    assert_eq!((mode(&folder), mode(Path::new(&config))), (whole, 0o600));
    drop(child.stdin.take());
    child.wait().unwrap();
    eventually("removed", || !folder.exists());
}

/// The watcher works in another folder than the command, so a relative path would lead elsewhere.
#[test]
fn a_relative_place_for_temporary_files_is_not_used() {
    let here = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::create_dir(here.path().join("tmp")).unwrap();
    let mut command = HERE.run(&SLICED, "echo $GPUSLICE_CONFIG");
    command.current_dir(here.path());
    command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", "tmp");
    let (config, words, code) = told(&mut command);
    assert_eq!(code, 0, "{words}");
    let place = folder_of(&config).parent().unwrap().to_owned();
    assert_eq!(place, Path::new("/dev/shm"), "{words}");
}

#[test]
fn the_folder_is_gone_even_when_the_command_is_killed() {
    let mut command = HERE.run(&SLICED, "echo $GPUSLICE_CONFIG; read line");
    let (mut child, config) = start(command.stdin(Stdio::piped()));
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    eventually("removed", || !folder_of(&config).exists());
}

/// A program that leaves the folder behind at once, for another mount namespace say, must find the
/// ledger by the watcher. On one processor, a watcher that nobody waits for is late in most runs.
#[test]
fn the_watcher_has_the_ledger_open_before_the_command_starts() {
    on_one_processor();
    let script = r#"while read -r name value; do
            case $name in '"ledger":') path=$value ;; '"ledger_descriptor":') kept=$value ;; esac
        done <"$GPUSLICE_CONFIG"
        path=${path#?} kept=${kept#?}
        [ "${path%??}" -ef "${kept%??}" ] || ls -l "${path%??}" "${kept%??}""#;
    for turn in 0..20 {
        let said = told(&mut HERE.run(&SLICED, script));
        assert_eq!(said, (String::new(), String::new(), 0), "run {turn}");
    }
}

/// Keeps this thread, and the processes that it starts, on one processor.
fn on_one_processor() {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).unwrap();
    let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap());
    let mut one = CpuSet::new();
    one.set(first.unwrap()).unwrap();
    sched_setaffinity(this, &one).unwrap();
}

#[test]
fn a_command_that_cannot_be_started_leaves_nothing() {
    let home = Home::new();
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .arg("run")
        .args(SLICED)
        .args(["--", "no-such-command"]);
    assert_eq!(told(&mut command).2, 127);
    let names = |folder: &Path| -> Vec<_> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names(home.runtime.path()), ["gpuslice"]);
    assert!(names(&home.runtime.path().join("gpuslice")).is_empty());
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
    // This is long enough for a faulty watcher, one that watches only the command, to remove the
    // folder.
    std::thread::sleep(Duration::from_millis(300));
    fs::write(&fifo, "go\n").unwrap();
    eventually("removed", || !folder_of(&config).exists());
    let seen = fs::read_to_string(place.path().join("fifo.out")).unwrap();
    assert!(seen.contains("\"name\": \"test\""), "{seen}");
}

/// Makes a folder that is not on tmpfs.
fn on_disk() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let found = nix::sys::statfs::statfs(folder.path()).unwrap();
    assert_ne!(found.filesystem_type(), nix::sys::statfs::TMPFS_MAGIC);
    folder
}

#[test]
fn the_private_folder_is_in_the_first_usual_place_that_is_on_tmpfs() {
    let tmpfs = || tempfile::tempdir_in("/dev/shm").unwrap();
    let (runtime, temporary, disk) = (tmpfs(), tmpfs(), on_disk());
    let shared = Path::new("/dev/shm");
    let nowhere = Path::new("/no/such/folder");
    for (given, temporary, place) in [
        (runtime.path(), temporary.path(), runtime.path()),
        (nowhere, temporary.path(), temporary.path()),
        (disk.path(), temporary.path(), temporary.path()),
        (disk.path(), disk.path(), shared),
        (nowhere, nowhere, shared),
    ] {
        let mut command = HERE.run(&SLICED, "echo $GPUSLICE_CONFIG");
        command
            .env("XDG_RUNTIME_DIR", given)
            .env("TMPDIR", temporary);
        let (out, err, _) = told(&mut command);
        assert_eq!((folder_of(&out).parent(), err.as_str()), (Some(place), ""));
    }
}

/// Runs a script in a slice of this size where none of the usual places is on tmpfs.
fn run_without_tmpfs(disks: &[tempfile::TempDir; 2], size: &str, script: &str) -> Command {
    without_tmpfs(disks, &["--sim=rtx3090", "--memory", size], script)
}

/// Runs a script by `gpuslice run` where none of the usual places is on tmpfs. Two folders on a
/// disk replace the runtime folder and /dev/shm.
fn without_tmpfs(
    [runtime, shared]: &[tempfile::TempDir; 2],
    options: &[&str],
    script: &str,
) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c"])
        .arg("mount --bind $0 /dev/shm; exec \"$@\"")
        .arg(shared.path())
        .arg(HERE.executable())
        .arg("run")
        .args(options)
        .args(["--", "sh", "-c"])
        .arg(script)
        .env("XDG_RUNTIME_DIR", runtime.path())
        .env("TMPDIR", runtime.path());
    command
}

#[test]
fn without_a_tmpfs_a_run_warns_that_nothing_is_counted() {
    let disks = [on_disk(), on_disk()];
    let script = "grep -c ledger $GPUSLICE_CONFIG";
    let mut command = run_without_tmpfs(&disks, "8GiB", script);
    let message = "gpuslice: warning: neither $XDG_RUNTIME_DIR, $TMPDIR nor /dev/shm is on tmpfs: \
                   what programs allocate is neither counted nor refused (--strict refuses to start it)\n";
    assert_eq!(
        told(&mut command),
        ("0\n".to_owned(), message.to_owned(), 1)
    );
}

#[test]
fn without_a_tmpfs_a_dry_run_refuses_the_mount_of_meminfo_as_the_start_does() {
    let disks = [on_disk(), on_disk()];
    let options = ["--sim=gb10", "--memory=8GiB", "--meminfo=mount"];
    for more in [&[][..], &["--dry-run"]] {
        let mut command = without_tmpfs(&disks, &[&options, more].concat(), "true");
        let message =
            "gpuslice: --meminfo mount requires a tmpfs: $XDG_RUNTIME_DIR, $TMPDIR or /dev/shm\n";
        let ran = told(&mut command);
        assert_eq!(ran, (String::new(), message.to_owned(), 125), "{more:?}");
    }
}

#[test]
fn without_a_tmpfs_a_run_inside_stays_in_the_slice() {
    let disks = [on_disk(), on_disk()];
    let script = "echo $GPUSLICE_CONFIG; $0 run -- sh -c 'echo $GPUSLICE_CONFIG'";
    let mut command = run_without_tmpfs(&disks, "20GiB", script);
    let (out, err, status) = told(command.arg(HERE.executable()));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((lines.len(), status), (2, 0), "{err}");
    assert_eq!(lines[0], lines[1]);
    let warning = "nor /dev/shm is on tmpfs: what programs allocate is neither counted nor refused";
    assert_eq!(err.matches(warning).count(), 2, "{err}");
}

#[test]
fn the_watcher_removes_nothing_but_what_it_has_made() {
    let place = tempfile::tempdir().unwrap();
    let own = |name| {
        let folder = place.path().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    };
    let own_pid = std::process::id().to_string();
    let tidies = |folder: &Path, user: &str| {
        let (_, err, status) = told(HERE.gpuslice().arg("tidy-up").arg(folder).arg(user));
        assert_eq!(status, 125);
        err
    };
    let other = own("notes");
    let err = tidies(&other, &own_pid);
    assert!(err.contains("is not a private folder of gpuslice"), "{err}");
    // A user's own folder that happens to have such a name.
    let same = own("gpuslice-notes");
    let err = tidies(&same, &own_pid);
    assert!(err.contains("cannot make"), "{err}");
    assert!(other.exists() && same.exists());
    // The process that wanted the folder is gone.
    let new = place.path().join("gpuslice-new");
    let err = tidies(&new, "1");
    assert!(err.contains("is not the caller"), "{err}");
    assert!(!new.exists());
}

/// The shell stands for `gpuslice run`, whose command removes the folder before its watcher has run
/// again.
#[test]
fn a_command_that_removes_its_folder_at_once_leaves_no_link() {
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("links/team-1");
    fs::create_dir(place.path().join("links")).unwrap();
    symlink(place.path().join("gpuslice-x/slice.json"), &link).unwrap();
    let script = "cd $1 && mkfifo pipe && { $0 tidy-up $1/gpuslice-x $$ <pipe >/dev/null & } &&
        exec 3>pipe && wait $! && rm -r gpuslice-x && printf 'e%s\\0' $2 >&3";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(HERE.executable());
    let (_, err, status) = told(command.arg(place.path()).arg(&link));
    assert_eq!((err.as_str(), status), ("", 0));
    eventually("the link is gone", || !link.is_symlink());
    assert_eq!(fs::read_dir(place.path().join("links")).unwrap().count(), 0);
}

#[test]
fn a_run_that_is_killed_while_it_starts_leaves_no_folder() {
    let runtime = tempfile::tempdir_in("/dev/shm").unwrap();
    // The mode of the folder in which root's runs are.
    fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let left = || {
        let entries = fs::read_dir(runtime.path()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("gpuslice-")).count()
    };
    for turn in 0..40u64 {
        let mut command = HERE.run(&SLICED, "read line");
        command
            .env("XDG_RUNTIME_DIR", runtime.path())
            .stdin(Stdio::piped());
        let mut child = spawn(&mut command);
        // In every other turn the run is killed as soon as the folder exists, else at an arbitrary
        // moment before.
        while turn % 2 == 0 && left() == 0 {
            assert_eq!(child.try_wait().unwrap(), None);
        }
        if turn % 2 != 0 {
            std::thread::sleep(Duration::from_micros(turn * 100));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        eventually("removed", || left() == 0);
    }
}
