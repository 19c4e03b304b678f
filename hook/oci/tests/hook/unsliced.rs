//! A container that starts without its slice because the host failed (`on-error` = `"start"`) is
//! recorded, so that `gpuslice status` shows it.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Container, Host, is_root};
use serde_json::{Value, json};
use std::fs;

const START: &str = "[on-error]\nannotated = \"start\"\n";

fn record(host: &Host, id: &str) -> Value {
    let text = fs::read_to_string(host.run(&format!("slices/{id}.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn starts(container: &Container<'_>) -> String {
    let said = container.hook(&["createRuntime"]);
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stderr).unwrap()
}

#[test]
fn a_container_that_starts_because_the_host_failed_is_recorded() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy(START);
    let devices = fs::read(host.run("devices.json")).unwrap();
    fs::write(host.run("devices.json"), "garbage").unwrap();
    let container = host.asking(
        "c1",
        &[
            ("gpuslice.io/memory", "8GiB"),
            ("io.kubernetes.cri.container-name", "server"),
        ],
    );
    let said = starts(&container);
    let (_, why) = said.trim().split_once(" starts without a slice: ").unwrap();
    let kept = record(&host, "c1");
    assert_eq!(kept["containers"][0]["no_slice"], why, "{kept}");
    assert_eq!(kept["containers"][0]["pid"], container.pid());
    assert_eq!(kept["name"], "server");
    assert_eq!(kept["devices"], serde_json::json!([]));

    // The record claims no memory.
    fs::write(host.run("devices.json"), devices).unwrap();
    host.asking("c2", &[("gpuslice.io/memory", "24GiB")])
        .is_given_its_slice();
    host.collect();
    assert!(host.run("slices/c1.json").exists());
    assert!(container.hook(&["poststop"]).status.success());
    assert!(!host.run("slices/c1.json").exists());
}

#[test]
fn a_claims_container_that_starts_without_a_slice_names_its_claim() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy(START);
    fs::write(host.run("devices.json"), "garbage").unwrap();
    let container = host.asking("c1", &[]);
    let words = "--slice a --claim team/c1 --memory 1GiB createRuntime";
    let words: Vec<&str> = words.split(' ').collect();
    let said = container.hook(&words);
    assert!(said.status.success(), "{said:?}");
    let kept = record(&host, "c1");
    assert_eq!(kept["containers"][0]["claims"], "a", "{kept}");
    // The slice of the claim's other containers stays theirs.
    assert_eq!(
        (&kept["named"], &kept["namespace"]),
        (&Value::Null, &"team".into())
    );
}

#[test]
fn a_container_whose_second_hook_succeeds_has_its_slice_and_one_record() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy(START);
    let devices = fs::read(host.run("devices.json")).unwrap();
    fs::write(host.run("devices.json"), "garbage").unwrap();
    let container = host.container("c1");
    starts(&container);
    fs::write(host.run("devices.json"), devices).unwrap();
    container.is_given_its_slice();
    let kept = record(&host, "c1");
    assert_eq!(kept["containers"][0]["no_slice"], Value::Null, "{kept}");
    assert_eq!(kept["devices"][0]["memory"], 8u64 << 30, "{kept}");
    // Now the first process holds memory, so a container of 24 GiB no longer fits.
    host.asking("c2", &[("gpuslice.io/memory", "24GiB")])
        .is_refused();
}

#[test]
fn a_container_that_is_dead_is_forgotten() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy(START);
    fs::write(host.run("devices.json"), "garbage").unwrap();
    let mut container = host.container("c1");
    starts(&container);
    container.dies();
    host.collect();
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_mistyped_name_of_a_container_is_logged_if_the_container_has_a_gpu() {
    if !is_root() {
        return;
    }
    let typo = [
        ("io.kubernetes.cri.container-name", "server"),
        ("gpuslice.io/containers", "servr"),
        ("gpuslice.io/memory", "8GiB"),
    ];
    let host = Host::new();
    for (minor, line) in [
        (
            0,
            "server: its annotations name other containers or GPUs, and its GPU has no limit\n",
        ),
        (255, ""),
    ] {
        let container = host.asking("c1", &typo);
        let path = host.path("bundles/c1/config.json");
        let mut spec: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let node = json!({"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": minor});
        spec["linux"]["devices"] = json!([node]);
        fs::write(path, spec.to_string()).unwrap();
        let said = container.hook(&["createRuntime"]);
        assert!(said.status.success(), "{said:?}");
        let said = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.strip_prefix("gpuslice: ").unwrap_or(&said), line);
    }
}
