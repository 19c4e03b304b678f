//! Containers whose requests are written for other systems.
//! Touches: mount namespaces of its own, files below the test's root. Needs root.

use crate::support::{CARD, Container, Host, hook, is_root};
use serde_json::json;
use std::fs;

const ON: &str = "[dialects]\nkai = true\nhami = true\nnvidia = true\n";

/// A container with these annotations and variables.
fn container<'a>(host: &'a Host, annotations: &[(&str, &str)], env: &[&str]) -> Container<'a> {
    let container = host.asking("c1", annotations);
    let path = host.path("bundles/c1/config.json");
    let mut spec: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    spec["process"] = json!({"env": env});
    fs::write(path, spec.to_string()).unwrap();
    container
}

fn slice_file(host: &Host) -> serde_json::Value {
    let path = host.run("containers/c1/root/slice.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn a_container_in_each_dialect_gets_its_slice() {
    if !is_root() {
        return;
    }
    let shares = format!("{CARD},NVIDIA,12288,0:;");
    for (annotations, env) in [
        (vec![("gpu-fraction", "0.5")], vec![]),
        (vec![("gpu-memory", "12288")], vec![]),
        (vec![("hami.io/vgpu-devices-allocated", &*shares)], vec![]),
        (vec![], vec!["CUDA_DEVICE_MEMORY_LIMIT_0=12288m"]),
        (vec![], vec!["NVIDIA_GPU_MEMORY_LIMIT=12288"]),
        (vec![], vec!["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=12G"]),
    ] {
        let host = Host::new();
        host.policy(ON);
        let container = container(&host, &annotations, &env);
        container.is_given_its_slice();
        let slice = slice_file(&host);
        assert_eq!(
            slice["devices"][0]["memory"],
            12u64 << 30,
            "{annotations:?} {env:?}: {slice}"
        );
    }
}

#[test]
fn what_a_slice_cannot_honour_is_in_the_event_and_on_standard_error() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy(ON);
    let annotations = [("gpu-memory", "8192"), ("mps", "true")];
    let container = container(&host, &annotations, &["CUDA_DEVICE_SM_LIMIT=30"]);
    let said = container.hook(&["createRuntime"]);
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8(said.stderr).unwrap();
    let events = fs::read_to_string(host.path("var/log/gpuslice/events.jsonl")).unwrap();
    for line in [
        "mps true is not honoured",
        "CUDA_DEVICE_SM_LIMIT 30 is not honoured",
    ] {
        assert!(said.contains(line), "{said}");
        assert!(events.contains(line), "{events}");
    }
    assert!(events.contains(r#""event":"start""#), "{events}");
    assert!(
        events.contains(r#""unhonoured":["mps true is not"#),
        "{events}"
    );
}

#[test]
fn a_request_that_is_not_understood_keeps_the_container_from_starting() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy(ON);
    let said = container(&host, &[("gpu-fraction", "half")], &[]).is_refused();
    assert!(
        said.contains(r#"gpu-fraction: "half" is not a number between 0 and 1"#),
        "{said}"
    );
    let both = [("gpu-memory", "8192"), ("gpuslice.io/memory", "4GiB")];
    let said = container(&host, &both, &[]).is_refused();
    assert!(
        said.contains("gpuslice.io/memory says 4.00 GiB, and gpu-memory says 8192"),
        "{said}"
    );
    let too_much = container(&host, &[("gpu-memory", "99999")], &[]).is_refused();
    assert!(too_much.contains("no room for c1"), "{too_much}");
}

#[test]
fn another_systems_keys_do_nothing_unless_the_policy_names_it() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy("[dialects]\nnvidia = true");
    let container = container(
        &host,
        &[("gpu-memory", "8192")],
        &["CUDA_DEVICE_MEMORY_LIMIT=1g"],
    );
    let said = container.hook(&["createRuntime"]);
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    assert!(!host.run("containers/c1").exists());
}

#[test]
fn a_request_in_the_state_counts_if_the_configuration_cannot_be_read() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy(ON);
    let container = container(&host, &[], &[]);
    for config in [
        "{",
        r#"{"annotations":{"gpu-memory":"1","gpu-memory":"2"}}"#,
    ] {
        fs::write(host.path("bundles/c1/config.json"), config).unwrap();
        let mut state: serde_json::Value = serde_json::from_str(&container.state()).unwrap();
        if config == "{" {
            state["annotations"] = json!({"gpu-memory": "8192"});
        }
        let said = hook(&host, &["createRuntime"], &state.to_string());
        assert_eq!(said.status.code(), Some(1), "{config}: {said:?}");
    }
    // Whoever requests nothing starts.
    fs::write(host.path("bundles/c1/config.json"), "{").unwrap();
    let said = hook(&host, &["createRuntime"], &container.state());
    assert!(said.status.success(), "{said:?}");
}

#[test]
fn a_variable_that_is_too_long_to_be_read_is_refused() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy(ON);
    let long = format!(
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G{}",
        ",1=1G".repeat(300)
    );
    let said = container(&host, &[("gpu-memory", "8192")], &[&long]).is_refused();
    assert!(said.contains("longer than 1 KiB"), "{said}");
}
