//! What the command of `gpuslice run` finds, and what stops it from being started.

use crate::support::machine::{Machine, end};
use crate::support::{Home, Installation, eventually, told};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("run"));

const SLICED: [&str; 3] = ["--sim=rtx3090", "--memory=8GiB", "--name=test"];

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
    // Longer than it is waited for in silence.
    command.env("GPUSLICE_SIM_FAULTS", "slow:cuInit=6000ms");
    let seen = told(&mut command);
    let message = "gpuslice: waiting for the NVIDIA driver since 5 s (a limit needs its list of GPUs, \
                   so nothing starts before it answers); given up after 120 s\n";
    assert_eq!(seen, ("started\n".to_owned(), message.to_owned(), 0));
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
    let message = "gpuslice: the NVIDIA driver failed while it was asked \
                   (exit status: 3):\noh no\n";
    assert_eq!(told(&mut command), (String::new(), message.to_owned(), 2));
}

#[test]
fn under_any_prefix_the_library_and_the_simulator_are_found() {
    let place = tempfile::tempdir().unwrap();
    let (bin, lib) = (place.path().join("bin"), place.path().join("lib/gpuslice"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&lib).unwrap();
    // By another process: a child that a test beside this one forks meanwhile would have it open
    // for writing, and it could not be started.
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
        let message = "gpuslice: this container already has a slice, which takes precedence: \
                       /.gpuslice/slice.json\n";
        assert_eq!(told(&mut command), (String::new(), message.to_owned(), 125));
    }
}

#[test]
fn a_limit_on_a_gpu_that_the_program_does_not_see_is_refused() {
    let refused = |machine: &str, options: &[&str], visible: Option<&str>, message: &str| {
        let mut command = HERE.run(&[&[machine], options].concat(), "echo started");
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        let message = format!("gpuslice: the program would not be limited: {message}\n");
        assert_eq!(told(&mut command), (String::new(), message, 125));
    };
    let only_the_other = "it sees GPU 1 (CUDA_VISIBLE_DEVICES=1), and the slice limits GPU 0; set \
                          CUDA_VISIBLE_DEVICES=0";
    refused(
        "--sim=2xh200",
        &["--device=0=8GiB"],
        Some("1"),
        only_the_other,
    );
    let card = "\"uuid\":\"GPU-200aaaaa-2222-4333-8444-555566660000\"";
    let file = slice_file(&format!("\"devices\":[{{{card},\"memory\":8589934592}}]"));
    let options = ["--config", file.path().to_str().unwrap()];
    refused("--sim=2xh200", &options, Some("1"), only_the_other);
    refused(
        "--sim=2xh200",
        &["--device=0=8GiB"],
        Some("GPU-200aaaaa-2222-4333-8444-555566660001"),
        "it sees GPU 1 (CUDA_VISIBLE_DEVICES=GPU-200aaaaa-2222-4333-8444-555566660001), and the slice \
         limits GPU 0; set CUDA_VISIBLE_DEVICES=0",
    );
    let [first, second] = ["MIG-a1111111", "MIG-b2222222"]
        .map(|start| format!("{start}-3333-5444-8555-666677770000"));
    refused(
        "--sim=h200-mig",
        &[&format!("--device={second}=8GiB")],
        None,
        &format!(
            "it sees {first} (CUDA_VISIBLE_DEVICES is not set), and the slice limits {second}; set \
         CUDA_VISIBLE_DEVICES={second}"
        ),
    );
    // A limit of all GPUs that the one GPU that is left does not have.
    refused(
        "--sim=2xh200+rtx3090",
        &["--memory=80GiB"],
        Some("2"),
        "it sees GPU 2 (CUDA_VISIBLE_DEVICES=2), and the slice limits GPU 0 and GPU 1; set \
         CUDA_VISIBLE_DEVICES=0,1",
    );
}

#[test]
fn a_gpu_that_the_program_sees_without_a_limit_is_named() {
    let run = |options: &[&str], visible: Option<&str>| {
        let mut command = HERE.run(&[&["--sim=2xh200"], options].concat(), "echo started");
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        told(&mut command)
    };
    let started = |err: &str| ("started\n".to_owned(), err.to_owned(), 0);
    let gap = "the program sees GPU 0 and GPU 1, and the slice does not limit GPU 1; \
               CUDA_VISIBLE_DEVICES=0 hides it";
    for visible in [None, Some("1,0")] {
        let warning = format!("gpuslice: warning: {gap} (--strict refuses to start it)\n");
        assert_eq!(run(&["--device=0=8GiB"], visible), started(&warning));
        let refusal = format!("gpuslice: {gap}; --strict refuses to start it\n");
        let refused = (String::new(), refusal, 125);
        assert_eq!(run(&["--device=0=8GiB", "--strict"], visible), refused);
    }
    for (options, visible) in [
        (&["--strict", "--device=0=8GiB"][..], Some("0")),
        (&["--strict", "--device=0=8GiB", "--device=1=4GiB"], None),
        (&["--strict", "--memory=8GiB"], None),
        (&["--strict", "--device=0=8GiB"], Some("")),
    ] {
        assert_eq!(
            run(options, visible),
            started(""),
            "{options:?} {visible:?}"
        );
    }
}

#[test]
fn a_limit_of_all_gpus_limits_every_gpu_that_the_program_sees() {
    let ask = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); \
        count = ctypes.c_int(); c.cuDeviceGetCount(ctypes.byref(count)); \
        total = ctypes.c_size_t(); \
        print(*[c.cuDeviceTotalMem_v2(ctypes.byref(total), n) or total.value >> 30 for n in range(count.value)])";
    let options = ["--sim=2xh200+rtx3090", "--memory=8GiB"];
    let script = format!("python3 -c \"{ask}\"");
    for (visible, totals) in [
        (None, "8 8 8\n"),
        (Some("1"), "8\n"),
        (Some("2,0"), "8 8\n"),
    ] {
        let mut command = HERE.run(&options, &script);
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        let seen = told(&mut command);
        assert_eq!(seen, (totals.to_owned(), String::new(), 0), "{visible:?}");
    }
}

#[test]
fn a_slice_file_that_is_no_file_is_refused_at_once() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let huge = fs::File::create(path("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    fs::create_dir(path("folder")).unwrap();
    for (name, why) in [
        ("fifo", "is not a regular file"),
        ("folder", "is not a regular file"),
        (
            "huge",
            "is 1099511627776 bytes, more than a slice file can be (64 KiB)",
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
        // To read a tebibyte takes longer than that.
        assert!(start.elapsed() < Duration::from_secs(60), "{name} was read");
    }
}

/// A slice file with these keys behind its version.
fn slice_file(keys: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{{\"version\":1,{keys}}}").unwrap();
    file
}

#[test]
fn a_slice_file_that_names_a_ledger_is_used_as_it_is() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let ledger = place.path().join("ledger");
    let file = slice_file(&format!(
        "\"memory\":8589934592,\"ledger\":\"{}\"",
        ledger.display()
    ));
    let path = file.path().to_str().unwrap();
    let options = ["--sim=rtx3090", "--config", path];
    let mut command = HERE.run(&options, "echo $GPUSLICE_CONFIG");
    assert_eq!(told(&mut command).0.trim(), path);
    let mut command = HERE.run(&["--sim=rtx3090"], "echo $GPUSLICE_CONFIG");
    assert_eq!(told(command.env("GPUSLICE_CONFIG", path)).0.trim(), path);
    let options = [&options[..], &["--overcommit"]].concat();
    let (out, err, status) = told(&mut HERE.run(&options, "echo started"));
    let warning = "gpuslice: warning: --overcommit has no effect: a slice file that names a ledger is \
                   not checked against the memory that other slices leave\n";
    assert_eq!(
        (out.as_str(), err.as_str(), status),
        ("started\n", warning, 0)
    );
}

/// Allocates three GiB as often as there is room, up to three times, and prints the answers.
const THREE_TIMES_THREE_GIB: &str = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); \
    context = ctypes.c_void_p(); c.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); \
    c.cuCtxSetCurrent(context); at = ctypes.c_uint64(); \
    print(*[c.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(3 << 30)) for _ in range(3)])";

#[test]
fn a_slice_file_without_a_ledger_limits_its_program() {
    let script = format!("python3 -c \"{THREE_TIMES_THREE_GIB}\"");
    let card = "GPU-3090aaaa-1111-4222-8333-444455550000";
    for keys in [
        "\"memory\":8589934592".to_owned(),
        format!("\"devices\":[{{\"uuid\":\"{card}\",\"memory\":8589934592}}]"),
    ] {
        let file = slice_file(&keys);
        let path = file.path().to_str().unwrap();
        let options = ["--sim=rtx3090", "--strict", "--config", path];
        let refused = ("0 0 2\n".to_owned(), String::new(), 0);
        assert_eq!(told(&mut HERE.run(&options, &script)), refused, "{keys}");
        let mut command = HERE.run(&["--sim=rtx3090"], &script);
        let seen = told(command.env("GPUSLICE_CONFIG", path));
        assert_eq!(seen, refused, "{keys}");
    }
}

#[test]
fn a_limit_over_the_card_is_refused_by_option_and_by_slice_file() {
    let card = "GPU-3090aaaa-1111-4222-8333-444455550000";
    let more = "is more than GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB) has; give at most 24259MiB";
    let limit = 40u64 << 30;
    let refused = |options: &[&str], message: &str| {
        let seen = told(&mut HERE.run(&[&["--sim=rtx3090"], options].concat(), "echo started"));
        let message = format!("gpuslice: {message}\n");
        assert_eq!(seen, (String::new(), message, 125));
    };
    refused(&["--memory=40GiB"], &format!("--memory 40.00 GiB {more}"));
    for keys in [
        format!("\"memory\":{limit}"),
        format!("\"devices\":[{{\"uuid\":\"{card}\",\"memory\":{limit}}}]"),
        format!("\"memory\":1073741824,\"devices\":[{{\"uuid\":\"{card}\",\"memory\":{limit}}}]"),
        format!("\"ledger\":\"/dev/shm/none\",\"memory\":{limit}"),
    ] {
        let file = slice_file(&keys);
        let path = file.path().display();
        let message = format!("slice file {path}: \"memory\" 40.00 GiB {more}");
        refused(&["--config", &path.to_string()], &message);
    }
}

#[test]
fn a_slice_file_without_a_ledger_is_admitted_as_the_options_are() {
    let machine = Machine::new(&HERE, "rtx3090");
    let spark = Machine::new(&HERE, "gb10");
    let card = slice_file("\"name\":\"mine\",\"memory\":12884901888");
    let unified = slice_file("\"name\":\"mine\",\"memory\":64424509440");
    for (machine, file, full) in [
        (
            machine,
            card,
            "has 11.69 GiB left, 12.00 GiB are asked for: held by mine (pid ",
        ),
        (
            spark,
            unified,
            "a slice of 60.00 GiB does not fit on this host",
        ),
    ] {
        let options = ["--config", file.path().to_str().unwrap()];
        let (child, _) = machine.slice(&options);
        let (out, err, status) = told(&mut machine.run(&options, "echo started"));
        assert!(
            err.contains(full) && (out.as_str(), status) == ("", 125),
            "{err}"
        );
        let options = [&options[..], &["--overcommit"]].concat();
        let (out, err, status) = told(&mut machine.run(&options, "echo started"));
        assert!(
            err.contains(full) && (out.as_str(), status) == ("started\n", 0),
            "{err}"
        );
        end(child);
        assert_eq!(told(&mut machine.run(&options[..2], "echo started")).2, 0);
    }
}

#[test]
fn a_slice_file_cannot_turn_an_empty_file_into_a_ledger() {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    fs::write(path("empty.conf"), "").unwrap();
    let run = |ledger: &str| {
        let text = format!(
            "{{\"version\":1,\"memory\":8589934592,\"ledger\":\"{}\"}}",
            path(ledger)
        );
        fs::write(path("slice.json"), text).unwrap();
        let config = format!("--config={}", path("slice.json"));
        told(&mut HERE.run(&["--sim=rtx3090", &config], "echo started"))
    };
    let message = format!(
        "gpuslice: cannot make {}, the ledger of the slice: it is an empty file that gpuslice has \
         not made (remove it, or name another)\n",
        path("empty.conf")
    );
    assert_eq!(run("empty.conf"), (String::new(), message, 125));
    assert_eq!(fs::metadata(path("empty.conf")).unwrap().len(), 0);
    // One that is not there is made, and used again.
    for _ in 0..2 {
        assert_eq!(run("ledger"), ("started\n".to_owned(), String::new(), 0));
    }
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
fn a_program_stays_in_its_slice_when_the_file_becomes_unreadable() {
    let ask = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); \
        total = ctypes.c_size_t(); c.cuDeviceTotalMem_v2(ctypes.byref(total), 0); print(total.value)";
    let whole = "8589934592\n";
    let removed = format!("rm $GPUSLICE_CONFIG; python3 -c \"{ask}\"");
    assert_eq!(told(&mut HERE.run(&SLICED, &removed)).0, whole);
    for damage in [
        "echo x >",
        ": >",
        "echo '{}' >",
        "echo '{\"memroy\":1}' >",
        "truncate -s 1M",
    ] {
        let damaged = format!("{damage} $GPUSLICE_CONFIG; python3 -c \"{ask}\"");
        assert_eq!(told(&mut HERE.run(&SLICED, &damaged)).0, whole, "{damage}");
    }
    if nix::unistd::geteuid().is_root() {
        // A server that is started as root and goes on as somebody else.
        let state = tempfile::tempdir().unwrap();
        let script = format!(
            "chmod -R a+rwX $GPUSLICE_SIM_STATE; \
             exec setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c \"{ask}\""
        );
        let mut command = HERE.run(&SLICED, &script);
        assert_eq!(
            told(command.env("GPUSLICE_SIM_STATE", state.path())).0,
            whole
        );
    }
}

#[test]
fn a_program_that_gives_up_root_is_still_counted_and_refused() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    // Three GiB of eight: twice is granted, the third time is out of memory.
    let ask = THREE_TIMES_THREE_GIB;
    let script = format!(
        "chmod -R a+rwX $GPUSLICE_SIM_STATE; stat -c %a $GPUSLICE_CONFIG; \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups /usr/bin/python3 -c \"{ask}\""
    );
    for umask in ["022", "077"] {
        let run = HERE.run(&SLICED, &script);
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("umask {umask}; exec \"$0\" \"$@\""));
        command.arg(run.get_program()).args(run.get_args());
        command
            .env_remove("GPUSLICE_CONFIG")
            .env_remove("LD_PRELOAD");
        let command = command.env("GPUSLICE_SIM_STATE", state.path());
        let (out, err, status) = told(command.env("GPUSLICE_LOG", "warn"));
        assert_eq!(
            (out.as_str(), status),
            ("600\n0 0 2\n", 0),
            "umask {umask}: {err}"
        );
    }
}

#[test]
fn a_stranger_cannot_find_the_ledger_of_roots_slice() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let script = "cd $(dirname $GPUSLICE_CONFIG) && ls -d ledger.* | wc -c && stat -c %a ledger.*; \
        exec setpriv --reuid 65534 --regid 65534 --clear-groups \
        sh -c 'ls $0; cat $0/slice.json; echo > $0/ledger' $(dirname $GPUSLICE_CONFIG)";
    let (out, err, _) = told(&mut HERE.run(&SLICED, script));
    // 128 bits, in a folder that is passed through but not read.
    assert_eq!(out, "40\n666\n");
    assert_eq!(err.matches("Permission denied").count(), 3, "{err}");
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
fn a_slice_file_that_limits_nothing_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slice.json");
    fs::write(&file, "{\"version\":1}").unwrap();
    let option = format!("--config={}", file.display());
    let (out, err, status) = told(&mut HERE.run(&["--sim=rtx3090", &option], "echo started"));
    let expected = format!(
        "gpuslice: warning: slice file {} limits no device (--strict refuses to start it)\n",
        file.display()
    );
    assert_eq!((out.as_str(), err, status), ("started\n", expected, 0));
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
fn a_machine_that_does_not_exist_is_named_and_not_the_driver() {
    for options in [&["--sim=rtx309", "--memory=8GiB"][..], &["--sim=rtx309"]] {
        let (out, err, status) = told(&mut HERE.run(options, "echo started"));
        assert_eq!((out.as_str(), status), ("", 125));
        let start = "gpuslice: cannot start the simulated machine: ";
        assert!(err.starts_with(start) && err.contains("rtx309"), "{err}");
        assert!(!err.contains("cuInit"), "{err}");
    }
}

#[test]
fn options_for_unified_memory_are_told_to_have_no_effect_on_a_card() {
    let options = [
        "--reserve=1GiB",
        "--pressure=release",
        "--present-as=discrete",
    ];
    let run = |machine: &str, options: &[&str]| {
        told(&mut HERE.run(
            &[&[machine, "--memory=8GiB"], options].concat(),
            "echo started",
        ))
    };
    let warning = "gpuslice: warning: --reserve, --pressure, --present-as have no effect: no GPU of \
                   this slice shares the host's memory\n";
    let started = |err: &str| ("started\n".to_owned(), err.to_owned(), 0);
    assert_eq!(run("--sim=rtx3090", &options), started(warning));
    assert_eq!(run("--sim=rtx3090", &[]), started(""));
    assert_eq!(run("--sim=gb10", &options), started(""));
}

#[test]
fn a_slice_inside_a_slice_is_refused_with_the_two_ways_on() {
    let inner = format!(
        "{} run --memory=4GiB -- echo started",
        HERE.executable().display()
    );
    let (out, err, status) = told(&mut HERE.run(&SLICED, &inner));
    assert_eq!((out.as_str(), status), ("", 125));
    let start = "gpuslice: this program is in a slice already (GPUSLICE_CONFIG names ";
    assert!(
        err.starts_with(start) && err.contains("gpuslice run --bare -- gpuslice run"),
        "{err}"
    );
    let gpuslice = HERE.executable().display().to_string();
    let inner = format!(
        "echo $GPUSLICE_CONFIG; {gpuslice} run -- sh -c 'echo $GPUSLICE_CONFIG'; \
         {gpuslice} run --bare -- {gpuslice} run --sim=rtx3090 --memory=4GiB -- sh -c 'echo $GPUSLICE_CONFIG'"
    );
    let (out, err, status) = told(&mut HERE.run(&SLICED, &inner));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((lines.len(), status), (3, 0), "{err}");
    assert!(lines[0] == lines[1] && lines[1] != lines[2], "{out}");
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
    // A program may remove the folder of its run, and the link to it must go all the same.
    for script in ["true", "rm -r $(dirname $GPUSLICE_CONFIG)"] {
        let (_, err, status) = told(home.of(&mut HERE.run(&SLICED, script)));
        assert_eq!((err.as_str(), status), ("", 0));
        eventually("the link is gone", || links().is_empty());
    }
    // Runs share a slice file, so the next run removes the link of one that nobody uses.
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
