//! `gpuslice resize` of a slice whose limit the driver holds.

use crate::support::machine::{Machine, end};
use crate::support::{Installation, told};
use gpuslice_host::machine::cgroups;
use serde_json::{Value, json};
use std::fs;
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
    slice["devices"][0]["driver_limit"] = json!("dmem");
    fs::write(config, slice.to_string()).unwrap();
    child
}

/// Resizes the slice. Returns the messages and the exit status.
fn resize(machine: &Machine, size: &str, faults: &str) -> (String, i32) {
    let mut command = HERE.gpuslice();
    let command = machine
        .home
        .of(&mut command)
        .args(["resize", "llama", size]);
    let (_, err, status) = told(command.env("GPUSLICE_SIM_FAULTS", faults));
    (err, status)
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
    let silent = "gpuslice: the limit was not changed: the driver did not answer within 10 s (";
    // What the driver may still grant stays promised.
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
