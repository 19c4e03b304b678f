//! `gpuslice resize` of a slice whose limit the driver holds.

use crate::support::machine::{Machine, end};
use crate::support::{Installation, eventually, told};
use gpuslice_host::machine::cgroups;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("resize-driver"));

const GIB: u64 = 1 << 30;

/// Starts a slice of 12 GiB whose slice file says that the driver holds its limit.
fn held_by_the_driver(machine: &Machine) -> std::process::Child {
    let (child, config) = machine.slice(&["--memory=12GiB", "--name=llama"]);
    let text = fs::read_to_string(&config).unwrap();
    let mut slice: Value = serde_json::from_str(&text).unwrap();
    slice["driver_cgroup"] = json!("/");
    for device in slice["devices"].as_array_mut().unwrap() {
        device["driver_limit"] = json!("dmem");
    }
    fs::write(config, slice.to_string()).unwrap();
    child
}

fn resizing(machine: &Machine, arguments: &[&str], faults: &str) -> Command {
    let mut command = HERE.gpuslice();
    machine.home.of(&mut command).args(["resize", "llama"]);
    command.args(arguments).env("GPUSLICE_SIM_FAULTS", faults);
    command
}

/// Resizes the slice. Returns the messages and the exit status.
fn resize(machine: &Machine, size: &str, faults: &str) -> (String, i32) {
    let (_, err, status) = told(&mut resizing(machine, &[size], faults));
    (err, status)
}

/// The slice's limit of GPU 0 in GiB, in the ledger and in the driver.
fn limits(machine: &Machine) -> (u64, u64) {
    let mut command = HERE.gpuslice();
    let status = machine.home.of(&mut command).args(["status", "--json"]);
    let (out, _, _) = told(status.arg("llama"));
    let status: Value = serde_json::from_str(&out).unwrap();
    let device = &status["slices"][0]["devices"][0];
    // A lower limit of the driver stays, and is the answer.
    let uuid = device["device"].as_str().unwrap();
    let highest = format!("{uuid}={}=0", 139 * GIB);
    let program = HERE.gpuslice().get_program().to_owned();
    let root = cgroups::folder("/").unwrap().display().to_string();
    let words = [
        program.to_str().unwrap(),
        "driver-limit-probe",
        &root,
        &highest,
        "--beside=keep-lower",
    ];
    let (out, err, _) = told(&mut machine.run_command(&["--bare"], &words));
    let answer: Value = serde_json::from_str(out.trim()).unwrap();
    let hard = answer["Ok"]["hard"][0].as_u64();
    let hard = hard.unwrap_or_else(|| panic!("{out}{err}"));
    (device["limit"].as_u64().unwrap() / GIB, hard / GIB)
}

/// The processes that this one has started with a first argument of this name.
fn children(parent: u32, name: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_one = |pid: &i32| {
        let text = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let status = String::from_utf8(text("status")).unwrap_or_default();
        let words = text("cmdline");
        let is_named = words.split(|byte| *byte == 0).nth(1) == Some(name.as_bytes());
        is_named && status.contains(&format!("\nPPid:\t{parent}\n"))
    };
    pids.filter(is_one).collect()
}

/// The slice's limit, and the memory that is promised to it.
fn limit_and_promise(machine: &Machine) -> (u64, u64) {
    let mut command = HERE.gpuslice();
    let (out, _, _) = told(
        machine
            .home
            .of(&mut command)
            .args(["status", "--json", "llama"]),
    );
    let status: Value = serde_json::from_str(&out).unwrap();
    let [record] = &machine.records("tenants")[..] else {
        panic!("one slice is recorded");
    };
    let record: Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    let limit = status["slices"][0]["devices"][0]["limit"].as_u64();
    (
        limit.unwrap(),
        record["devices"][0]["memory"].as_u64().unwrap(),
    )
}

/// The command waited two minutes under the lock of admission. Hooks wait 30 seconds for it, so no
/// container started meanwhile.
#[test]
fn a_driver_that_hangs_leaves_the_limit_and_frees_the_lock_in_time() {
    if cgroups::mount().is_none() {
        eprintln!("not run: no cgroup of version 2 is mounted");
        return;
    }
    let hangs = "slow:nvmlDeviceSetMemoryLimits_v1=300000ms";
    let silent = "gpuslice: the limit was not changed: the driver did not answer within 7 s (";
    // The driver may still grant the larger size, so this memory stays promised.
    let cases = [
        ("16GiB", 16, "\nthe driver may still raise its own limit"),
        ("8GiB", 12, "\nthe driver may still lower its own limit"),
    ];
    std::thread::scope(|scope| {
        for (size, promised, later) in cases {
            scope.spawn(move || {
                let machine = Machine::new(&HERE, "rtx3090@615");
                let child = held_by_the_driver(&machine);
                let start = Instant::now();
                let (err, status) = resize(&machine, size, hangs);
                assert!(start.elapsed() < Duration::from_secs(25), "{err}");
                assert!(err.starts_with(silent) && err.contains(later), "{err}");
                assert_eq!(status, 125, "{err}");
                assert_eq!(limit_and_promise(&machine), (12 * GIB, promised * GIB));
                // The former size gives the rest back.
                let (err, status) = resize(&machine, "12GiB", "");
                assert_eq!((err.as_str(), status), ("", 0));
                assert_eq!(limit_and_promise(&machine), (12 * GIB, 12 * GIB));
                end(child);
            });
        }
    });
}

/// Resizes the slice to 80 GiB on its first GPU. The driver's limit follows.
fn first_gpu_gets_80(machine: &Machine) {
    let (_, err, status) = told(&mut resizing(machine, &["80GiB", "--device=0"], ""));
    assert_eq!((err.as_str(), status), ("", 0));
    assert_eq!(limits(machine), (80, 80));
}

/// The driver was not asked to restore a limit once the time was up. It kept the smaller one, and refused
/// memory that the slice showed as free.
#[test]
fn a_limit_that_was_lowered_is_restored_in_the_driver_though_another_hangs() {
    if cgroups::mount().is_none() {
        eprintln!("not run: no cgroup of version 2 is mounted");
        return;
    }
    // Each call takes a second or four, so one is lowered within 7 seconds, and not all others are raised.
    let cases = [(8, 1000, true), (3, 4000, false)];
    std::thread::scope(|scope| {
        for (count, slow, is_restored) in cases {
            scope.spawn(move || {
                let machine = Machine::new(&HERE, &format!("{count}xh200@615"));
                let child = held_by_the_driver(&machine);
                first_gpu_gets_80(&machine);
                let faults = format!("slow:nvmlDeviceSetMemoryLimits_v1={slow}ms");
                let (err, status) = resize(&machine, "40GiB", &faults);
                assert_eq!(status, 125, "{err}");
                assert!(
                    err.contains("\nthe driver may still raise its own limit"),
                    "{err}"
                );
                let line = "\nthe driver did not restore its own limit of GPU 0 (NVIDIA H200, ";
                assert_eq!(err.contains(line), !is_restored, "{err}");
                let driver = if is_restored { 80 } else { 40 };
                assert_eq!(limits(&machine), (80, driver), "{err}");
                // The advice of the message restores it.
                first_gpu_gets_80(&machine);
                end(child);
            });
        }
    });
}

/// Without persistence mode, each query loaded the driver again, in the short time under the lock.
#[test]
fn the_driver_stays_loaded_while_a_limit_is_changed() {
    if cgroups::mount().is_none() {
        eprintln!("not run: no cgroup of version 2 is mounted");
        return;
    }
    let machine = Machine::new(&HERE, "rtx3090@615");
    let child = held_by_the_driver(&machine);
    let hangs = "slow:nvmlDeviceSetMemoryLimits_v1=300000ms";
    let mut command = resizing(&machine, &["16GiB"], hangs);
    let mut resize = command.stderr(Stdio::null()).spawn().unwrap();
    let of = |name| children(resize.id(), name);
    eventually("the driver is asked", || {
        !of("driver-limit-probe").is_empty()
    });
    let [keeper] = of("driver-keeper")[..] else {
        panic!("the driver is not kept loaded");
    };
    let asks = of("driver-limit-probe");
    resize.kill().unwrap();
    resize.wait().unwrap();
    for ask in asks {
        // The command has killed it if its time was up.
        let _ = kill(Pid::from_raw(ask), Signal::SIGKILL);
    }
    // It does not outlive the command.
    eventually("the keeper has ended", || {
        fs::read(format!("/proc/{keeper}/cmdline")).map_or(true, |words| words.is_empty())
    });
    end(child);
}
