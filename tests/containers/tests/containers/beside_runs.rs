//! Containers and `gpuslice run` on one machine share /run/gpuslice, whichever comes first.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::Spec;

/// Runs gpuslice as on a real machine, so that its promise is in the folder of the containers'
/// promises.
fn run(host: &Host, memory: &str, command: &str) -> String {
    let script = format!("GPUSLICE_SIM=gb10 gpuslice run --memory {memory} -- {command}");
    host.sh(&script).ok()
}

fn container(name: &str) -> Spec {
    let mut spec = Spec::new(name).memory("8GiB");
    spec.gpus = "gb10";
    spec
}

#[test]
fn a_run_of_root_before_the_first_container_and_the_reverse() {
    if !ready() {
        return;
    }
    for container_first in [false, true] {
        let host = Host::with("gb10");
        let mut oci = Oci::new(&host, "runc", "createRuntime");
        if container_first {
            let id = oci.start(&container("first")).expect("it starts");
            oci.remove(&id);
        }
        run(&host, "1GiB", "true");
        let modes = host
            .sh("cd /run/gpuslice && stat -c '%n %a' . slices containers ledgers promises; stat -f -c %T promises")
            .ok();
        assert_eq!(
            modes, ". 711\nslices 700\ncontainers 700\nledgers 700\npromises 755\ntmpfs\n",
            "{container_first}"
        );
        let own = host.mounts();
        let of_promises = own
            .iter()
            .filter(|point| *point == "/run/gpuslice/promises");
        assert_eq!(of_promises.count(), 1, "{container_first}: {own:?}");
        let id = oci.start(&container("second")).expect("it starts");
        assert_sliced(&oci, &id, 8 * GIB);
        let listed = oci.exec(&id, &["ls", "/.gpuslice/promises"]).ok();
        assert_eq!(listed.lines().count(), 1, "{listed}");
        run(&host, "1GiB", "true");
        oci.remove(&id);
        assert_nothing_left(&host);
    }
}

#[test]
fn what_status_says_is_left_of_the_hosts_memory_is_what_a_container_gets() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    let status = || {
        let said = host.sh("GPUSLICE_SIM=gb10 gpuslice status --json").ok();
        let status: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let card = &status["cards"][0];
        let left = card["left_to_give"].as_u64();
        left.unwrap_or_else(|| panic!("{status}"))
    };
    let by_default = status();
    host.sh("echo 'reserve = \"24GiB\"' >>/etc/gpuslice/config.toml")
        .ok();
    let left = status();
    assert!(left < by_default, "{left}, {by_default}");
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    // The host's available memory changes meanwhile.
    let mut larger = container("larger");
    larger = larger.memory(&format!("{}MiB", (left >> 20) + 256));
    assert!(oci.start(&larger).is_err());
    let fits = container("fits").memory(&format!("{}MiB", (left >> 20) - 256));
    let id = oci.start(&fits).expect("it starts");
    oci.remove(&id);
    assert_nothing_left(&host);
}
