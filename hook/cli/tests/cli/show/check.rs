//! `gpuslice check` where a slice cannot work: it never reports success.

use crate::support::member::{GPU, Member, ledger_of};
use crate::support::terminal::Terminal;
use crate::support::{Home, Installation, start, told};
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use nix::libc;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("check"));

/// A waiting run in a slice of 8 GiB, with its slice file and the machine's state folder.
struct Run {
    child: Child,
    config: String,
    state: String,
    home: Home,
}

impl Run {
    fn new(options: &[&str]) -> Run {
        let home = Home::new();
        let all = [&["--sim=rtx3090", "--memory=8GiB"], options].concat();
        let mut command = HERE.run(&all, "echo $GPUSLICE_CONFIG:$GPUSLICE_SIM_STATE; read line");
        let (child, line) = start(home.of(&mut command).stdin(Stdio::piped()));
        let (config, state) = line.split_once(':').unwrap();
        Run {
            child,
            config: config.to_owned(),
            state: state.to_owned(),
            home,
        }
    }

    fn ledger(&self) -> String {
        ledger_of(&self.config)
    }

    /// Runs `gpuslice check` in this slice, as a program that joins the slice later.
    fn check(&self, options: &[&str]) -> (String, String, i32) {
        let mut command = HERE.gpuslice();
        let environment = fs::read(format!("/proc/{}/environ", self.child.id())).unwrap();
        let environment = String::from_utf8(environment).unwrap();
        let set = environment.split('\0').filter_map(|it| it.split_once('='));
        command.env_clear().envs(set);
        command.env("GPUSLICE_SIM_STATE", &self.state);
        told(self.home.of(&mut command).arg("check").args(options))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The text without its line breaks.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn open(path: &str) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// A way to damage a ledger, and the words by which `check` names it.
type Damage = (fn(&File), &'static str);

#[test]
fn check_fails_and_names_the_ledger_that_is_damaged() {
    let damages: [Damage; 4] = [
        (
            |file| file.set_len(0).unwrap(),
            "the ledger is 0 bytes long, which is no ledger's length",
        ),
        (
            |file| file.set_len(4096).unwrap(),
            "the ledger is 4096 bytes long, which is no ledger's length",
        ),
        (
            |file| file.write_all_at(b"XXXXXXXX", 0).unwrap(),
            "the file is not a ledger",
        ),
        (
            |file| {
                let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
                file.write_all_at(&vec![0; length], 0).unwrap();
            },
            "its header is erased",
        ),
    ];
    for (damage, why) in damages {
        let run = Run::new(&[]);
        let ledger = run.ledger();
        damage(&open(&ledger));
        let (json, err, status) = run.check(&["--json"]);
        assert_eq!((err.as_str(), status), ("", 1), "{why}");
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["consistent"], false);
        let said = json["disagreements"][0].as_str().unwrap();
        let start = format!("the ledger {ledger} cannot be used: {why}; ");
        assert!(said.starts_with(&start), "{said}");
        assert!(
            said.ends_with("stop its programs and start the slice again"),
            "{said}"
        );
        damage(&open(&ledger));
        let (out, err, status) = run.check(&[]);
        assert_eq!((err.as_str(), status), ("", 1), "{why}");
        assert!(
            unwrapped(&out).starts_with(&format!("INCONSISTENT: {said}")),
            "{out}"
        );
        assert!(
            !out.starts_with("CONSISTENT") && !out.contains("moved"),
            "{out}"
        );
    }
}

#[test]
fn check_fails_where_no_process_can_lock_a_place_in_the_ledger() {
    let run = Run::new(&[]);
    let ledger = open(&run.ledger());
    let places = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap(),
        l_whence: 0,
        l_start: 0,
        l_len: 512,
        l_pid: 0,
    };
    // SAFETY: the lock is a flock that lives as long as the call.
    let locked = unsafe { libc::fcntl(ledger.as_raw_fd(), libc::F_OFD_SETLK, &raw const places) };
    assert_eq!(locked, 0);
    let (out, err, status) = run.check(&[]);
    assert_eq!((err.as_str(), status), ("", 1), "{out}");
    let why = format!(
        "INCONSISTENT: the ledger {} cannot be used: all of its 512 slots are taken or locked; ",
        run.ledger()
    );
    assert!(unwrapped(&out).starts_with(&why), "{out}");
}

#[test]
fn a_slice_without_room_for_a_context_is_not_called_consistent() {
    let run = Run::new(&[]);
    // This check records the size of a context in the ledger.
    assert_eq!(run.check(&[]).2, 0);
    let member = Member::of(&run.config);
    member.take(Bytes::gib(8), Kind::Linear);
    let (out, err, status) = run.check(&[]);
    assert_eq!((err.as_str(), status), ("", 1), "{out}");
    let text = unwrapped(&out);
    assert!(text.starts_with(&format!("INCOMPLETE: {GPU}: ")), "{out}");
    let title = " functions that could not be queried ";
    let (_, verdict) = text.split_once(title).unwrap();
    let full = "the processes of the slice hold 8.00 GiB of its 8.00 GiB";
    let without = |call: &str, routes: &str, apis: &str| {
        format!("- {GPU}: {call} by {routes}: without a context, {apis} cannot be asked; {full}")
    };
    let expected = [
        without(
            "cuDevicePrimaryCtxRetain returns 2 (CUDA_ERROR_OUT_OF_MEMORY)",
            "every route but cudart-11, cudart-12, cudart-13",
            "cuMemGetInfo_v2, cuMemGetInfo, cudaMemGetInfo",
        ),
        without(
            "cudaFree(0) returns 2 (cudaErrorMemoryAllocation)",
            "cudart-11",
            "cudaMemGetInfo, cudaGetDeviceProperties, cudaDeviceGetAttribute",
        ),
        without(
            "cudaSetDevice returns 2 (cudaErrorMemoryAllocation)",
            "cudart-12, cudart-13",
            "cudaMemGetInfo, cudaGetDeviceProperties, cudaGetDeviceProperties_v2, cudaDeviceGetAttribute",
        ),
    ];
    assert_eq!(verdict, expected.join(" "));
    assert!(
        !text.contains("not asked") && !text.contains("moved"),
        "{out}"
    );
    // NVML's answers are still compared.
    assert!(text.contains("8.00 GiB 0 B 8.00 GiB"), "{out}");
    let (json, _, status) = run.check(&["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((status, &json["consistent"]), (1, &Value::Bool(false)));
    assert_eq!(json["disagreements"].as_array().unwrap().len(), 0);
    assert_eq!(json["incomplete"].as_array().unwrap().len(), 3);
}

/// The hook has mounted a container's slice at /dev/gpuslice, and the library is not loaded.
#[test]
fn check_fails_where_a_slice_is_mounted_and_the_library_is_not_loaded() {
    let script = "set -e
        new=$(mktemp -d); mount -t tmpfs tmpfs $new
        for one in null zero urandom; do touch $new/$one; mount --bind /dev/$one $new/$one; done
        mkdir $new/shm $new/gpuslice; mount --rbind /dev/shm $new/shm
        echo '{\"version\":1,\"name\":\"pod\",\"memory\":8589934592}' > $new/gpuslice/slice.json
        mount --rbind $new /dev
        unset LD_PRELOAD; exec \"$0\" check";
    let mut command = Command::new("unshare");
    let simulated = HERE.folder.with_file_name("sim");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(HERE.executable())
        .env("LD_LIBRARY_PATH", simulated)
        .env("GPUSLICE_SIM", "rtx3090");
    let (out, err, status) = told(&mut command);
    assert_eq!((err.as_str(), status), ("", 1), "{out}");
    let cause = "INCONSISTENT: there is a slice, but libgpuslice.so is not loaded into any program";
    assert_eq!(first_line(&out), cause, "{out}");
    assert!(
        out.contains("slice    pod: 8.00 GiB on every GPU (from /dev/gpuslice/slice.json)"),
        "{out}"
    );
}

#[test]
fn check_names_the_slice_whose_environment_was_not_passed_on() {
    let home = Home::new();
    let script = "env -u GPUSLICE_CONFIG -u GPUSLICE_SLICE -u LD_PRELOAD \"$0\" check";
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args(["run", "--sim=rtx3090", "--memory=8GiB", "--name=llama"])
        .args(["--", "sh", "-c"])
        .arg(format!("{script}; exit $?"))
        .arg(HERE.executable());
    let (out, err, status) = told(&mut command);
    assert_eq!((err.as_str(), status), ("", 0), "{out}");
    let text = unwrapped(&out);
    let note = "note: this process is in no slice, but process ";
    assert!(
        text.contains(note) && text.contains("is in slice llama ("),
        "{out}"
    );
    let mut bare = HERE.gpuslice();
    let (out, _, status) = told(bare.args(["check", "--sim=rtx3090", "--bare"]));
    assert!(
        status == 0 && !out.contains("this process is in no slice"),
        "{out}"
    );
}

#[test]
fn check_says_that_a_slice_without_a_ledger_refuses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slice.json");
    fs::write(&file, "{\"version\":1,\"memory\":8589934592}").unwrap();
    // The library is preloaded by hand, because `gpuslice run` would add a ledger.
    let mut command = HERE.gpuslice();
    command
        .arg("check")
        .env("LD_PRELOAD", HERE.folder.join("libgpuslice.so"))
        .env("LD_LIBRARY_PATH", HERE.folder.with_file_name("sim"))
        .env("GPUSLICE_SIM", "rtx3090")
        .env("GPUSLICE_CONFIG", &file);
    let (out, _, status) = told(&mut command);
    let note = "note: the slice names no ledger: nothing is counted or refused\n";
    assert!(status == 0 && out.contains(note), "{out}");
    let run = Run::new(&[]);
    let (out, _, status) = run.check(&[]);
    assert!(status == 0 && !out.contains("names no ledger"), "{out}");
}

#[test]
fn check_without_a_driver_still_names_a_slice_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slice.json");
    fs::write(&file, "[").unwrap();
    for library in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        // An empty file stands for a missing driver, also on a machine that has one.
        fs::write(folder.path().join(library), "").unwrap();
    }
    let mut command = HERE.gpuslice();
    command
        .env("LD_LIBRARY_PATH", folder.path())
        .env("GPUSLICE_CONFIG", &file);
    let (out, err, status) = told(command.arg("check"));
    let start = format!(
        "gpuslice: slice file {}, line 1: not a slice file: expected '{{'\ngpuslice: no NVIDIA driver here: ",
        file.display()
    );
    assert!(err.starts_with(&start), "{err}");
    assert_eq!((out.as_str(), status), ("", 2));
}

/// Columns wrapped at 80 columns, and the verdict was in no colour.
#[test]
fn on_a_terminal_lines_fit_and_the_verdict_has_a_colour() {
    let run = |variable: &str| {
        let home = Home::new();
        let mut command = HERE.gpuslice();
        let mut terminal = Terminal::new(100, 80);
        let bare = ["check", "--sim", "gb10", "--bare"];
        let shown = terminal.run(home.of(&mut command).args(bare).env(variable, "1"));
        (
            shown,
            terminal.written.windows(2).any(|two| two == b"\x1b["),
        )
    };
    let (shown, is_coloured) = run("UNRELATED");
    assert!(shown.contains("INCONSISTENT"), "{shown}");
    assert!(is_coloured);
    assert!(!run("NO_COLOR").1);
}
