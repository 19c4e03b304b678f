//! `gpuslice run` is the command: its signals, its exit status, its files. And what it leaves.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]
mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use support::{Installation, eventually, told};

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("run"));

const SLICED: [&str; 3] = ["--sim=rtx3090", "--memory=8GiB", "--name=test"];

fn folder_of(config: &str) -> PathBuf {
    Path::new(config.trim()).parent().unwrap().to_owned()
}

/// Starts a script that prints a line when it is ready, and returns that line.
fn start(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let out = child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

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

#[test]
fn a_signal_to_gpuslice_reaches_the_command_once() {
    let script = "n=0; trap 'n=$((n+1))' USR1 INT HUP; trap 'exit $n' TERM; echo ready
        while :; do sleep 0.01; done";
    let (mut child, _) = start(&mut HERE.run(&SLICED, script));
    for signal in [Signal::SIGUSR1, Signal::SIGINT, Signal::SIGHUP] {
        kill(pid_of(&child), signal).unwrap();
        // A shell runs a trap between two commands; two signals of one kind would be one.
        std::thread::sleep(Duration::from_millis(100));
    }
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_signal_to_the_process_group_reaches_the_command_once() {
    let script = "n=0; trap 'n=$((n+1))' INT; trap 'exit $n' TERM; echo ready
        while :; do sleep 0.01; done";
    let mut command = HERE.run(&SLICED, script);
    let (mut child, _) = start(command.process_group(0));
    let group = Pid::from_raw(-pid_of(&child).as_raw());
    // ^C: SIGINT to the group. The sleep dies of it, the shell counts it.
    kill(group, Signal::SIGINT).unwrap();
    std::thread::sleep(Duration::from_millis(100));
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

#[test]
fn the_library_comes_first_and_the_log_options_are_passed_on() {
    let options = ["--log=info", "--log-file=here.log"];
    let script =
        "echo $LD_PRELOAD; echo $GPUSLICE_LOG $GPUSLICE_LOG_FILE; echo ${GPUSLICE_CONFIG-none}";
    let mut command = HERE.run(&options, script);
    let place = tempfile::tempdir().unwrap();
    command
        .current_dir(place.path())
        .env("LD_PRELOAD", "libc.so.6");
    let library = HERE.folder.join("libgpuslice.so");
    assert_eq!(
        told(&mut command),
        (
            format!(
                "{}:libc.so.6\ninfo {}/here.log\nnone\n",
                library.display(),
                place.path().display()
            ),
            String::new(),
            0
        )
    );
}

#[test]
fn a_bare_run_has_only_the_simulator() {
    let script = "echo ${LD_PRELOAD-none} ${GPUSLICE_CONFIG-none} $GPUSLICE_SIM $LD_LIBRARY_PATH; ls $GPUSLICE_SIM_STATE/..";
    let mut command = HERE.run(&["--bare", "--sim=h200"], script);
    command.env("LD_PRELOAD", HERE.folder.join("libgpuslice.so"));
    command
        .env("LD_LIBRARY_PATH", "/opt/lib")
        .env("GPUSLICE_CONFIG", "/no/such/slice");
    let sim = HERE.folder.with_file_name("sim");
    let expected = format!("none none h200 {}:/opt/lib\nsim\n", sim.display());
    assert_eq!(told(&mut command), (expected, String::new(), 0));
}

#[test]
fn runs_that_name_one_state_share_it_and_unified_memory_is_read_there() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("shared/machine");
    let script = "echo $GPUSLICE_SIM_STATE; cat $GPUSLICE_CONFIG";
    for (machine, meminfo) in [("gb10", true), ("rtx3090", false)] {
        let sim = format!("--sim={machine}");
        let mut command = HERE.run(&[&sim, "--memory=8GiB"], script);
        command
            .current_dir(place.path())
            .env("GPUSLICE_SIM_STATE", "shared/machine");
        let (out, err, status) = told(&mut command);
        assert_eq!((err.as_str(), status), ("", 0));
        let (first, slice) = out.split_once('\n').unwrap();
        assert_eq!(Path::new(first), state);
        let line = format!("\"meminfo\": \"{}/meminfo\"", state.display());
        assert_eq!(slice.contains(&line), meminfo, "{machine}: {slice}");
        let _ = fs::remove_dir_all(&state);
    }
}

#[test]
fn a_driver_that_does_not_answer_is_given_up_after_ten_seconds() {
    let start = Instant::now();
    let mut command = HERE.run(&SLICED, "echo started");
    command.env("GPUSLICE_SIM_FAULTS", "slow:cuInit=60000ms");
    let seen = told(&mut command);
    let message = "gpuslice: the NVIDIA driver does not answer: no list of GPUs after 10 s\n";
    assert_eq!(seen, (String::new(), message.to_owned(), 125));
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// A driver that is put in front of any that this machine has.
fn with_driver(command: &mut Command, driver: &Path) {
    command.env("LD_LIBRARY_PATH", driver.parent().unwrap());
}

#[test]
fn without_a_driver_there_is_nothing_to_limit_but_commands_run() {
    let place = tempfile::tempdir().unwrap();
    let driver = place.path().join("libcuda.so.1");
    fs::write(&driver, "").unwrap();
    let why = format!(
        "gpuslice: no NVIDIA driver here: libcuda.so.1 cannot be loaded ({}: file too short)",
        driver.display()
    );
    let mut command = HERE.run(&["--memory=8GiB"], "echo started");
    with_driver(&mut command, &driver);
    let hint = format!("{why}; --sim rtx3090 runs on a simulated GPU\n");
    assert_eq!(told(&mut command), (String::new(), hint, 125));

    let mut command = HERE.gpuslice();
    with_driver(command.arg("devices"), &driver);
    assert_eq!(told(&mut command), (String::new(), format!("{why}\n"), 2));

    let mut command = HERE.run(&[], "echo started");
    with_driver(&mut command, &driver);
    let started = ("started\n".to_owned(), String::new(), 0);
    assert_eq!(told(&mut command), started);
}

#[test]
fn a_driver_that_crashes_costs_a_message() {
    let place = tempfile::tempdir().unwrap();
    let (source, driver) = (place.path().join("a.c"), place.path().join("libcuda.so.1"));
    let text =
        "#include <unistd.h>\nint cuInit(unsigned f) { write(2, \"oh no\\n\", 6); _exit(3); }";
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-w", "-shared", "-fPIC", "-o"])
        .args([&driver, &source]);
    assert_eq!(told(&mut cc), (String::new(), String::new(), 0));
    let mut command = HERE.gpuslice();
    with_driver(command.arg("devices"), &driver);
    let message = "gpuslice: the NVIDIA driver failed while it was asked for its GPUs \
                   (exit status: 3):\noh no\n";
    assert_eq!(told(&mut command), (String::new(), message.to_owned(), 2));
}

#[test]
fn under_any_prefix_the_library_and_the_simulator_are_found() {
    let place = tempfile::tempdir().unwrap();
    let (bin, lib) = (place.path().join("bin"), place.path().join("lib/gpuslice"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&lib).unwrap();
    fs::copy(HERE.executable(), bin.join("gpuslice")).unwrap();
    let run = || {
        let mut command = Command::new(bin.join("gpuslice"));
        command.args([
            "run",
            "--sim=rtx3090",
            "--",
            "sh",
            "-c",
            "echo $LD_PRELOAD $LD_LIBRARY_PATH",
        ]);
        told(command.env_remove("LD_LIBRARY_PATH"))
    };
    let missing = |what: &str| (String::new(), format!("gpuslice: {what}: run make\n"), 125);
    let (bin, lib) = (bin.display(), lib.display());
    let none = format!("libgpuslice.so is neither in {bin} nor in /usr/lib/gpuslice");
    assert_eq!(run(), missing(&none));
    let link = |from: &Path, to: &str| {
        std::os::unix::fs::symlink(from, format!("{lib}/{to}")).unwrap();
    };
    link(&HERE.folder.join("libgpuslice.so"), "libgpuslice.so");
    let place = place.path().display();
    let none =
        format!("the simulated driver is neither in {place}/sim nor in /usr/lib/gpuslice/sim");
    assert_eq!(run(), missing(&none));
    link(&HERE.folder.with_file_name("sim"), "sim");
    let found = format!("{lib}/libgpuslice.so {lib}/sim\n");
    assert_eq!(run(), (found, String::new(), 0));
}

#[test]
fn in_a_container_that_has_a_slice_another_is_refused() {
    // A root folder like this machine's, with a slice mounted as the hook does it.
    let container = "set -e; cd $0; mount -t tmpfs none .
        for entry in /*; do
            if [ -L $entry ]; then cp -P $entry .
            elif [ -d $entry ]; then mkdir .$entry; mount --rbind $entry .$entry; fi
        done
        mkdir .gpuslice; echo '{\"version\":1}' > .gpuslice/slice.json
        exec chroot . \"$@\"";
    for options in [&["--memory=8GiB"][..], &[]] {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", container]);
        let place = tempfile::tempdir().unwrap();
        command.arg(place.path());
        command
            .arg(HERE.executable())
            .arg("run")
            .args(options)
            .args(["--", "true"]);
        let message = "gpuslice: this container has a slice already, and it wins: \
                       /.gpuslice/slice.json\n";
        assert_eq!(told(&mut command), (String::new(), message.to_owned(), 125));
    }
}

#[test]
fn hidden_devices_can_be_named_and_stay_hidden_from_the_command() {
    let mut command = HERE.run(
        &["--sim=2xh200", "--device=1=8GiB"],
        "echo $CUDA_VISIBLE_DEVICES; grep -c uuid $GPUSLICE_CONFIG",
    );
    command.env("CUDA_VISIBLE_DEVICES", "0");
    assert_eq!(told(&mut command), ("0\n1\n".to_owned(), String::new(), 0));
}

#[test]
fn a_slice_file_that_is_no_file_is_refused_at_once() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let huge = fs::File::create(path("huge")).unwrap();
    huge.set_len(1 << 30).unwrap();
    fs::create_dir(path("folder")).unwrap();
    for (name, why) in [
        ("fifo", "is not a regular file"),
        ("folder", "is not a regular file"),
        (
            "huge",
            "is 1073741824 bytes, more than a slice file can be (64 KiB)",
        ),
    ] {
        let start = Instant::now();
        let config = path(name);
        let mut command = HERE.gpuslice();
        command
            .args(["run", "--config"])
            .arg(&config)
            .args(["--", "true"]);
        let message = format!("gpuslice: slice file {} {why}\n", config.display());
        assert_eq!(told(&mut command), (String::new(), message, 125));
        assert!(start.elapsed() < Duration::from_secs(1), "{name} was read");
    }
}

#[test]
fn a_slice_file_is_used_as_it_is() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"{\"version\":1,\"memory\":8589934592}").unwrap();
    let path = file.path().to_str().unwrap();
    let options = ["--sim=rtx3090", "--config", path];
    let mut command = HERE.run(&options, "echo $GPUSLICE_CONFIG");
    assert_eq!(told(&mut command).0.trim(), path);
    let mut command = HERE.run(&["--sim=rtx3090"], "echo $GPUSLICE_CONFIG");
    assert_eq!(told(command.env("GPUSLICE_CONFIG", path)).0.trim(), path);
}

#[test]
fn a_reader_of_the_device_list_may_leave_early() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = HERE.gpuslice();
    command.args(["devices", "--sim=2xh200"]).stdout(writer);
    // As `cat` does: 128 + SIGPIPE, and not a word.
    assert_eq!(told(&mut command), (String::new(), String::new(), 128 + 13));
}
