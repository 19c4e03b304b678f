//! `status.devices` of claims, as the API server has it.

use crate::api_server::Kept;
use crate::claims::{CARD, SHARE, UID, claim, result, simple, uid};
use crate::driver::Node;
use crate::kubelet::named;
use crate::running::Running;
use gpuslice_config::words::units::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// A node whose driver writes each second, with a prepared claim of 8 GiB.
fn prepared() -> Node {
    let mut node = Node::new();
    node.start_with(&["--status-seconds", "1"]);
    let kubelet = node.kubelet();
    kubelet.register();
    node.api.add_claim(simple());
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
    node
}

fn slice() -> String {
    format!("{UID}-{SHARE}")
}

/// The entries of the claim.
fn devices(kept: &Kept) -> Vec<Value> {
    let claim = &kept.claims[&("default".to_owned(), "c1".to_owned())];
    claim["status"]["devices"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// The data of the claim's only share, once it is this.
fn until(node: &Node, expected: &Value) -> Value {
    let is = |kept: &Kept| {
        devices(kept)
            .iter()
            .any(|device| device["data"] == *expected)
    };
    let kept = node.api.until(&expected.to_string(), is);
    let devices = devices(&kept);
    assert_eq!(devices.len(), 1);
    devices[0].clone()
}

fn data(used: &str, peak: &str, refused: u64) -> Value {
    json!({
        "apiVersion": "gpuslice.io/v1", "kind": "SliceStatus",
        "limit": "8Gi", "used": used, "peak": peak, "refused": refused, "fence": "preload",
    })
}

fn patches(node: &Node) -> usize {
    let kept = node.api.kept();
    let patches = kept.asked.iter().filter(|one| one.starts_with("PATCH"));
    patches.count()
}

#[test]
fn a_claim_shows_the_use_and_the_refusals_of_its_slice() {
    let node = prepared();
    let running = Running::start(&node, &slice(), None);
    let entry = until(&node, &data("0", "0", 0));
    assert_eq!(entry["device"], CARD.to_lowercase());
    assert_eq!(
        (&entry["pool"], &entry["shareID"]),
        (&json!("node1"), &json!(SHARE))
    );
    let condition = &entry["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("Ready"), &json!("True"))
    );
    assert_eq!(condition["reason"], "InForce");
    running.takes(Bytes::gib(7));
    running.is_refused();
    until(&node, &data("7Gi", "7Gi", 1));
    running.frees(Bytes::gib(5));
    until(&node, &data("2Gi", "7Gi", 1));
    // Too little for a request.
    let before = patches(&node);
    running.takes(Bytes::mib(100));
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(patches(&node), before);
    running.ends();
    let idle = until(&node, &data("0", "7Gi", 1));
    assert_eq!(idle["conditions"][0]["reason"], "Idle");
    assert_eq!(
        idle["conditions"][0]["lastTransitionTime"],
        condition["lastTransitionTime"]
    );
}

#[test]
fn a_claim_that_no_container_has_used_yet_is_not_written() {
    let node = prepared();
    // Two looks take a second.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!((patches(&node), devices(&node.api.kept()).len()), (0, 0));
}

#[test]
fn a_restart_of_the_driver_writes_nothing_and_keeps_the_peak() {
    let mut node = prepared();
    let running = Running::start(&node, &slice(), None);
    running.takes(Bytes::gib(7));
    until(&node, &data("7Gi", "7Gi", 0));
    running.frees(Bytes::gib(4));
    until(&node, &data("3Gi", "7Gi", 0));
    node.kill();
    let before = patches(&node);
    node.start_with(&["--status-seconds", "1"]);
    let is_read = |kept: &Kept| {
        let reads = kept
            .asked
            .iter()
            .filter(|one| one.ends_with("resourceclaims/c1"));
        reads.count() >= 3
    };
    drop(node.api.until("a read after the restart", is_read));
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(patches(&node), before);
    running.takes(Bytes::gib(2));
    until(&node, &data("5Gi", "7Gi", 0));
}

#[test]
fn a_container_without_its_slice_makes_the_share_not_ready() {
    let node = prepared();
    let _running = Running::start(&node, &slice(), Some("its image is built for musl"));
    let entry = until(&node, &data("0", "0", 0));
    let condition = &entry["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("NoSlice"))
    );
    let expected = "container default/d1/c: its image is built for musl";
    assert_eq!(condition["message"], expected);
}

#[test]
fn the_entries_of_other_drivers_and_of_another_claim_stay() {
    let mut node = Node::new();
    let foreign = json!({"request": "n", "driver": "x.io", "pool": "p", "device": "d"});
    let results = [result("r", CARD, "8Gi", SHARE), foreign];
    let mut both = claim("c1", UID, &results, &[]);
    let theirs = json!({"driver": "x.io", "pool": "p", "device": "d", "data": {"a": 1}});
    both["status"]["devices"] = json!([theirs]);
    node.api.add_claim(both);
    node.start_with(&["--status-seconds", "1"]);
    let kubelet = node.kubelet();
    kubelet.register();
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
    let running = Running::start(&node, &slice(), None);
    drop(node.api.until("written", |kept| devices(kept).len() == 2));
    assert_eq!(devices(&node.api.kept())[0], theirs);
    // The claim is deleted, and another one has its name.
    node.api.add_claim(claim("c1", &uid(5), &results, &[]));
    running.takes(Bytes::gib(7));
    let is_asked = |kept: &Kept| {
        kept.asked
            .iter()
            .filter(|one| one.starts_with("PATCH"))
            .count()
            == 2
    };
    drop(node.api.until("refused", is_asked));
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!((patches(&node), devices(&node.api.kept()).len()), (2, 0));
}

#[test]
fn a_status_is_written_again_if_others_have_changed_the_claim_meanwhile() {
    let node = prepared();
    node.api.kept().conflicts = 1;
    let running = Running::start(&node, &slice(), None);
    running.takes(Bytes::gib(7));
    until(&node, &data("7Gi", "7Gi", 0));
    assert_eq!(node.api.kept().conflicts, 0);
}

#[test]
fn a_missing_permission_is_one_line_and_claims_are_prepared() {
    let mut node = Node::new();
    node.api.kept().forbids_reports = true;
    node.start_with(&["--status-seconds", "1"]);
    let kubelet = node.kubelet();
    kubelet.register();
    node.api.add_claim(simple());
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
    let running = Running::start(&node, &slice(), None);
    drop(node.api.until("asked", |kept| {
        kept.asked.iter().any(|one| one.starts_with("PATCH"))
    }));
    running.takes(Bytes::gib(7));
    std::thread::sleep(Duration::from_millis(2500));
    let line = "statuses of claims are not written: the API server answers 403 Forbidden: \
                resourceclaims/status is forbidden";
    assert_eq!(node.log().matches(line).count(), 1, "{}", node.log());
    assert_eq!(patches(&node), 1);
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
    node.until_probe("");
}
