//! The ResourceSlices, as the API server keeps them.

use crate::claims::{CARD, OTHER};
use crate::driver::{Node, gpu};
use serde_json::json;
use std::fs;
use std::time::Duration;

const SLICE: &str = "node1.gpuslice.io";

#[test]
fn the_slice_of_a_node_is_published_once_the_kubelet_knows_the_driver() {
    let mut node = Node::new();
    fs::create_dir_all(node.path("sys/module/nvidia")).unwrap();
    fs::write(node.path("sys/module/nvidia/version"), "580.65.06\n").unwrap();
    node.start();
    let kubelet = node.kubelet();
    let info = kubelet.info();
    // The scheduler would place a pod that waits, and the kubelet tries it again after a minute.
    assert!(node.api.kept().slices.is_empty());
    kubelet.notify(true, "");
    node.is_published();
    assert_eq!(info.kind, "DRAPlugin");
    assert_eq!(info.name, "gpuslice.io");
    assert_eq!(
        info.endpoint,
        node.path("plugins/gpuslice.io/dra.sock").to_str().unwrap()
    );
    let versions = [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ];
    assert_eq!(info.supported_versions, versions);
    let kept = node.api.kept();
    assert_eq!(kept.slices.keys().collect::<Vec<_>>(), [SLICE]);
    let slice = &kept.slices[SLICE];
    let owner = json!([{
        "apiVersion": "v1", "kind": "Node", "name": "node1", "controller": true,
        "uid": "6f5a0c1e-90c9-4be7-a4c9-3a1b7d0f9a11",
    }]);
    assert_eq!(slice["metadata"]["ownerReferences"], owner);
    let spec = json!({
        "driver": "gpuslice.io",
        "nodeName": "node1",
        "pool": {"name": "node1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{
            "name": CARD.to_lowercase(),
            "allowMultipleAllocations": true,
            "attributes": {
                "uuid": {"string": CARD},
                "type": {"string": "gpu"},
                "index": {"int": 0},
                "integrated": {"bool": false},
                "productName": {"string": "NVIDIA GeForce RTX 3090"},
                "driverVersion": {"version": "580.65.6"},
                "fence": {"string": "preload"},
            },
            "capacity": {"memory": {
                "value": "24259Mi",
                "requestPolicy": {
                    "default": "24259Mi",
                    "validRange": {"min": "256Mi", "step": "1Mi"},
                },
            }},
        }],
    });
    assert_eq!(slice["spec"], spec);
}

#[test]
fn slices_that_the_kubelet_has_deleted_are_published_again() {
    let (mut node, kubelet) = Node::registered();
    // The kubelet deletes them at its start, and then registers the driver.
    node.api.wipe();
    kubelet.notify(true, "");
    drop(
        node.api
            .until("after a registration", |kept| kept.slices.len() == 1),
    );
    // It also deletes them while the driver is away.
    node.kill();
    node.api.wipe();
    node.start();
    kubelet.register();
    drop(
        node.api
            .until("after a start", |kept| kept.slices.len() == 1),
    );
    let has_watch = |kept: &crate::api_server::Kept| {
        let lists = kept
            .asked
            .iter()
            .filter(|one| one.ends_with("resourceslices"));
        lists.count() > 3
    };
    drop(node.api.until("a watch", has_watch));
    node.api.wipe();
    drop(
        node.api
            .until("after a watch", |kept| kept.slices.len() == 1),
    );
}

#[test]
fn a_changed_slice_is_restored_with_a_higher_generation() {
    let (node, _kubelet) = Node::registered();
    // The watch begins after the first publication.
    let lists = |kept: &crate::api_server::Kept| {
        let all = kept
            .asked
            .iter()
            .filter(|one| one.ends_with("resourceslices"));
        all.count() >= 3
    };
    drop(node.api.until("a watch", lists));
    node.api.meddle(|slice| {
        slice["spec"]["pool"]["generation"] = json!(7);
        slice["spec"]["devices"] = json!([]);
    });
    let restored = node.api.until("restored", |kept| kept.generation() == 8);
    let devices = restored.slices[SLICE]["spec"]["devices"]
        .as_array()
        .unwrap();
    assert_eq!(devices.len(), 1);
}

#[test]
fn a_changed_list_of_gpus_changes_the_slice() {
    let (node, _kubelet) = Node::registered();
    node.devices(&[gpu(CARD, 0, ""), gpu(OTHER, 1, "")]);
    let two = |kept: &crate::api_server::Kept| {
        let devices = kept.slices[SLICE]["spec"]["devices"].as_array();
        devices.is_some_and(|all| all.len() == 2)
    };
    assert_eq!(node.api.until("two devices", two).generation(), 2);
}

#[test]
fn a_node_without_gpus_has_no_slice() {
    let mut node = Node::new();
    node.devices(&[]);
    node.start();
    node.kubelet().register();
    assert!(node.api.kept().slices.is_empty());
}

#[test]
fn a_write_that_meets_another_client_is_tried_again() {
    let mut node = Node::new();
    node.api.kept().conflicts = 2;
    node.start();
    node.kubelet().register();
    node.is_published();
    assert_eq!(node.api.kept().generation(), 1);
    node.api.kept().conflicts = 1;
    node.api.kept().deletes_before_replacement = true;
    node.devices(&[gpu(CARD, 0, ""), gpu(OTHER, 1, "")]);
    let two = |kept: &crate::api_server::Kept| {
        let slice = kept.slices.get(SLICE);
        slice.is_some_and(|it| it["spec"]["devices"].as_array().unwrap().len() == 2)
    };
    drop(node.api.until("two devices", two));
}

#[test]
fn the_slices_of_others_stay_and_old_ones_of_this_node_go() {
    let mut node = Node::new();
    let slice = |name: &str, driver: &str, node: &str| {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "metadata": {"name": name, "uid": "u", "resourceVersion": "1"},
            "spec": {
                "driver": driver, "nodeName": node, "devices": [],
                "pool": {"name": node, "generation": 4, "resourceSliceCount": 2},
            },
        })
    };
    for (name, driver, of) in [
        ("old", "gpuslice.io", "node1"),
        ("theirs", "gpu.nvidia.com", "node1"),
        ("next", "gpuslice.io", "node2"),
    ] {
        let slice = slice(name, driver, of);
        node.api.kept().slices.insert(name.to_owned(), slice);
    }
    node.start();
    node.kubelet().register();
    node.is_published();
    let kept = node.api.kept();
    let names: Vec<&String> = kept.slices.keys().collect();
    assert_eq!(names, ["next", SLICE, "theirs"]);
    assert_eq!(kept.slices[SLICE]["spec"]["pool"]["generation"], 5);
}

/// A node whose GPU shares the host's memory.
fn spark() -> Node {
    let node = Node::new();
    let memory = 120_u64 << 30;
    node.devices(&[format!(
        r#"{{"uuid":"{CARD}","index":0,"name":"NVIDIA GB10","memory":{memory},
            "integrated":true,"minor":0}}"#
    )]);
    fs::create_dir_all(node.path("proc")).unwrap();
    let total = memory >> 10;
    let meminfo = format!(
        "MemTotal:       {total} kB\nMemFree:        {total} kB\nMemAvailable:   {total} kB\n"
    );
    fs::write(node.path("proc/meminfo"), meminfo).unwrap();
    node
}

#[test]
fn unified_memory_counts_as_the_nodes_memory_where_the_cluster_can() {
    let mut node = spark();
    node.api.kept().drops_mappings = false;
    node.start();
    node.kubelet().register();
    node.is_published();
    let kept = node.api.kept();
    let device = &kept.slices[SLICE]["spec"]["devices"][0];
    let mapping = json!({"memory": {"capacityKey": "memory"}});
    assert_eq!(device["nodeAllocatableResourceMappings"], mapping);
    // 120 GiB less 8 GiB for the host.
    assert_eq!(device["capacity"]["memory"]["value"], "112Gi");
}

#[test]
fn a_server_without_the_mapping_is_not_asked_again_and_again() {
    for is_refused in [false, true] {
        let mut node = spark();
        node.api.kept().refuses_mappings = is_refused;
        node.start();
        let kubelet = node.kubelet();
        kubelet.register();
        drop(node.api.until("published", |kept| kept.slices.len() == 1));
        for _ in 0..3 {
            kubelet.notify(true, "");
            // A round takes milliseconds; a write in it would be seen.
            std::thread::sleep(Duration::from_millis(300));
        }
        let kept = node.api.kept();
        assert_eq!(kept.generation(), 1, "{:?}", kept.asked);
    }
}
