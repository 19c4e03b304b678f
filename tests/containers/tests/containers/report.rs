//! `gpuslice report` on the host, of containers that a real runtime has started.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::assert_nothing_left;
use gpuslice_containers::spec::Spec;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;

/// The host memory that each container's first process holds. It holds no device memory.
const HOST_MEMORY: u64 = 64 * MIB;

/// Holds host memory, starts a process that holds device memory, and waits for its end.
fn command(mib: u64) -> String {
    format!(
        "x=$(head -c {HOST_MEMORY} /dev/zero | tr '\\0' x); ledger hold {mib} /tmp/held; echo \"$x\""
    )
}

/// The report listed a process of one container under the slice of the other, which had a process
/// with the same id in its own namespace, and the other's processes and their host memory nowhere.
#[test]
fn a_report_lists_each_containers_processes_with_their_host_memory() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let names = [("one", 512), ("other", 1024)];
    for (name, mib) in names {
        let spec = Spec::new(name).memory("8GiB");
        let spec = spec.running(&["/usr/bin/bash", "-c", &command(mib)]);
        oci.prepare(&spec);
        let root = format!("{}/rootfs", Oci::bundle(name));
        let copy = "cp /run/build/containers/ledger";
        host.sh(&format!(
            "{copy} {root}/usr/bin/ledger && chmod 1777 {root}/tmp"
        ))
        .ok();
        assert_eq!(oci.run(name).code, 0, "{name}");
        let held = host.path(&format!("{root}/tmp/held"));
        host.wait_for("it holds its memory", || {
            std::fs::read_to_string(&held).is_ok_and(|said| said.contains("got"))
        });
    }
    let report = host.run("gpuslice", &["report", "--json"]).ok();
    let report: Value = serde_json::from_str(&report).expect("JSON");
    for (name, mib) in names {
        let slices = report["slices"].as_array().expect("a list");
        let slice = slices.iter().find(|slice| slice["name"] == name);
        let processes = slice.expect("its slice")["processes"].as_array();
        let processes = processes.expect("a list");
        let pids: BTreeSet<u64> = processes
            .iter()
            .filter_map(|one| one["pid"].as_u64())
            .collect();
        let listed = host.run("runc", &["ps", "--format=json", name]).ok();
        let listed: BTreeSet<u64> = serde_json::from_str(&listed).expect("a list of processes");
        assert_eq!(pids, listed, "{name}: {report}");
        let of = |command: &str| processes.iter().find(|one| one["name"] == command);
        let (first, holder) = (of("bash").expect("bash"), of("ledger").expect("ledger"));
        assert_eq!(holder["device"]["linear"], json!(mib * MIB), "{report}");
        assert_eq!(first["device"], json!({}), "{report}");
        let live = first["host"]["live"].as_u64().expect("its host memory");
        let kept = first["host"]["kept"].as_u64().unwrap_or(0);
        assert!(live + kept >= HOST_MEMORY, "{report}");
    }
    for (name, _) in names {
        oci.remove(name);
    }
    assert_nothing_left(&host);
}
