//! A slice that is mounted into a container whose own /proc/meminfo is a copy (lxcfs). The library
//! reads the host's file and not the copy, and the programs in the container see the slice. The
//! container's cgroup is the slice's, wherever the slice is mounted.
//! Touches: a mount namespace with a root of its own, on a simulated GB10. Needs root, or user
//! namespaces.

use gpuslice_config::ledger::{Ledger, Open};
use gpuslice_sim_machine::Machine as Simulated;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, write};
use gpuslice_suite::{compile, place};
use serde_json::json;
use std::ffi::CString;

const CONTEXT: u64 = 256 << 20;
const LIMIT: u64 = 40 * GIB;

/// The usual place of a mounted slice.
const IN_ROOT: &str = "/.gpuslice";
/// Its place in a container whose root file system is read-only.
const IN_DEV: &str = "/dev/gpuslice";

/// The output of a program in the container, with the library preloaded.
fn said(program: &[&str]) -> String {
    said_at(IN_ROOT, 0, program)
}

/// `said` for a slice that is mounted at `place`, in a container whose cgroup holds `bytes`.
fn said_at(place: &str, bytes: u64, program: &[&str]) -> String {
    let machine = Machine::new("gb10");
    let _simulated = Simulated::start(Some("gb10"), Some(&machine.state()), "").unwrap();
    let path = |name: &str| machine.folder().join(name);
    let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
    let device = json!({"uuid": uuid, "memory": LIMIT, "integrated": true});
    let mut slice =
        json!({"version": 1, "name": "mounted", "devices": [device], "reserve": 8 * GIB});
    if place == IN_DEV {
        // The hook names all files of such a slice.
        slice["meminfo"] = json!("/dev/gpuslice/meminfo");
        slice["ledger"] = json!("/dev/gpuslice/ledger/ledger");
        slice["promises"] = json!("/dev/gpuslice/promises");
        slice["promise"] = json!("/dev/gpuslice/promise");
    }
    write(&path("slice.json"), slice.to_string().as_bytes());
    let ledger = CString::new(path("ledger").as_os_str().as_encoded_bytes()).unwrap();
    let (mode, devices) = (0o600, 1);
    Ledger::open(&ledger, Open::Create { mode, devices }).unwrap();
    let copy = b"MemTotal: 8388608 kB\nMemFree: 8000000 kB\nMemAvailable: 8000000 kB\n";
    write(&path("copy"), copy);
    // SAFETY: takes nothing.
    let root = unsafe { libc::geteuid() } == 0;
    let user: &[&str] = if root { &[] } else { &["--map-root-user"] };
    let run = Run::new("unshare")
        .args(user)
        .args(["--mount", "--propagation", "private"]);
    let run = run
        .arg(place::source("scripts/mounted.sh"))
        .arg(path("container"))
        .args([place, &bytes.to_string()]);
    let run = run
        .arg(path("slice.json"))
        .arg(path("ledger"))
        .arg(machine.state().join("meminfo"))
        .arg(path("copy"));
    let preload = format!("LD_PRELOAD={}", place::shim().display());
    let run = run.args(["env", &preload]).args(program);
    machine.place(run).answer().clean()
}

#[test]
fn programs_in_a_container_whose_meminfo_is_a_copy_see_the_slice() {
    let shown = said(&["head", "-3", "/proc/meminfo"]);
    let total = LIMIT >> 10;
    let lines = ["MemTotal:       ", "MemFree:        ", "MemAvailable:   "];
    let expected = lines.map(|name| format!("{name}{total} kB\n")).concat();
    assert_eq!(shown, expected);
}

#[test]
fn the_hosts_memory_decides_and_the_containers_copy_does_not() {
    let program = compile::linked_cuda();
    let shown = said(&[program.to_str().unwrap()]);
    let free = LIMIT - CONTEXT;
    assert!(
        shown.contains(&format!("context total={LIMIT} free={free}\n")),
        "{shown}"
    );
}

#[test]
fn a_mounted_slice_is_charged_what_its_containers_cgroup_holds() {
    let program = compile::linked_cuda();
    let program = program.to_str().unwrap();
    for place in [IN_ROOT, IN_DEV] {
        // The allowance is 4 GiB.
        for (holds, charged) in [(GIB, 0), (9 * GIB, 5 * GIB)] {
            let shown = said_at(place, holds, &[program]);
            let free = LIMIT - CONTEXT - charged;
            let expected = format!("context total={LIMIT} free={free}\n");
            assert!(shown.contains(&expected), "{place} {holds}: {shown}");
        }
    }
}

#[test]
fn what_a_mounted_slice_has_spent_stands_in_its_promise() {
    // The worker waits behind a gate until its promise was read.
    let worker = compile::worker().display().to_string();
    let line = format!(
        "gate=$(mktemp -u) && mkfifo $gate && \
         (echo 0 start 0; echo 0 alloc 0 {GIB}; cat $gate) | {worker} | \
         (read one; read two; od -A n -t u8 -N 8 /.gpuslice/promise; : >$gate); rm $gate"
    );
    let spent: u64 = said(&["sh", "-c", &line]).trim().parse().unwrap();
    assert_eq!(spent, GIB + CONTEXT);
}
