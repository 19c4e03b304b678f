//! Slices of Kubernetes' claims: by CDI devices as a driver writes them, through podman, and by hooks
//! in config.json, through runc.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::check::Check;
use gpuslice_containers::cri::Cri;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::{HOOK, Spec};
use serde_json::{Value, json};

/// The uuids of the machine's GPUs, and their memory.
fn gpus(host: &Host) -> Vec<(String, u64)> {
    let list = std::fs::read_to_string(host.path("/run/gpuslice/devices.json")).expect("the list");
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let each = list["devices"].as_array().expect("GPUs").iter();
    let gpu = |gpu: &Value| {
        let uuid = gpu["uuid"].as_str().expect("its uuid").to_owned();
        (uuid, gpu["memory"].as_u64().expect("its memory"))
    };
    each.map(gpu).collect()
}

fn arguments(name: &str, sizes: &[(&str, &str)], stage: &str) -> Vec<String> {
    let sizes = sizes
        .iter()
        .flat_map(|(uuid, size)| ["--memory".into(), format!("{uuid}={size}")]);
    let words = ["gpuslice-hook", "--slice", name].map(str::to_owned);
    words
        .into_iter()
        .chain(sizes)
        .chain([stage.to_owned()])
        .collect()
}

/// The hooks of a claim in config.json.
fn hooks(name: &str, sizes: &[(&str, &str)]) -> Value {
    let at = |stage: &str| json!([{"path": HOOK, "args": arguments(name, sizes, stage), "env": ["PATH=/usr/bin:/bin"]}]);
    json!({"createRuntime": at("createRuntime"), "poststop": at("poststop")})
}

/// Writes the CDI file of a claim, as a driver does.
fn cdi(host: &Host, claim: &str, sizes: &[(&str, &str)]) {
    let hook = |stage: &str| {
        json!({
            "hookName": stage, "path": HOOK, "args": arguments(claim, sizes, stage),
            "env": ["PATH=/usr/bin:/bin"],
        })
    };
    let edits = json!({"hooks": [hook("createRuntime"), hook("poststop")]});
    let file = json!({
        "cdiVersion": "0.5.0",
        "kind": "k8s.gpuslice.io/claim",
        "devices": [{"name": claim, "containerEdits": edits}],
    });
    let path = format!("/etc/cdi/k8s.gpuslice.io-claim-{claim}.json");
    host.write(&path, file.to_string());
}

#[test]
fn containers_of_one_claim_share_its_slice_and_claims_add_up() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut podman = Podman::new(&host, "runc", "createRuntime");
    let uuid = gpus(&host).remove(0).0;
    for (claim, size) in [
        ("3c1e-a0", "8GiB"),
        ("3c1e-b0", "4GiB"),
        ("77f0-c0", "2GiB"),
    ] {
        cdi(&host, claim, &[(&uuid, size)]);
    }
    let run = |spec: Spec, claims: &[&str]| -> Done {
        let options = podman.options(&spec);
        let devices = claims
            .iter()
            .map(|claim| format!("--device=k8s.gpuslice.io/claim={claim}"));
        let all: Vec<String> = devices.chain(options).collect();
        let mut words = vec!["run", "-d"];
        words.extend(all.iter().map(String::as_str));
        podman.podman(&words)
    };
    run(Spec::new("one"), &["3c1e-a0"]).ok();
    // The hook for annotated containers runs as well, and says the same.
    run(Spec::new("two").memory("8192MiB"), &["3c1e-a0"]).ok();
    run(Spec::new("sum"), &["3c1e-b0", "77f0-c0"]).ok();
    assert_sliced(&podman, "one", 8 * GIB);
    assert_sliced(&podman, "two", 8 * GIB);
    assert_sliced(&podman, "sum", 6 * GIB);
    let full = run(Spec::new("full").memory("10GiB"), &[]);
    assert_ne!(full.code, 0);
    // 23.69 - 8 - 6 GiB.
    assert!(
        full.err
            .contains("has 9.69 GiB left, 10.00 GiB requested; held by"),
        "{full:?}"
    );
    let more = run(Spec::new("more").memory("18GiB"), &["3c1e-a0"]);
    assert_ne!(more.code, 0);
    let said = "gives a slice of 8.00 GiB, and annotation gpuslice.io/memory says 18.00 GiB";
    assert!(more.err.contains(said), "{more:?}");
    let part = run(Spec::new("part"), &["77f0-c0"]);
    assert_ne!(part.code, 0);
    assert!(part.err.contains("uses 3c1e-b0,77f0-c0"), "{part:?}");
    // What remains of an attempt that was refused.
    for name in ["full", "more", "part"] {
        podman.remove(name);
    }
    let status = host.sh("gpuslice status --json").ok();
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let slices = status["slices"].as_array().expect("slices").iter();
    let mut users: Vec<usize> = slices
        .map(|slice| slice["containers"].as_array().map_or(0, Vec::len))
        .collect();
    users.sort_unstable();
    assert_eq!(users, [1, 2], "{status}");

    podman.restart("one");
    assert_sliced(&podman, "one", 8 * GIB);
    // A container that nothing ends properly leaves the slice to the other.
    podman.podman(&["kill", "one"]).ok();
    host.run("gpuslice", &["gc"]).ok();
    assert_sliced(&podman, "two", 8 * GIB);
    for name in ["one", "two", "sum"] {
        podman.remove(name);
    }
    assert_nothing_left(&host);
}

#[test]
fn a_kubelet_asks_containerd_for_containers_of_claims() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let uuid = gpus(&host).remove(0).0;
    let cri = Cri::with_cdi(&host, "runc", "");
    let name = |claim: &str| format!("k8s.gpuslice.io/claim={claim}");
    for (claim, size) in [
        ("3c1e-a0", "8GiB"),
        ("77f0-c0", "6GiB"),
        ("9d2b-e0", "12GiB"),
    ] {
        cdi(&host, claim, &[(&uuid, size)]);
    }
    let none = json!({});
    let run = |pod: &str, container: &str, annotations: &Value, claims: &[&str]| {
        let claims: Vec<String> = claims.iter().map(|claim| name(claim)).collect();
        let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
        cri.run_container_with(pod, &Spec::new(container), annotations, &claims)
    };
    let pods = ["p1", "p2", "p3"].map(|name| cri.run_pod(name, &none).expect("a pod"));
    let [p1, p2, p3] = &pods;
    // Two pods and three containers of one claim, and one of another.
    let shared = [(p1, "a"), (p1, "b"), (p2, "a")]
        .map(|(pod, name)| run(pod, name, &none, &["3c1e-a0"]).expect("it starts"));
    let own = run(p2, "own", &none, &["77f0-c0"]).expect("it starts");
    for id in &shared {
        assert_sliced(&cri, id, 8 * GIB);
    }
    assert_sliced(&cri, &own, 6 * GIB);
    let refused = run(p3, "late", &none, &["9d2b-e0"]).expect_err("there is no room");
    let said = "has 9.69 GiB left, 12.00 GiB requested; held by";
    assert!(refused.err.contains(said), "{}", refused.err);
    assert!(
        refused.err.contains("default/p1/a 8.00 GiB"),
        "{}",
        refused.err
    );
    // The last container of the first claim ends: the third claim has room.
    let [first, second, third] = &shared;
    cri.remove_container(first);
    cri.remove_container(second);
    assert!(
        run(p3, "late", &none, &["9d2b-e0"]).is_err(),
        "the claim is in use"
    );
    cri.remove_container(third);
    let late = run(p3, "late", &none, &["9d2b-e0"]).expect("there is room");
    assert_sliced(&cri, &late, 12 * GIB);
    for id in [&own, &late] {
        cri.remove_container(id);
    }
    // Several claims of one container.
    let sum = run(p3, "sum", &none, &["3c1e-a0", "77f0-c0"]).expect("it starts");
    assert_sliced(&cri, &sum, 14 * GIB);
    cri.remove_container(&sum);
    for pod in &pods {
        cri.remove_pod(pod);
    }
    assert_nothing_left(&host);
}

#[test]
fn an_annotation_beside_a_claim_is_refused_by_the_hook_of_the_class() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let uuid = gpus(&host).remove(0).0;
    let configure = "gpuslice runtime configure --runtime containerd";
    let cri = Cri::with_cdi(&host, "gpuslice", configure);
    cdi(&host, "3c1e-a0", &[(&uuid, "1GiB")]);
    let device = ["k8s.gpuslice.io/claim=3c1e-a0"];
    for (memory, starts) in [("18GiB", false), ("1024MiB", true)] {
        let annotations = json!({"gpuslice.io/memory": memory});
        let pod = cri.run_pod("annotated", &annotations).expect("a pod");
        let none = json!({});
        match cri.run_container_with(&pod, &Spec::new("c"), &none, &device) {
            Ok(id) => {
                assert!(starts, "the annotation enlarged the claim");
                assert_sliced(&cri, &id, GIB);
                cri.remove_container(&id);
            }
            Err(done) => {
                assert!(!starts, "{}", done.err);
                let said =
                    "gives a slice of 1.00 GiB, and annotation gpuslice.io/memory says 18.00 GiB";
                assert!(done.err.contains(said), "{}", done.err);
            }
        }
        cri.remove_pod(&pod);
    }
    assert_nothing_left(&host);
}

#[test]
fn a_claim_limits_its_gpu_and_counts_there_alone() {
    if !ready() {
        return;
    }
    let host = Host::with("2xh200");
    host.list_with_minors("2xh200");
    let gpus = gpus(&host);
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let spec = |name: &str| {
        let mut spec = Spec::new(name);
        spec.gpus = "2xh200";
        spec
    };
    // Four of 60 GiB, two on each card, although the configuration does not say which GPU each has.
    for (name, gpu) in [("f1", 0), ("f2", 0), ("f3", 1), ("f4", 1)] {
        let (uuid, whole) = &gpus[gpu];
        oci.hooks = hooks(name, &[(uuid, "60GiB")]);
        let id = oci.start(&spec(name)).expect("it starts");
        let check = Check::run(&oci, &id);
        assert!(check.consistent(), "{name}");
        // The other GPU is as large as it was. NVML's total of it is larger than CUDA's.
        assert_eq!(check.totals()[..2], [60 * GIB, *whole], "{name}");
    }
    oci.hooks = hooks("f5", &[(&gpus[1].0, "60GiB")]);
    let refused = oci.start(&spec("f5")).expect_err("there is no room");
    assert!(
        refused
            .out
            .contains("GPU 1 (NVIDIA H200, 139.81 GiB) has 19.81 GiB left"),
        "{refused:?}"
    );
    oci.hooks = hooks("f6", &[(&gpus[0].0, "10GiB"), (&gpus[1].0, "12GiB")]);
    let both = oci.start(&spec("f6")).expect("it starts");
    let check = Check::run(&oci, &both);
    assert_eq!(check.totals(), [10 * GIB, 12 * GIB], "{}", check.json());
    for name in ["f1", "f2", "f3", "f4", "f6"] {
        oci.remove(name);
    }
    assert_nothing_left(&host);
}
