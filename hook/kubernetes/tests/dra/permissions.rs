//! The driver's requests need exactly the rights that the ClusterRole gives.
//! Touches: the manifests that are made of the chart.

use crate::claims::{SHARE, UID, simple};
use crate::driver::Node;
use crate::kubelet::named;
use crate::running::Running;
use clap::Parser;
use gpuslice_dra::api::Cluster;
use gpuslice_dra::base::settings::Settings;
use gpuslice_host::events::store::Store;
use gpuslice_host::events::{Event, EventKind};
use gpuslice_host::machine::pod::Pod;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;

/// The rights of the role, as `group resource verb`.
fn given() -> BTreeSet<String> {
    let root = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/kustomize/gpuslice/rbac.yaml"
    );
    let text = fs::read_to_string(root).unwrap();
    let role = text
        .split("---\n")
        .find(|one| one.contains("\nkind: ClusterRole\n"));
    let rules = role.unwrap().split_once("\nrules:\n").unwrap().1;
    let list = |rule: &str, key: &str| -> Vec<String> {
        let line = rule
            .lines()
            .find_map(|line| line.trim().strip_prefix(key))
            .unwrap();
        let words = line.trim().trim_matches(['[', ']']).split(", ");
        words
            .map(|word| word.trim_matches('"').to_owned())
            .collect()
    };
    let mut given = BTreeSet::new();
    for rule in rules.split("  - ").filter(|rule| !rule.trim().is_empty()) {
        for group in list(rule, "apiGroups:") {
            let group = if group.is_empty() {
                "core".to_owned()
            } else {
                group
            };
            for resource in list(rule, "resources:") {
                for verb in list(rule, "verbs:") {
                    given.insert(format!("{group} {resource} {verb}"));
                }
            }
        }
    }
    given
}

/// Changes an event by the driver's own function: the driver itself does so five minutes later.
fn patch_event(node: &Node, name: &str) {
    let kubeconfig = node.path("kubeconfig");
    let words = ["gpuslice-dra", "--node-name", "node1", "--kubeconfig"];
    let words = words.into_iter().chain([kubeconfig.to_str().unwrap()]);
    let settings = Settings::parse_from(words);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::connect(&settings).await.unwrap();
        let values = json!({"count": 2});
        cluster.patch_event("default", name, &values).await.unwrap();
    });
}

#[test]
fn the_driver_asks_for_exactly_what_its_role_allows() {
    let mut node = Node::new();
    node.start_with(&["--status-seconds", "1"]);
    let kubelet = node.kubelet();
    kubelet.register();
    node.api.add_claim(simple());
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
    let _running = Running::start(&node, &format!("{UID}-{SHARE}"), None);
    let event = Event {
        pod: Some(Pod {
            namespace: "default".to_owned(),
            name: "d1".to_owned(),
            ..Pod::default()
        }),
        ..Event::now(EventKind::AdmissionRefusal, "abc", "is refused".to_owned())
    };
    Store::of_host(&node.host()).append(&event.line()).unwrap();
    let event = node.api.until("an event", |kept| !kept.events.is_empty());
    let name = event.events.keys().next().unwrap().1.clone();
    drop(event);
    patch_event(&node, &name);
    drop(node.api.until("a status", |kept| {
        kept.asked.iter().any(|one| one.ends_with("/c1/status"))
    }));
    let watch = "resource.k8s.io resourceslices watch";
    drop(
        node.api
            .until(watch, |kept| kept.permissions.contains(watch)),
    );
    // Others change the slice, and the operator's policy is wrong.
    node.api
        .meddle(|slice| slice["spec"]["devices"] = json!([]));
    let is_put =
        |kept: &crate::api_server::Kept| kept.asked.iter().any(|one| one.starts_with("PUT"));
    drop(node.api.until("restored", is_put));
    fs::create_dir_all(node.path("etc/gpuslice")).unwrap();
    fs::write(node.path("etc/gpuslice/config.toml"), "no-such-key = 1\n").unwrap();
    let kept = node.api.until("withdrawn", |kept| kept.slices.is_empty());
    assert_eq!(kept.permissions, given());
}
