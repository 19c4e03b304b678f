//! Slices by a pod's annotations: requested from containerd as a kubelet does, and by podman's
//! `play kube`.

use gpuslice_containers::cri::Cri;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced, assert_unsliced};
use gpuslice_containers::spec::Spec;
use serde_json::{Value, json};

/// Starts a containerd that `gpuslice runtime configure` has configured.
fn containerd(host: &Host) -> Cri<'_> {
    Cri::new(
        host,
        "gpuslice",
        "gpuslice runtime configure --runtime containerd",
    )
}

fn annotations(pairs: &[(&str, &str)]) -> Value {
    Value::Object(
        pairs
            .iter()
            .map(|&(key, value)| (key.to_owned(), json!(value)))
            .collect(),
    )
}

#[test]
fn a_kubelet_asks_containerd_for_pods_with_slices() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let cri = containerd(&host);
    let none = json!({});
    let pod = annotations(&[("gpuslice.io/memory", "5GiB"), ("other.io/memory", "1GiB")]);
    let pod = cri.run_pod("one", &pod).expect("a pod");
    let whole = cri
        .run_container(&pod, &Spec::new("whole"), &none)
        .expect("a container");
    assert_sliced(&cri, &whole, 5 * GIB);
    // The container's own annotation overrides the pod's. The container's root is read-only.
    let mut spec = Spec::new("own");
    spec.read_only = true;
    let own = cri.run_container(&pod, &spec, &annotations(&[("gpuslice.io/memory", "2GiB")]));
    let own = own.expect("a container");
    assert_sliced(&cri, &own, 2 * GIB);
    assert_sliced(&cri, &whole, 5 * GIB);
    let config = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{own}/config.json");
    let config = std::fs::read_to_string(host.path(&config)).expect("its configuration");
    assert!(
        !config.contains("other.io"),
        "what is not ours is not passed"
    );
    // A kubelet restarts a container by creating a new one.
    cri.remove_container(&own);
    let again = cri.run_container(&pod, &spec, &annotations(&[("gpuslice.io/memory", "3GiB")]));
    let again = again.expect("a container");
    assert_sliced(&cri, &again, 3 * GIB);
    cri.remove_container(&again);
    cri.remove_container(&whole);
    cri.remove_pod(&pod);
    assert_nothing_left(&host);

    // The request does not fit, and the refusal names the holders to the pod's author.
    let pod = annotations(&[("gpuslice.io/memory", "15GiB")]);
    let first = cri.run_pod("first", &pod).expect("a pod");
    let second = cri.run_pod("second", &pod).expect("a pod");
    let holder = cri
        .run_container(&first, &Spec::new("holder"), &none)
        .expect("a container");
    let refused = cri
        .run_container(&second, &Spec::new("late"), &none)
        .expect_err("no room");
    assert!(refused.err.contains("15.00 GiB"), "{}", refused.err);
    cri.remove_container(&holder);
    let late = cri
        .run_container(&second, &Spec::new("late"), &none)
        .expect("there is room now");
    assert_sliced(&cri, &late, 15 * GIB);
    cri.remove_container(&late);
    cri.remove_pod(&first);
    cri.remove_pod(&second);
    assert_nothing_left(&host);
}

/// A pod's annotation is also that of its sidecars and of `kubectl debug`.
#[test]
fn containers_of_a_pod_that_containerd_gives_no_gpu_take_no_memory_of_one() {
    if !ready() {
        return;
    }
    let host = Host::new();
    host.list_with_minors("rtx3090");
    let cri = containerd(&host);
    let pod = annotations(&[("gpuslice.io/memory", "20GiB")]);
    let pod = cri.run_pod("sidecars", &pod).expect("a pod");
    let ids = ["one", "other"].map(|name| {
        let id = cri.run_container(&pod, &Spec::new(name), &json!({}));
        id.expect("two slices of 20 GiB do not fit, and neither counts")
    });
    for id in &ids {
        let record = host.path(&format!("/run/gpuslice/slices/{id}.json"));
        let record = std::fs::read_to_string(record).expect("its record");
        let record: Value = serde_json::from_str(&record).expect("JSON");
        assert_eq!(record["devices"], json!([]), "{record}");
        cri.remove_container(id);
    }
    cri.remove_pod(&pod);
    assert_nothing_left(&host);
}

#[test]
fn a_pod_that_was_written_for_another_system_gets_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let cri = Cri::new(
        &host,
        "gpuslice",
        "printf '[dialects]\nkai = true\nhami = true\n' >/etc/gpuslice/config.toml
         gpuslice runtime configure --runtime containerd",
    );
    let none = json!({});
    let gpu = "GPU-3090aaaa-1111-4222-8333-444455550000";
    let shares = format!("{gpu},NVIDIA,3072,0:;");
    for (pod, size, annotation) in [
        ("kai", 4 * GIB, ("gpu-memory", "4096")),
        (
            "fractions",
            2 * GIB,
            ("nvidia.com/container.main.gpu-memory.request", "2Gi"),
        ),
        (
            "hami",
            3 * GIB,
            ("hami.io/vgpu-devices-allocated", shares.as_str()),
        ),
    ] {
        let pod = cri
            .run_pod(pod, &annotations(&[annotation]))
            .expect("a pod");
        let main = cri.run_container(&pod, &Spec::new("main"), &none);
        let main = main.expect("a container");
        assert_sliced(&cri, &main, size);
        cri.remove_container(&main);
        cri.remove_pod(&pod);
    }
    assert_nothing_left(&host);
}

#[test]
fn a_pods_annotations_name_containers_and_share_a_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let cri = containerd(&host);
    let none = json!({});
    let pod = annotations(&[
        ("gpuslice.io/memory", "5GiB"),
        ("gpuslice.io/containers", "engine"),
        ("gpuslice.io/container.small.memory", "1GiB"),
    ]);
    let pod = cri.run_pod("named", &pod).expect("a pod");
    let engine = cri
        .run_container(&pod, &Spec::new("engine"), &none)
        .expect("a container");
    let sidecar = cri
        .run_container(&pod, &Spec::new("sidecar"), &none)
        .expect("a container");
    assert_sliced(&cri, &engine, 5 * GIB);
    assert_unsliced(&cri, &sidecar);
    for id in [engine, sidecar] {
        cri.remove_container(&id);
    }
    cri.remove_pod(&pod);
    assert_nothing_left(&host);

    // Both containers share 16 GiB. Two slices of that size would not fit.
    let shared = annotations(&[
        ("gpuslice.io/memory", "16GiB"),
        ("gpuslice.io/share", "pod"),
    ]);
    let pod = cri.run_pod("shared", &shared).expect("a pod");
    let one = cri
        .run_container(&pod, &Spec::new("one"), &none)
        .expect("a container");
    let two = cri
        .run_container(&pod, &Spec::new("two"), &none)
        .expect("it shares");
    assert_sliced(&cri, &one, 16 * GIB);
    assert_sliced(&cri, &two, 16 * GIB);
    // The slice exists as long as one of its containers.
    cri.remove_container(&one);
    assert_sliced(&cri, &two, 16 * GIB);
    let other = cri
        .run_pod("other", &annotations(&[("gpuslice.io/memory", "16GiB")]))
        .expect("a pod");
    let refused = cri.run_container(&other, &Spec::new("late"), &none);
    assert!(refused.is_err(), "another pod got the memory");
    cri.remove_container(&two);
    cri.remove_pod(&pod);
    cri.remove_pod(&other);
    assert_nothing_left(&host);
}

/// The configuration that runc got for a container, without the parts that differ between any two.
fn configuration(host: &Host, id: &str, pod: &str, name: &str) -> Value {
    let path = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json");
    let text = std::fs::read_to_string(host.path(&path)).expect("its configuration");
    let text = text
        .replace(id, "ID")
        .replace(pod, "POD")
        .replace(name, "NAME");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    // The paths of the namespaces contain the pid of the pod's first process.
    for namespace in config["linux"]["namespaces"].as_array_mut().expect("some") {
        namespace.as_object_mut().expect("an object").remove("path");
    }
    config
}

#[test]
fn a_container_of_the_class_differs_only_by_its_hooks_and_annotation() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut cri = containerd(&host);
    let annotated = annotations(&[("gpuslice.io/memory", "2GiB")]);
    let mut configs = Vec::new();
    for (handler, name) in [("gpuslice", "with-class"), ("runc", "no-class")] {
        cri.handler = handler;
        let pod = cri.run_pod(name, &annotated).expect("a pod");
        let id = cri.run_container(&pod, &Spec::new("same"), &json!({}));
        let id = id.expect("a container");
        configs.push(configuration(&host, &id, &pod, name));
        cri.remove_container(&id);
        cri.remove_pod(&pod);
    }
    let [with, without] = &mut configs[..] else {
        panic!("two");
    };
    let hooks = with.as_object_mut().expect("an object").remove("hooks");
    assert_eq!(
        hooks.map(|hooks| hooks["createRuntime"].as_array().map(Vec::len)),
        Some(Some(1))
    );
    let own = with["annotations"].as_object_mut().expect("some");
    assert_eq!(own.remove("gpuslice.io/memory"), Some(json!("2GiB")));
    assert_eq!(with, without);
}

#[test]
fn podman_plays_a_pod_of_kubernetes() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut podman = Podman::new(&host, "crun", "createRuntime");
    podman.import_pause();
    let mounts: Vec<Value> = Spec::new("x")
        .all_mounts()
        .iter()
        .enumerate()
        .map(|(at, (_, to, how))| json!({"name": format!("m{at}"), "mountPath": to, "readOnly": *how == "ro"}))
        .collect();
    let volumes: Vec<Value> = Spec::new("x")
        .all_mounts()
        .iter()
        .enumerate()
        .map(|(at, (from, ..))| json!({"name": format!("m{at}"), "hostPath": {"path": from}}))
        .collect();
    let container = |name: &str| {
        json!({
            "name": name,
            "image": "localhost/debian:1",
            "imagePullPolicy": "Never",
            "command": ["/usr/bin/sleep", "1000000"],
            "env": [{"name": "GPUSLICE_SIM", "value": "rtx3090"}, {"name": "GPUSLICE_SIM_STATE", "value": "/state"}],
            "volumeMounts": mounts,
        })
    };
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "played", "annotations": {"gpuslice.io/memory": "6GiB"}},
        "spec": {"hostNetwork": true, "volumes": volumes, "containers": [container("a"), container("b")]},
    });
    // JSON is valid YAML.
    host.write("/run/pod.yaml", pod.to_string());
    podman.podman(&["play", "kube", "/run/pod.yaml"]).ok();
    for name in ["played-a", "played-b"] {
        assert_sliced(&podman, name, 6 * GIB);
    }
    podman.remove_pod("played");
    podman.remove("played-a");
    assert_nothing_left(&host);
}
