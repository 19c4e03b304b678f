//! Taints of devices, in the ResourceSlices that the API server keeps.

use crate::api_server::Kept;
use crate::claims::{CARD, OTHER, SHARE, UID, claim, result};
use crate::driver::{Node, gpu};
use crate::kubelet::named;
use crate::ready::not_listed;
use gpuslice_dra::kubelet::messages::Health;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, SystemTime};

const SLICE: &str = "node1.gpuslice.io";

/// The devices of the slice, by the first letters of their names, with their taints.
fn taints(kept: &Kept) -> Vec<(String, Vec<String>)> {
    let devices = kept
        .slices
        .get(SLICE)
        .map(|slice| slice["spec"]["devices"].clone());
    let devices: Vec<Value> = serde_json::from_value(devices.unwrap_or(json!([]))).unwrap();
    let of = |device: &Value| {
        let taints = device["taints"].as_array().cloned().unwrap_or_default();
        let taint = |taint: &Value| {
            let text = |key: &str| taint[key].as_str().unwrap().to_owned();
            format!("{}={}:{}", text("key"), text("value"), text("effect"))
        };
        let name = device["name"].as_str().unwrap();
        (name.to_owned(), taints.iter().map(taint).collect())
    };
    devices.iter().map(of).collect()
}

fn expected(devices: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let one = |(name, taints): &(&str, &[&str])| (name.to_lowercase(), owned(taints));
    devices.iter().map(one).collect()
}

/// Writes the state that the guard reports.
fn report(node: &Node, level: u64, beyond: &Value) {
    let seen = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let text = json!({
        "schema": 1, "seen": seen.unwrap().as_secs(), "level": level,
        "terminated": 0, "killed": 0, "named": 0, "beyond": beyond,
    });
    let [new, path] = ["new", "guard.json"].map(|name| node.path("run/gpuslice").join(name));
    fs::write(&new, text.to_string()).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn a_device_that_the_guard_reports_is_tainted_and_does_not_flap() {
    let mut node = Node::new();
    let other = gpu(OTHER, 1, r#","integrated":true"#);
    node.devices(&[gpu(CARD, 0, ""), other]);
    report(&node, 2, &json!({}));
    node.start();
    node.kubelet().register();
    let host = "gpuslice.io/pressure=host-memory:NoSchedule";
    let card = "gpuslice.io/pressure=memory-outside-slices:NoSchedule";
    let first = expected(&[(CARD, &[]), (OTHER, &[host])]);
    drop(
        node.api
            .until("short of memory", |kept| taints(kept) == first),
    );
    report(&node, 0, &json!({CARD: 5 << 30}));
    let both = expected(&[(CARD, &[card]), (OTHER, &[host])]);
    drop(
        node.api
            .until("memory outside slices", |kept| taints(kept) == both),
    );
    // It is over, and comes back.
    let before = node.api.kept().generation();
    for level in [0, 2, 0, 4, 0] {
        report(&node, level, &json!({}));
        std::thread::sleep(Duration::from_millis(1100));
    }
    assert_eq!(taints(&node.api.kept()), both);
    assert_eq!(node.api.kept().generation(), before);
}

#[test]
fn a_gpu_that_leaves_the_list_stays_published_with_a_taint() {
    let mut node = Node::new();
    node.devices(&[gpu(CARD, 0, ""), gpu(OTHER, 1, "")]);
    node.start();
    let kubelet = node.kubelet();
    kubelet.register();
    node.is_published();
    node.devices(&[gpu(OTHER, 0, "")]);
    let unhealthy = "gpuslice.io/unhealthy=not-listed:NoSchedule";
    let lost = expected(&[(OTHER, &[]), (CARD, &[unhealthy])]);
    drop(node.api.until("tainted", |kept| taints(kept) == lost));
    node.api
        .add_claim(claim("c1", UID, &[result("r", CARD, "8Gi", SHARE)], &[]));
    let error = kubelet.prepare_one(&named("c1", UID)).error;
    assert!(error.contains("this node has no device"), "{error}");
    // A restart finds it in the slice, and writes nothing.
    let before = node.api.kept().generation();
    let listed = node.api.kept().asked.len();
    node.kill();
    node.start();
    kubelet.register();
    let is_published = |kept: &Kept| {
        let new = kept.asked[listed..].iter();
        new.filter(|one| one.ends_with("resourceslices")).count() >= 2
    };
    drop(node.api.until("published again", is_published));
    assert_eq!(taints(&node.api.kept()), lost);
    assert_eq!(node.api.kept().generation(), before);
    // The GPU is back.
    node.devices(&[gpu(CARD, 0, ""), gpu(OTHER, 1, "")]);
    let back = expected(&[(CARD, &[]), (OTHER, &[])]);
    drop(node.api.until("back", |kept| taints(kept) == back));
}

#[test]
fn a_list_that_is_missing_for_a_while_deletes_no_slice() {
    let (node, kubelet) = Node::registered();
    let uid = |kept: &Kept| kept.slices[SLICE]["metadata"]["uid"].clone();
    let before = uid(&node.api.kept());
    let list = node.path("run/gpuslice/devices.json");
    let unhealthy = "gpuslice.io/unhealthy=not-listed:NoSchedule";
    let (lost, back) = (expected(&[(CARD, &[unhealthy])]), expected(&[(CARD, &[])]));
    fs::remove_file(&list).unwrap();
    drop(node.api.until("tainted", |kept| taints(kept) == lost));
    node.until_probe(&not_listed(&node));
    let health = kubelet.health("v1.DRAResourceHealth", |health| {
        let mut all = health.devices.iter();
        all.all(|device| device.health() == Health::Unhealthy)
    });
    assert!(health.devices.len() <= 1);
    node.devices(&[gpu(CARD, 0, "")]);
    drop(node.api.until("back", |kept| taints(kept) == back));
    node.until_probe("");
    // A list that is damaged counts as missing.
    fs::write(&list, "{").unwrap();
    drop(node.api.until("tainted again", |kept| taints(kept) == lost));
    node.devices(&[gpu(CARD, 0, "")]);
    drop(node.api.until("back again", |kept| taints(kept) == back));
    assert_eq!(uid(&node.api.kept()), before);
}

#[test]
fn a_server_that_drops_taints_gets_no_device_that_is_gone() {
    let mut node = Node::new();
    node.api.kept().drops_taints = true;
    node.devices(&[gpu(CARD, 0, ""), gpu(OTHER, 1, "")]);
    node.start();
    node.kubelet().register();
    node.is_published();
    node.devices(&[gpu(OTHER, 0, "")]);
    let left = expected(&[(OTHER, &[])]);
    drop(node.api.until("withdrawn", |kept| taints(kept) == left));
    let line = "the API server drops taints of devices (feature gate DRADeviceTaints)";
    assert_eq!(node.log().matches(line).count(), 1);
    let generation = node.api.kept().generation();
    node.devices(&[gpu(OTHER, 0, ""), gpu(CARD, 1, "")]);
    drop(node.api.until("back", |kept| taints(kept).len() == 2));
    assert_eq!(node.api.kept().generation(), generation + 1);
    fs::remove_file(node.path("run/gpuslice/devices.json")).unwrap();
    drop(node.api.until("no list", |kept| kept.slices.is_empty()));
}
