//! Slices of Kubernetes' claims: hooks that give a name, sizes of single GPUs, and options. A driver
//! writes such hooks into CDI devices, and the engine into config.json.
//! Touches: mount namespaces of its own. Needs root.

mod life;
mod refused;

use crate::support::{CARD, Container, Host, is_root};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;

const GIB: u64 = 1 << 30;
const OTHER: &str = "GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

/// The arguments of the hook of a claim.
fn claim(name: &str, gpu: &str, memory: &str) -> Vec<String> {
    let memory = format!("{gpu}={memory}");
    let words = ["--slice", name, "--memory", &memory];
    words.map(str::to_owned).to_vec()
}

/// A container of this pod, with the hooks of these claims in its configuration.
fn using<'a>(
    host: &'a Host,
    pod: &str,
    annotations: &[(&str, &str)],
    claims: &[Vec<String>],
) -> Container<'a> {
    let sandbox = format!("{pod:0>32}");
    let mut all = vec![
        ("io.kubernetes.cri.container-name", "c"),
        ("io.kubernetes.cri.sandbox-name", pod),
        ("io.kubernetes.cri.sandbox-namespace", "team"),
        ("io.kubernetes.cri.sandbox-id", &sandbox),
    ];
    all.extend(annotations);
    let container = host.asking(pod, &all);
    let hook = |options: &Vec<String>, stage: &str| {
        let name = ["gpuslice-hook".to_owned()];
        let words: Vec<&String> = name.iter().chain(options).collect();
        let mut args = json!(words);
        args.as_array_mut().unwrap().push(json!(stage));
        json!({"path": "/usr/bin/gpuslice-hook", "args": args})
    };
    let at = |stage| {
        claims
            .iter()
            .map(|claim| hook(claim, stage))
            .collect::<Vec<_>>()
    };
    let path = container.bundle.join("config.json");
    let mut spec: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    spec["hooks"] = json!({
        "createRuntime": at("createRuntime"),
        "createContainer": at("createContainer"),
        "poststop": at("poststop"),
    });
    fs::write(&path, spec.to_string()).unwrap();
    container
}

/// Runs one of the container's hooks. Returns its exit status and its message.
fn run(container: &Container<'_>, claim: &[String], stage: &str) -> (Option<i32>, String) {
    let mut words: Vec<&str> = claim.iter().map(String::as_str).collect();
    words.push(stage);
    let said = container.hook(&words);
    (said.status.code(), String::from_utf8(said.stderr).unwrap())
}

fn starts(container: &Container<'_>, claims: &[Vec<String>]) {
    for claim in claims {
        assert_eq!(
            run(container, claim, "createRuntime"),
            (Some(0), String::new())
        );
    }
}

fn stops(container: &Container<'_>, claims: &[Vec<String>]) {
    for claim in claims {
        assert_eq!(run(container, claim, "poststop"), (Some(0), String::new()));
    }
}

fn refused(container: &Container<'_>, claim: &[String]) -> String {
    let (status, said) = run(container, claim, "createRuntime");
    assert_eq!(status, Some(1), "{said}");
    assert!(!container.inside(".gpuslice").exists());
    said
}

/// The GPUs in a container's slice file, with their limits.
fn limits(container: &Container<'_>) -> Vec<(String, u64)> {
    let slice = fs::read(container.inside(".gpuslice/slice.json")).unwrap();
    let slice: Value = serde_json::from_slice(&slice).unwrap();
    assert_eq!(slice["memory"], Value::Null, "a limit of every GPU");
    let devices = slice["devices"].as_array().unwrap().iter();
    let limit = |device: &Value| {
        let uuid = device["uuid"].as_str().unwrap().to_owned();
        (uuid, device["memory"].as_u64().unwrap())
    };
    devices.map(limit).collect()
}

fn two_cards() -> Host {
    let host = Host::new();
    let card = |index: u32, uuid: &str| {
        let memory = 24 * GIB;
        format!(
            r#"{{"uuid":"{uuid}","index":{index},"minor":{index},"name":"Card","memory":{memory}}}"#
        )
    };
    host.devices(&format!("{},{}", card(0, CARD), card(1, OTHER)));
    host
}

fn ledger(container: &Container<'_>) -> (u64, u64) {
    let facts = fs::metadata(container.inside(".gpuslice/ledger/ledger")).unwrap();
    (facts.dev(), facts.ino())
}

/// The only record of the host.
fn record(host: &Host) -> Value {
    let mut files = fs::read_dir(host.run("slices")).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none(), "more than one slice");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn one_claim_of_two_containers_gave_two_slices() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("3c1e-77", CARD, "20GiB")];
    let (one, two) = (
        using(&host, "p1", &[], &claims),
        using(&host, "p2", &[], &claims),
    );
    starts(&one, &claims);
    starts(&two, &claims);
    assert_eq!(ledger(&one), ledger(&two));
    assert_eq!(limits(&two), [(CARD.to_owned(), 20 * GIB)]);
    let late = host.container("late");
    let said = late.is_refused();
    assert!(
        said.contains("has 4.00 GiB left, 8.00 GiB requested; held by team/p1/c 20.00 GiB\n"),
        "{said}"
    );
    // The slice lives as long as one of its containers, and is known by one that lives.
    stops(&one, &claims);
    let said = late.is_refused();
    assert!(said.contains("held by team/p2/c 20.00 GiB\n"), "{said}");
    assert_eq!(record(&host)["named"], "3c1e-77");
    // A container that is started again has it back.
    let again = using(&host, "p3", &[], &claims);
    starts(&again, &claims);
    assert_eq!(ledger(&again), ledger(&two));
    stops(&two, &claims);
    stops(&again, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
    late.is_given_its_slice();
}

#[test]
fn a_size_named_no_gpu_and_counted_on_each() {
    if !is_root() {
        return;
    }
    let host = two_cards();
    // Four of 11 GiB, two on each card, as a scheduler places them.
    let pods: Vec<_> = [("f1", CARD), ("f2", CARD), ("f3", OTHER), ("f4", OTHER)]
        .into_iter()
        .map(|(pod, gpu)| {
            let claims = [claim(pod, gpu, "11GiB")];
            let container = using(&host, pod, &[], &claims);
            starts(&container, &claims);
            assert_eq!(limits(&container), [(gpu.to_owned(), 11 * GIB)]);
            (container, claims)
        })
        .collect();
    let claims = [claim("f5", OTHER, "3GiB")];
    let said = refused(&using(&host, "f5", &[], &claims), &claims[0]);
    let expected =
        "GPU 1 (Card, 24.00 GiB) has 2.00 GiB left, 3.00 GiB requested; held by team/f3/c";
    assert!(said.contains(expected), "{said}");
    let mut both = claim("f6", CARD, "2GiB");
    both.extend(["--memory".to_owned(), format!("{OTHER}=1GiB")]);
    let container = using(&host, "f6", &[], &[both.clone()]);
    starts(&container, &[both.clone()]);
    let expected = [(CARD.to_owned(), 2 * GIB), (OTHER.to_owned(), GIB)];
    assert_eq!(limits(&container), expected);
    stops(&container, &[both]);
    for (container, claims) in &pods {
        stops(container, claims);
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn two_devices_of_one_container_gave_one_size_silently() {
    if !is_root() {
        return;
    }
    let host = two_cards();
    let claims = [
        claim("b", CARD, "4GiB"),
        claim("a", CARD, "2GiB"),
        claim("c", OTHER, "3GiB"),
    ];
    let container = using(&host, "sum", &[], &claims);
    starts(&container, &claims);
    let expected = [(CARD.to_owned(), 6 * GIB), (OTHER.to_owned(), 3 * GIB)];
    assert_eq!(limits(&container), expected);
    assert_eq!(record(&host)["named"], "a,b,c");
    let all = host.asking("all", &[("gpuslice.io/memory.0", "19GiB")]);
    let said = all.is_refused();
    assert!(said.contains("has 18.00 GiB left"), "{said}");
    // Another container that uses all of them shares the slice. One of them alone has no ledger of
    // its own.
    let other = using(&host, "other", &[], &claims);
    starts(&other, &claims);
    assert_eq!(ledger(&other), ledger(&container));
    let part = using(&host, "part", &[], &claims[..1]);
    assert_eq!(
        refused(&part, &claims[0]),
        "gpuslice: team/part/c uses the slices b together, and team/sum/c uses a,b,c: containers that \
         share one of several slices must share all of them (request one claim with one size for each \
         GPU)\n"
    );
    stops(&container, &claims);
    stops(&other, &claims);
    starts(&part, &claims[..1]);
    stops(&part, &claims[..1]);
    assert_eq!(host.left(), Vec::<String>::new());
    // Two devices without names cannot be told from one device and a runtime.
    let plain = |memory: &str| vec!["--memory".to_owned(), format!("{CARD}={memory}")];
    let devices = [plain("4GiB"), plain("2GiB")];
    let said = refused(&using(&host, "plain", &[], &devices), &devices[1]);
    assert!(said.contains("2.00 GiB and 4.00 GiB"), "{said}");
}
