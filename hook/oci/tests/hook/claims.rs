//! Slices of Kubernetes' claims: hooks that give a name, sizes of single GPUs, and options. A driver
//! writes such hooks into CDI devices, and the engine into config.json.
//! Touches: mount namespaces of its own. Needs root.

use crate::events::{events, is_refused};
use crate::resized::{limit, resize};
use crate::support::{CARD, Container, Host, SPARK, is_root};
use gpuslice_config::words::units::Bytes;
use gpuslice_hook::base::crash_points::CRASH_POINTS;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;

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

#[test]
fn a_claim_of_1_gib_with_an_annotation_of_18_gave_18() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "1GiB")];
    for (key, value, said) in [
        ("gpuslice.io/memory", "18GiB", "memory says 18.00 GiB"),
        ("gpuslice.io/memory.0", "18GiB", "memory.0 says 18.00 GiB"),
        (
            "gpuslice.io/container.c.memory",
            "18GiB",
            "memory says 18.00 GiB",
        ),
        (
            "gpuslice.io/share",
            "pod",
            "gpuslice.io/share contradicts a hook",
        ),
    ] {
        let container = using(&host, "p1", &[(key, value)], &claims);
        let told = refused(&container, &claims[0]);
        assert!(told.contains(said), "{told}");
        // The hook of the class runs as well, before or after the claim's.
        let told = refused(&container, &[]);
        assert!(told.contains(said), "{told}");
    }
    let equal = [
        ("gpuslice.io/memory", "1024MiB"),
        ("gpuslice.io/total", "device"),
        ("gpuslice.io/containers", "others"),
    ];
    let container = using(&host, "p1", &equal, &claims);
    starts(&container, &claims);
    assert_eq!(limits(&container), [(CARD.to_owned(), GIB)]);
    stops(&container, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_claim_is_used_with_one_size_and_the_other_is_named() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "8GiB")];
    let one = using(&host, "p1", &[], &claims);
    starts(&one, &claims);
    let other = [claim("c-1", CARD, "6GiB")];
    assert_eq!(
        refused(&using(&host, "p2", &[], &other), &other[0]),
        format!(
            "gpuslice: slice c-1 is shared with team/p1/c, which has another budget: 8.00 GiB of {CARD}, \
             and not 6.00 GiB of {CARD}\n"
        )
    );
    stops(&one, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn no_annotation_joins_the_slice_of_a_claim() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "20GiB")];
    let owner = using(&host, "p1", &[], &claims);
    starts(&owner, &claims);
    let slice = record(&host)["slice"].as_str().unwrap().to_owned();
    let stranger =
        |id: &str, annotations: &[(&str, &str)]| host.asking(id, annotations).is_refused();
    let memory = ("gpuslice.io/memory", "20GiB");
    let said = stranger("s1", &[memory, ("gpuslice.io/slice", "c-1")]);
    assert!(
        said.contains("unknown annotation gpuslice.io/slice"),
        "{said}"
    );
    // Its id on this host is no secret.
    let said = stranger(&slice, &[memory]);
    assert!(
        said.contains("is reserved for gpuslice's own slices"),
        "{said}"
    );
    // A pod that calls itself the claim's pod.
    let sandbox = format!("{:0>32}", "p1");
    let said = stranger(
        "s2",
        &[
            memory,
            ("gpuslice.io/share", "pod"),
            ("io.kubernetes.cri.sandbox-namespace", "team"),
            ("io.kubernetes.cri.sandbox-id", &sandbox),
        ],
    );
    assert!(said.contains("no room for"), "{said}");
    // A claim belongs to one namespace.
    let elsewhere = [("io.kubernetes.cri.sandbox-namespace", "another")];
    let said = refused(&using(&host, "p2", &elsewhere, &claims), &claims[0]);
    assert!(
        said.contains("slice c-1 is used by team/p1/c alone"),
        "{said}"
    );
    stops(&owner, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_malformed_argument_starts_no_container() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    // Not even where the policy lets a container start without its slice.
    host.policy("[on-error]\nannotated = \"start\"\nothers = \"start\"");
    let memory = format!("{CARD}=1GiB");
    let container = using(&host, "p1", &[], &[]);
    for (words, expected) in [
        (
            &["--slices", "a"][..],
            "unknown option --slices (see --help)",
        ),
        (
            &["--slice", "a"],
            "the options of a slice need its size (add --memory)",
        ),
        (
            &["--total", "slice"],
            "the options of a slice need its size (add --memory)",
        ),
        (
            &["--slice", "a/b", "--memory", &memory],
            "--slice \"a/b\" is not the one name of a slice",
        ),
        (
            &["--memory", "1GiB", "--slice", "a", "--slice", "b"],
            "--slice \"b\" is not the one name",
        ),
        (
            &["--memory", "0=1GiB"],
            "--memory 0=1GiB: not a device uuid",
        ),
        (
            &["--memory", &memory, "--fence", "kernel"],
            "--fence: \"kernel\" is not one of",
        ),
        (
            &["--memory", &memory, "--headroom", "x"],
            "--headroom: \"x\": not a size",
        ),
    ] {
        let said = container.hook(&[words, &["createRuntime"]].concat());
        let told = String::from_utf8(said.stderr).unwrap();
        assert_eq!(said.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{words:?}: {told}");
        // Another hook of the same container, such as that of its class, does not start it either.
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        if words[0] != "--slices" {
            let other = using(&host, "p2", &[], &[words]);
            assert!(refused(&other, &[]).contains(expected));
        }
    }
    let wrong = [claim("c", OTHER, "1GiB")];
    let said = refused(&using(&host, "p3", &[], &wrong), &wrong[0]);
    assert!(said.contains(&format!("there is no GPU {OTHER}")), "{said}");
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn options_of_a_claim_are_those_of_annotations() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let mut words = claim("c-1", SPARK, "10GiB");
    let options = [
        ("total", "device"),
        ("present-as", "discrete"),
        ("headroom", "1GiB"),
        ("page-cache", "keep"),
        ("fence", "preload"),
    ];
    for (option, value) in options {
        words.extend([format!("--{option}"), value.to_owned()]);
    }
    let claims = [words];
    let memory = format!("gpuslice.io/memory.{SPARK}");
    let keys = options.map(|(option, value)| (format!("gpuslice.io/{option}"), value));
    let mut annotations: Vec<(&str, &str)> = vec![(&memory, "10GiB")];
    annotations.extend(keys.iter().map(|(key, value)| (key.as_str(), *value)));
    let slice = |container: &Container<'_>| {
        let text = fs::read(container.inside(".gpuslice/slice.json")).unwrap();
        let mut slice: Value = serde_json::from_slice(&text).unwrap();
        let members = slice.as_object_mut().unwrap();
        members.retain(|key, _| key != "name" && key != "ledger_id");
        slice
    };
    let (by_claim, by_annotation) = (
        using(&host, "p1", &[], &claims),
        using(&host, "p2", &annotations, &[]),
    );
    starts(&by_claim, &claims);
    by_annotation.is_given_its_slice();
    assert_eq!(slice(&by_claim), slice(&by_annotation));
}

#[test]
fn a_claim_of_unified_memory_is_promised_once() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    host.policy("reserve = \"8GiB\"");
    let claims = [claim("c-1", SPARK, "60GiB")];
    let (one, two) = (
        using(&host, "p1", &[], &claims),
        using(&host, "p2", &[], &claims),
    );
    starts(&one, &claims);
    starts(&two, &claims);
    assert_eq!(fs::read_dir(host.run("promises")).unwrap().count(), 1);
    fs::write(one.inside(".gpuslice/promise"), "spent").unwrap();
    assert!(
        fs::read(two.inside(".gpuslice/promise"))
            .unwrap()
            .starts_with(b"spent")
    );
    stops(&one, &claims);
    assert_eq!(fs::read_dir(host.run("promises")).unwrap().count(), 1);
    stops(&two, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_claim_that_the_driver_holds_has_one_container() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let words = |fence: &str| {
        let mut words = claim("c-1", CARD, "8GiB");
        words.extend(["--fence".to_owned(), fence.to_owned()]);
        [words]
    };
    fs::write(host.path("etc/gpuslice/config.toml"), "").unwrap();
    let (driver, library) = (words("driver"), words("preload"));
    // No driver limits these containers, because they have no cgroups.
    let said = refused(&using(&host, "p1", &[], &driver), &driver[0]);
    assert!(said.contains("the driver cannot hold the limit"), "{said}");
    let one = using(&host, "p1", &[], &library);
    starts(&one, &library);
    let said = refused(&using(&host, "p2", &[], &driver), &driver[0]);
    assert!(
        said.contains("slice c-1 is used by team/p1/c alone"),
        "{said}"
    );
    // The record of a slice that the driver holds, as the first container's hook writes it.
    let held = record(&host);
    let path = host.run(&format!("slices/{}.json", held["slice"].as_str().unwrap()));
    fs::write(
        path,
        held.to_string()
            .replace("\"shared\":true", "\"shared\":false"),
    )
    .unwrap();
    let said = refused(&using(&host, "p2", &[], &library), &library[0]);
    assert!(
        said.contains("slice c-1 is used by team/p1/c alone"),
        "{said}"
    );
    stops(&one, &library);
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn killed_at_any_step_a_container_leaves_the_claims_slice_to_others() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "24GiB")];
    let die = |container: &Container<'_>, step: &str| {
        let words: Vec<&str> = claims[0].iter().map(String::as_str).collect();
        let said = container.hook(&[&words[..], &["--die-at", step, "createRuntime"]].concat());
        assert_eq!(said.status.signal(), Some(9), "{step}: {said:?}");
    };
    for step in CRASH_POINTS {
        // The first container of the claim is killed: the next one has the slice, and nothing else.
        let mut killed = using(&host, "killed", &[], &claims);
        die(&killed, step);
        let second = using(&host, "second", &[], &claims);
        starts(&second, &claims);
        killed.dies();
        let third = using(&host, "third", &[], &claims);
        starts(&third, &claims);
        assert_eq!(ledger(&second), ledger(&third), "{step}");
        // A later one is killed: the others keep their ledger.
        let mut killed = using(&host, "later", &[], &claims);
        match step {
            // It mounts no ledger, because there is one.
            "ledger-mounted" => starts(&killed, &claims),
            step => die(&killed, step),
        }
        killed.dies();
        host.collect();
        assert_eq!(
            record(&host)["containers"].as_array().unwrap().len(),
            2,
            "{step}"
        );
        assert!(
            host.container("late").is_refused().contains("0 B left"),
            "{step}"
        );
        stops(&second, &claims);
        stops(&third, &claims);
        assert_eq!(host.left(), Vec::<String>::new(), "{step}");
        // The same container can be tried again.
        let again = using(&host, "again", &[], &claims);
        die(&again, step);
        starts(&again, &claims);
        stops(&again, &claims);
        assert_eq!(host.left(), Vec::<String>::new(), "{step}");
    }
}

#[test]
fn the_events_of_a_claims_slice_name_its_containers() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "8GiB")];
    let (one, two) = (
        using(&host, "p1", &[], &claims),
        using(&host, "p2", &[], &claims),
    );
    starts(&one, &claims);
    starts(&two, &claims);
    let slice = record(&host)["slice"].as_str().unwrap().to_owned();
    is_refused(&host, &slice, Bytes::mib(38));
    stops(&one, &claims);
    stops(&two, &claims);
    let told: Vec<String> = events(&host)
        .iter()
        .map(|event| format!("{} {}", event.slice, event.message))
        .collect();
    let refused = "ended; one allocation of the claim's slice was refused";
    let expected = [
        "team/p1/c started".to_owned(),
        "team/p2/c started".to_owned(),
        format!("team/p1/c {refused}"),
        format!("team/p2/c {refused}"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_claims_slice_is_resized_for_all_its_containers() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let claims = [claim("c-1", CARD, "8GiB")];
    let (one, two) = (
        using(&host, "p1", &[], &claims),
        using(&host, "p2", &[], &claims),
    );
    starts(&one, &claims);
    let (_, err, status) = resize(&host, &["team/p1/c", "10GiB"]);
    assert_eq!((err.as_str(), status), ("", 0));
    // A container that joins asks for the claim's size, and has the slice's.
    starts(&two, &claims);
    assert_eq!(limit(&host, "p2"), 10 * GIB);
    stops(&one, &claims);
    let (_, err, status) = resize(&host, &["p2", "12GiB"]);
    assert_eq!((err.as_str(), status), ("", 0));
    assert_eq!(record(&host)["named"], "c-1");
    let late = host.asking("late", &[("gpuslice.io/memory", "13GiB")]);
    assert!(late.is_refused().contains("held by team/p2/c 12.00 GiB"));
    stops(&two, &claims);
    assert_eq!(host.left(), Vec::<String>::new());
}
