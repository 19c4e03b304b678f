//! Claims are prepared and taken back.

use crate::api_server::ApiServer;
use crate::claims::{CARD, OTHER, SHARE, UID, claim, config, result, simple, uid};
use crate::driver::{Node, gpu};
use crate::kubelet::{Kubelet, V1BETA1, named};
use gpuslice_dra::kubelet::messages::{Device, PreparedClaim};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

const ENVIRONMENT: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn hook(stage: &str) -> Value {
    let slice = format!("{UID}-{SHARE}");
    let memory = format!("{CARD}=8589934592");
    json!({
        "hookName": stage,
        "path": "/usr/bin/gpuslice-hook",
        "args": [
            "gpuslice-hook", "--slice", slice, "--claim", "default/c1", "--memory", memory, stage,
        ],
        "env": [ENVIRONMENT],
    })
}

fn expected_file() -> Value {
    json!({
        "cdiVersion": "0.5.0",
        "kind": "k8s.gpuslice.io/claim",
        "devices": [{
            "name": format!("{UID}-{}-{SHARE}", CARD.to_lowercase()),
            "containerEdits": {
                "env": ["NVIDIA_VISIBLE_DEVICES=void"],
                "deviceNodes": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}],
                "hooks": [hook("createRuntime"), hook("poststop")],
            },
        }],
    })
}

fn expected_answer() -> PreparedClaim {
    let device = Device {
        request_names: vec!["r".to_owned()],
        pool_name: "node1".to_owned(),
        device_name: CARD.to_lowercase(),
        cdi_device_ids: vec![format!(
            "k8s.gpuslice.io/claim={UID}-{}-{SHARE}",
            CARD.to_lowercase()
        )],
        share_id: Some(SHARE.to_owned()),
    };
    PreparedClaim {
        devices: vec![device],
        error: String::new(),
    }
}

#[test]
fn a_claim_becomes_a_cdi_file_with_the_gpu_and_the_hook() {
    let (node, kubelet) = Node::registered();
    node.api.add_claim(simple());
    let claim = named("c1", UID);
    assert_eq!(kubelet.prepare_one(&claim), expected_answer());
    assert_eq!(node.cdi(UID), expected_file());
    let file = format!("k8s.gpuslice.io-claim-{UID}.json");
    assert_eq!(node.cdi_files(), std::slice::from_ref(&file));
    let mode = fs::metadata(node.path("cdi").join(file)).unwrap();
    assert_eq!(mode.permissions().mode() & 0o7777, 0o644);
    let older = kubelet.prepare_by(V1BETA1, &[claim]);
    assert_eq!(older.claims[UID], expected_answer());
}

#[test]
fn of_two_claims_in_one_call_a_missing_one_fails_alone() {
    let (node, kubelet) = Node::registered();
    node.api.add_claim(simple());
    let prepared = kubelet.prepare(&[named("c1", UID), named("gone", &uid(7))]);
    assert_eq!(prepared.claims.len(), 2);
    assert_eq!(prepared.claims[UID], expected_answer());
    let error = "gpuslice: cannot read the claim: the API server answers 404 NotFound: \
                 resourceclaims.resource.k8s.io \"gone\" not found";
    assert_eq!(prepared.claims[&uid(7)].error, error);
    assert_eq!(node.cdi_files().len(), 1);
}

#[test]
fn a_claim_is_prepared_again_after_a_kill_and_after_a_reboot() {
    let (mut node, kubelet) = Node::registered();
    node.api.add_claim(simple());
    kubelet.prepare_one(&named("c1", UID));
    node.kill();
    // A driver that was killed while it wrote leaves its temporary file and its sockets.
    let new = format!("cdi/k8s.gpuslice.io-claim-{UID}.new");
    fs::write(node.path(&new), "half").unwrap();
    node.start();
    kubelet.register();
    assert_eq!(kubelet.prepare_one(&named("c1", UID)), expected_answer());
    assert_eq!(node.cdi(UID), expected_file());
    assert_eq!(node.cdi_files().len(), 1);
    // A reboot empties /run.
    node.kill();
    fs::remove_dir_all(node.path("cdi")).unwrap();
    node.start();
    kubelet.register();
    assert_eq!(kubelet.prepare_one(&named("c1", UID)), expected_answer());
    assert_eq!(node.cdi(UID), expected_file());
}

#[test]
fn taking_back_removes_the_file_and_succeeds_for_an_unknown_claim() {
    let (node, kubelet) = Node::registered();
    node.api.add_claim(simple());
    kubelet.prepare_one(&named("c1", UID));
    let both = [named("c1", UID), named("never", &uid(9))];
    for _ in 0..2 {
        let answer = kubelet.unprepare(&both);
        assert_eq!(answer.claims.len(), 2);
        assert!(answer.claims.values().all(|one| one.error.is_empty()));
        assert!(node.cdi_files().is_empty());
    }
}

/// The arguments of the hooks, and the requests of the answer, for one claim.
fn prepared(node: &Node, kubelet: &Kubelet, recorded: Value) -> (Vec<String>, Vec<String>) {
    node.api.add_claim(recorded);
    let answer = kubelet.prepare_one(&named("c1", UID));
    assert_eq!(answer.error, "");
    let requests = answer
        .devices
        .iter()
        .flat_map(|one| one.request_names.clone());
    (node.hooks(UID), requests.collect())
}

fn line(share: &str, gpu: &str, rest: &str) -> String {
    format!(
        "gpuslice-hook --slice {UID}-{share} --claim default/c1 --memory {gpu}={rest} createRuntime"
    )
}

#[test]
fn recorded_claims_become_the_hooks_sizes_and_options() {
    let (node, kubelet) = Node::registered();
    node.devices(&[gpu(CARD, 0, ""), gpu(OTHER, 1, "")]);
    let gib = |count: u64| (count << 30).to_string();
    // Without a size: the default, here the whole card. 1000Mi was rounded up by the scheduler.
    for (memory, bytes) in [
        ("24259Mi", 24259_u64 << 20),
        ("1Gi", 1 << 30),
        ("256Mi", 1 << 28),
    ] {
        let recorded = claim("c1", UID, &[result("r", CARD, memory, SHARE)], &[]);
        let (hooks, requests) = prepared(&node, &kubelet, recorded);
        assert_eq!(hooks, [line(SHARE, CARD, &bytes.to_string())]);
        assert_eq!(requests, ["r"]);
    }
    // firstAvailable, with options for the request and for the subrequest.
    let options = [
        config(
            "FromClass",
            &[],
            &json!({"headroom": "1Gi", "fence": "driver"}),
        ),
        config("FromClaim", &["r"], &json!({"headroom": "512Mi"})),
        config("FromClaim", &["r/big"], &json!({"total": "device"})),
        config("FromClaim", &["r/small"], &json!({"page-cache": "drop"})),
        json!({"source": "FromClaim", "opaque": {"driver": "x.io", "parameters": {"y": 1}}}),
    ];
    let recorded = claim("c1", UID, &[result("r/big", CARD, "20Gi", SHARE)], &options);
    let (hooks, requests) = prepared(&node, &kubelet, recorded);
    let rest = format!(
        "{} --fence driver --headroom 536870912 --total device",
        gib(20)
    );
    assert_eq!(hooks, [line(SHARE, CARD, &rest)]);
    // The kubelet compares this with the name that the container gives.
    assert_eq!(requests, ["r"]);
    // Two requests on two cards, and a device of another driver between them.
    let foreign = json!({"request": "n", "driver": "x.io", "pool": "p", "device": "d"});
    let results = [
        result("a", CARD, "4Gi", SHARE),
        foreign,
        result("b", OTHER, "2Gi", &uid(1)),
    ];
    let recorded = claim(
        "c1",
        UID,
        &results,
        &[config("FromClaim", &["b"], &json!({"headroom": 0}))],
    );
    let (hooks, requests) = prepared(&node, &kubelet, recorded);
    let second = line(&uid(1), OTHER, &format!("{} --headroom 0", gib(2)));
    assert_eq!(hooks, [line(SHARE, CARD, &gib(4)), second]);
    assert_eq!(requests, ["a", "b"]);
}

#[test]
fn two_claims_that_share_a_card_are_two_slices() {
    let (node, kubelet) = Node::registered();
    node.api.add_claim(simple());
    let other = uid(2);
    let results = [result("r", CARD, "6Gi", &uid(3))];
    node.api.add_claim(claim("c2", &other, &results, &[]));
    let prepared = kubelet.prepare(&[named("c1", UID), named("c2", &other)]);
    assert!(prepared.claims.values().all(|one| one.error.is_empty()));
    let second = format!(
        "gpuslice-hook --slice {other}-{} --claim default/c2 --memory {CARD}=6442450944 \
         createRuntime",
        uid(3)
    );
    assert_eq!(node.hooks(&other), [second]);
    assert_eq!(node.hooks(UID), [line(SHARE, CARD, "8589934592")]);
    let ids = prepared
        .claims
        .values()
        .map(|one| &one.devices[0].cdi_device_ids);
    let ids: std::collections::BTreeSet<_> = ids.collect();
    assert_eq!(ids.len(), 2);
}

/// The error of preparing a claim that was changed.
fn error(api: &ApiServer, kubelet: &Kubelet, change: impl Fn(&mut Value)) -> String {
    let mut recorded = simple();
    change(&mut recorded);
    api.add_claim(recorded);
    let answer = kubelet.prepare_one(&named("c1", UID));
    assert!(answer.devices.is_empty());
    answer.error
}

#[test]
fn a_claim_that_would_give_another_device_or_size_is_refused() {
    let (node, kubelet) = Node::registered();
    const RESULT: &str = "/status/allocation/devices/results/0";
    let set = |key: &'static str, value: Value| {
        move |claim: &mut Value| claim.pointer_mut(RESULT).unwrap()[key] = value.clone()
    };
    let refused = |change: &dyn Fn(&mut Value)| error(&node.api, &kubelet, change);
    let configured = |parameters: Value| {
        move |claim: &mut Value| {
            claim["status"]["allocation"]["devices"]["config"] =
                json!([config("FromClaim", &[], &parameters)]);
        }
    };
    for (change, expected) in [
        (
            Box::new(|claim: &mut Value| claim["metadata"]["uid"] = json!(uid(5)))
                as Box<dyn Fn(&mut Value)>,
            "the claim of this name has the uid 4f8f2b6c-0a1b-4c3d-8e9f-000000000005 now: the \
             requested claim was deleted",
        ),
        (
            Box::new(|claim| claim["status"] = json!({})),
            "no device is allocated to the claim",
        ),
        (
            Box::new(set("driver", json!("gpu.nvidia.com"))),
            "no device of gpuslice.io is allocated to the claim",
        ),
        (
            Box::new(set("pool", json!("node2"))),
            "device \"gpu-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4\" is in pool \"node2\", not of this node",
        ),
        (
            Box::new(set("device", json!("gpu-0"))),
            "this node has no device \"gpu-0\" (the GPUs are GPU 0)",
        ),
        (
            Box::new(set("adminAccess", json!(true))),
            "request \"r\" has adminAccess, which allocates no memory (run gpuslice on the node \
             instead)",
        ),
        (
            Box::new(set("consumedCapacity", json!({}))),
            "request \"r\" got a device without an amount of memory: the feature gate \
             DRAConsumableCapacity is off in the scheduler",
        ),
        (
            Box::new(set("consumedCapacity", json!({"memory": "0"}))),
            "request \"r\" got \"0\" of memory, which is not a size",
        ),
        (
            Box::new(set("consumedCapacity", json!({"memory": "32Gi"}))),
            "32.00 GiB is more than GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB) has",
        ),
        (
            Box::new(configured(json!({"memory": "16Gi"}))),
            "cannot use the configuration for gpuslice.io: unknown key \"memory\" (known: total, present-as, \
             headroom, page-cache, fence)",
        ),
    ] {
        assert_eq!(refused(&*change), format!("gpuslice: {expected}"));
    }
    assert!(node.cdi_files().is_empty());
}

#[test]
fn a_mig_instance_comes_by_the_toolkits_cdi_device() {
    let (node, kubelet) = Node::registered();
    let instance = CARD.replace("GPU", "MIG");
    let mig = format!(r#","mig":[{{"uuid":"{instance}","memory":10468982784}}]"#);
    node.devices(&[gpu(CARD, 0, &mig)]);
    node.api.add_claim(claim(
        "c1",
        UID,
        &[result("r", &instance, "8Gi", SHARE)],
        &[],
    ));
    let refused = kubelet.prepare_one(&named("c1", UID)).error;
    let expected = format!(
        "gpuslice: {instance} is a MIG instance, and no CDI file names it (run nvidia-ctk cdi \
         generate)"
    );
    assert_eq!(refused, expected);
    fs::create_dir_all(node.path("etc/cdi")).unwrap();
    let yaml = format!("kind: nvidia.com/gpu\ndevices:\n  - name: {instance}\n");
    fs::write(node.path("etc/cdi/nvidia.yaml"), yaml).unwrap();
    let answer = kubelet.prepare_one(&named("c1", UID));
    let ours = format!("{UID}-{}-{SHARE}", instance.to_lowercase());
    assert_eq!(
        answer.devices[0].cdi_device_ids,
        [
            format!("nvidia.com/gpu={instance}"),
            format!("k8s.gpuslice.io/claim={ours}"),
        ]
    );
    let edits = &node.cdi(UID)["devices"][0]["containerEdits"];
    assert_eq!(edits.get("deviceNodes"), None);
}
