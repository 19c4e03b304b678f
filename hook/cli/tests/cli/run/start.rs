//! The program that `gpuslice run` starts: its environment, and the reasons for which it is not
//! started.

use crate::support::{Home, Installation, eventually, told};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

pub(super) static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("run"));

pub(super) const SLICED: [&str; 3] = ["--sim=rtx3090", "--memory=8GiB", "--name=test"];

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
fn a_driver_that_is_slow_is_waited_for_and_a_line_says_so() {
    let mut command = HERE.run(&SLICED, "echo started");
    // The driver takes longer than gpuslice waits in silence.
    command.env("GPUSLICE_SIM_FAULTS", "slow:cuInit=6000ms");
    let seen = told(&mut command);
    let message = "gpuslice: waiting for the NVIDIA driver for 5 s (a limit needs its list of GPUs, \
                   so nothing starts before it answers); giving up after 120 s\n";
    assert_eq!(seen, ("started\n".to_owned(), message.to_owned(), 0));
}

/// Puts a driver in front of any driver that this machine has.
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
    let message = "gpuslice: the NVIDIA driver crashed during a query \
                   (exit status: 3):\noh no\n";
    assert_eq!(told(&mut command), (String::new(), message.to_owned(), 2));
}

#[test]
fn under_any_prefix_the_library_and_the_simulator_are_found() {
    let place = tempfile::tempdir().unwrap();
    let (bin, lib) = (place.path().join("bin"), place.path().join("lib/gpuslice"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&lib).unwrap();
    // `cp` makes the copy. If this process wrote the file, a child that another test forks
    // meanwhile would have it open for writing, and it could not be executed.
    let copy = Command::new("cp").arg(HERE.executable()).arg(&bin).status();
    assert!(copy.unwrap().success());
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
    let missing = |what: &str, fix: &str| {
        let message =
            format!("gpuslice: there is no {what}: {fix}, or in its source tree run make\n");
        (String::new(), message, 125)
    };
    let (bin, lib) = (bin.display(), lib.display());
    let none = format!("libgpuslice.so in {bin}, {lib} or /usr/lib/gpuslice");
    assert_eq!(run(), missing(&none, "install gpuslice again"));
    let link = |from: &Path, to: &str| {
        std::os::unix::fs::symlink(from, format!("{lib}/{to}")).unwrap();
    };
    link(&HERE.folder.join("libgpuslice.so"), "libgpuslice.so");
    let place = place.path().display();
    let none = format!("simulated driver in {place}/sim, {lib}/sim or /usr/lib/gpuslice/sim");
    assert_eq!(run(), missing(&none, "install gpuslice's simulator"));
    link(&HERE.folder.with_file_name("sim"), "sim");
    let found = format!("{lib}/libgpuslice.so {lib}/sim\n");
    assert_eq!(run(), (found, String::new(), 0));
}

#[test]
fn a_reader_of_the_device_list_may_leave_early() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = HERE.gpuslice();
    command.args(["devices", "--sim=2xh200"]).stdout(writer);
    // gpuslice ends as `cat` does: with 128 + SIGPIPE and without a message.
    assert_eq!(told(&mut command), (String::new(), String::new(), 128 + 13));
}

#[test]
fn a_simulated_spark_has_its_own_meminfo_and_this_machine_keeps_its() {
    let line = |options: &[&str]| {
        let (out, err, status) = told(&mut HERE.run(options, "head -1 /proc/meminfo"));
        assert_eq!((err.as_str(), status), ("", 0), "{options:?}");
        out
    };
    let here = fs::read_to_string("/proc/meminfo").unwrap();
    let here = format!("{}\n", here.lines().next().unwrap());
    let spark = match nix::unistd::geteuid().is_root() {
        true => "MemTotal:       127600748 kB\n",
        false => &here,
    };
    assert_eq!(line(&["--sim=gb10", "--bare"]), spark);
    let slice = ["--sim=gb10", "--memory=40GiB"];
    assert_eq!(line(&slice), "MemTotal:       41943040 kB\n");
    let discrete = [&slice[..], &["--present-as=discrete"]].concat();
    assert_eq!(line(&discrete), spark);
    assert_eq!(line(&["--sim=rtx3090", "--bare"]), here);
    let after = fs::read_to_string("/proc/meminfo").unwrap();
    assert!(after.starts_with(here.trim_end()));
}

#[test]
fn a_state_folder_of_another_machine_is_named_before_the_command_starts() {
    let state = tempfile::tempdir().unwrap();
    let on = |machine: &str| {
        let mut command = HERE.run(&["--bare", machine], "echo started");
        told(command.env("GPUSLICE_SIM_STATE", state.path()))
    };
    assert_eq!(on("--sim=gb10").0, "started\n");
    let (out, err, status) = on("--sim=orin");
    assert_eq!((out.as_str(), status), ("", 125));
    assert!(
        err.starts_with("gpuslice: cannot start the simulated machine: "),
        "{err}"
    );
}

#[test]
fn a_log_file_alone_is_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let option = format!("--log-file={}", file.display());
    let script = "echo $GPUSLICE_LOG";
    let log = |options: &[&str]| told(&mut HERE.run(options, script)).0;
    assert_eq!(log(&["--sim=rtx3090", "--memory=1GiB", &option]), "warn\n");
    let both = ["--sim=rtx3090", "--memory=1GiB", "--log=info", &option];
    assert_eq!(log(&both), "info\n");
}

#[test]
fn a_check_of_a_slice_without_a_driver_has_the_status_of_no_driver() {
    let place = tempfile::tempdir().unwrap();
    let driver = place.path().join("libcuda.so.1");
    fs::write(&driver, "").unwrap();
    let mut command = HERE.gpuslice();
    with_driver(command.args(["check", "--memory=1GiB"]), &driver);
    let (out, err, status) = told(&mut command);
    assert_eq!((out.as_str(), status), ("", 2), "{err}");
    assert!(err.starts_with("gpuslice: no NVIDIA driver here"), "{err}");
}

#[test]
fn no_link_to_a_run_that_has_ended_stays_in_the_folder_of_runs() {
    let home = Home::new();
    let links = || {
        let listed = fs::read_dir(home.runtime.path().join("gpuslice")).unwrap();
        let links = listed.map(|entry| entry.unwrap().path());
        links
            .filter(|path| path.is_symlink())
            .collect::<Vec<PathBuf>>()
    };
    // A program may remove the folder of its run. The link to it is removed all the same.
    for script in ["true", "rm -r $(dirname $GPUSLICE_CONFIG)"] {
        let (_, err, status) = told(home.of(&mut HERE.run(&SLICED, script)));
        assert_eq!((err.as_str(), status), ("", 0));
        eventually("the link is gone", || links().is_empty());
    }
    // Runs can share a slice file. The next run removes the link of a file that no
    // run uses.
    let file = home.state.path().join("a.json");
    let ledger = home.state.path().join("ledger");
    let text = format!(
        "{{\"version\":1,\"name\":\"team\",\"memory\":8589934592,\"ledger\":\"{}\"}}",
        ledger.display()
    );
    fs::write(&file, text).unwrap();
    let options = ["--sim=rtx3090", "--config", file.to_str().unwrap()];
    assert_eq!(told(home.of(&mut HERE.run(&options, "true"))).2, 0);
    assert_eq!(told(home.of(&mut HERE.run(&SLICED, "true"))).2, 0);
    eventually("the links are gone", || links().is_empty());
}

/// Such a folder may be a user's own, for example the one that a release is unpacked into.
#[test]
fn a_folder_that_only_looks_like_that_of_a_run_is_not_removed() {
    let home = Home::new();
    let folder = home.state.path().join("gpuslice-mine");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("notes"), "").unwrap();
    let file = folder.join("slice.json");
    let ledger = home.state.path().join("ledger");
    let ledger = format!(",\"ledger\":\"{}\"", ledger.display());
    for ledger in [ledger.as_str(), ""] {
        let text = format!("{{\"version\":1,\"name\":\"team\",\"memory\":8589934592{ledger}}}");
        fs::write(&file, text).unwrap();
        let options = ["--sim=rtx3090", "--config", file.to_str().unwrap()];
        assert_eq!(told(home.of(&mut HERE.run(&options, "true"))).2, 0);
        // Each command removes what the runs before it have left.
        assert_eq!(told(home.of(&mut HERE.run(&SLICED, "true"))).2, 0);
        assert_eq!(told(home.of(HERE.gpuslice().arg("status"))).2, 0);
        assert!(file.exists() && folder.join("notes").exists());
    }
}

/// Asserts that a run of this program gives this reason why the slice may not reach others, and that
/// `--strict` refuses it.
fn is_named(program: &str, arguments: &[&str], why: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(program);
    gpuslice_test_programs::write_program(&program, "#!/bin/sh\n");
    for (strict, expected) in [(&[][..], 0), (&["--strict"], 125)] {
        let mut command = HERE.gpuslice();
        command.arg("run").args(SLICED).args(strict).arg("--");
        let (_, err, status) = told(command.arg(&program).args(arguments));
        assert!(status == expected && err.contains(why), "{err}");
    }
}

#[test]
fn a_client_of_a_daemon_is_named_because_its_containers_are_not_in_the_slice() {
    let why = "docker itself is in the slice, but no container or service that it starts";
    is_named("docker", &["run", "--gpus", "all"], why);
    let why = "ollama itself is in the slice, but its server is not";
    is_named("ollama", &["run", "llama3"], why);
}

#[test]
fn a_sandbox_is_named_because_its_programs_may_not_reach_the_library() {
    let why = "bwrap itself is in the slice, but no program that it starts in another root is";
    is_named("bwrap", &["--ro-bind", "/image", "/", "python3"], why);
    let why = "chroot itself is in the slice, but no program that it starts in another root is";
    is_named("chroot", &["/image", "python3"], why);
    let why = "sudo removes LD_PRELOAD, so no program that it starts is in the slice";
    is_named("sudo", &["-u", "svc", "python3"], why);
    is_named(
        "su",
        &["-", "svc", "-c", "python3"],
        "su removes LD_PRELOAD",
    );
}
