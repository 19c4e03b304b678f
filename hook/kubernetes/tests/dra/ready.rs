//! The driver does not serve where a container would start without its slice.

use crate::claims::{CARD, UID, simple};
use crate::driver::{Node, gpu};
use crate::kubelet::{Kubelet, named};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// A driver that must not get ready, and its sentence. It registers, and publishes nothing.
fn refused(node: &mut Node, sentence: &str) {
    node.start();
    let kubelet = node.kubelet();
    kubelet.register();
    node.until_probe(sentence);
    // A registration is a cause to publish. The first request of a round reads the node.
    let asked = node.api.kept().asked.len();
    kubelet.notify(true, "");
    drop(
        node.api
            .until("a round", |kept| kept.asked.len() > asked + 1),
    );
    let error = kubelet.prepare_one(&named("c1", UID)).error;
    assert_eq!(error, format!("gpuslice: {sentence}"));
    assert!(node.api.kept().changes.is_empty(), "a slice was published");
}

#[test]
fn a_driver_that_serves_is_ready_and_ends_cleanly() {
    let (mut node, kubelet) = Node::registered();
    node.until_probe("");
    assert!(node.terminate());
    assert!(!kubelet.sees_driver());
    assert!(!node.path("plugins/gpuslice.io/dra.sock").exists());
}

/// The inodes of the driver's two sockets.
fn sockets(node: &Node) -> BTreeSet<u64> {
    let socket = fs::metadata(node.path("plugins/gpuslice.io/dra.sock"));
    let registry = fs::read_dir(node.path("registry")).unwrap().flatten();
    let others = registry.filter_map(|entry| entry.metadata().ok());
    let all = socket.ok().into_iter().chain(others);
    all.map(|facts| facts.ino()).collect()
}

/// With `maxSurge`, the new driver's pod starts before the old one's ends.
#[test]
fn the_end_of_an_old_driver_leaves_the_new_ones_sockets() {
    let (mut node, kubelet) = Node::registered();
    let before = sockets(&node);
    assert_eq!(before.len(), 2);
    let old = node.start_another();
    let start = Instant::now();
    while sockets(&node).len() != 2 || !sockets(&node).is_disjoint(&before) {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", node.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = sockets(&node);
    assert!(Node::terminate_one(old));
    assert_eq!(sockets(&node), after);
    assert!(kubelet.sees_driver());
}

#[test]
fn an_engine_that_ignores_cdi_is_refused_until_it_does_not() {
    let mut node = Node::new();
    node.api.kept().engine = "containerd://1.7.24".to_owned();
    refused(
        &mut node,
        "containerd://1.7.24 ignores CDI devices, so containers would have the whole GPU: set \
         enable_cdi = true in its CRI plugin and restart it",
    );
    let config = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n";
    fs::write(node.path("etc/containerd/config.toml"), config).unwrap();
    node.until_probe("");
    node.kubelet().register();
}

#[test]
fn an_engine_that_no_longer_enables_cdi_gets_no_claim_from_that_moment() {
    let mut node = Node::new();
    node.api.kept().engine = "containerd://1.7.24".to_owned();
    let config = node.path("etc/containerd/config.toml");
    let imports = "imports = [\"conf.d/*.toml\"]\nversion = 2\n";
    let cri = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n";
    let imported = node.path("etc/containerd/conf.d/cdi.toml");
    fs::create_dir_all(imported.parent().unwrap()).unwrap();
    fs::write(&config, imports).unwrap();
    fs::write(&imported, format!("{cri}enable_cdi = true\n")).unwrap();
    node.start();
    let kubelet = node.kubelet();
    kubelet.register();
    node.is_published();
    node.api.add_claim(simple());
    fs::write(&imported, cri).unwrap();
    let sentence = "containerd://1.7.24 ignores CDI devices, according to /etc/containerd/config.toml, \
                    so containers would have the whole GPU: set enable_cdi = true in its CRI plugin and \
                    restart it";
    let error = kubelet.prepare_one(&named("c1", UID)).error;
    assert_eq!(error, format!("gpuslice: {sentence}"));
    assert!(node.cdi_files().is_empty());
    // The refused claim is a cause for a round, and a change of the main file is one as well.
    drop(node.api.until("withdrawn", |kept| kept.slices.is_empty()));
    node.until_probe(sentence);
    fs::write(&config, format!("{cri}enable_cdi = true\n")).unwrap();
    node.is_published();
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
    fs::write(&config, cri).unwrap();
    drop(node.api.until("withdrawn", |kept| kept.slices.is_empty()));
}

#[test]
fn a_cluster_without_dra_or_consumable_capacity_is_refused() {
    let mut node = Node::new();
    node.api.kept().has_no_v1 = true;
    refused(
        &mut node,
        "the API server has no resource.k8s.io/v1: Kubernetes 1.34 or later is needed",
    );
    let mut node = Node::new();
    node.api.kept().drops_sharing = true;
    refused(
        &mut node,
        "the API server drops allowMultipleAllocations, so a claim would get a whole GPU: switch on \
         the feature gate DRAConsumableCapacity (Kubernetes 1.36 has it on)",
    );
    let mut node = Node::new();
    node.api.kept().forbids = true;
    refused(
        &mut node,
        "cannot list the ResourceSlices of this node: the API server answers 403 Forbidden: \
         resourceslices is forbidden",
    );
}

#[test]
fn a_host_without_the_hook_or_the_list_of_gpus_is_refused() {
    let mut node = Node::new();
    fs::remove_file(node.path("usr/bin/gpuslice-hook")).unwrap();
    refused(
        &mut node,
        "there is no executable /usr/bin/gpuslice-hook on this host, so no container would get its \
         slice (install gpuslice, or name the file by --hook)",
    );
    let mut node = Node::new();
    fs::remove_file(node.path("run/gpuslice/devices.json")).unwrap();
    let sentence = not_listed(&node);
    refused(&mut node, &sentence);
}

/// The sentence of a driver without a list of GPUs.
pub(crate) fn not_listed(node: &Node) -> String {
    format!(
        "there is no list of GPUs, {} (run gpuslice devices --write)",
        node.path("run/gpuslice/devices.json").display()
    )
}

/// A node that has rebooted after a claim was prepared. NVIDIA's driver no longer works, so no list
/// of GPUs was written.
fn rebooted() -> (Node, Kubelet) {
    let (mut node, kubelet) = Node::registered();
    node.api.add_claim(simple());
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
    node.kill();
    fs::remove_file(node.path("run/gpuslice/devices.json")).unwrap();
    fs::remove_file(node.path("registry/gpuslice.io-reg.sock")).unwrap();
    node.api.wipe();
    node.start();
    let kubelet = node.kubelet();
    kubelet.register();
    (node, kubelet)
}

#[test]
fn a_driver_whose_gpus_are_not_listed_unprepares_an_ended_pods_claim() {
    let (node, kubelet) = rebooted();
    node.until_probe(&not_listed(&node));
    let error = kubelet.prepare_one(&named("c1", UID)).error;
    assert_eq!(error, format!("gpuslice: {}", not_listed(&node)));
    assert_eq!(node.cdi_files().len(), 1);
    let taken_back = kubelet.unprepare(&[named("c1", UID)]);
    assert_eq!(taken_back.claims[UID].error, "");
    assert!(node.cdi_files().is_empty());
    assert!(node.api.kept().slices.is_empty());
}

#[test]
fn a_driver_whose_gpus_are_listed_late_prepares_and_publishes() {
    let (node, kubelet) = rebooted();
    node.until_probe(&not_listed(&node));
    node.devices(&[gpu(CARD, 0, "")]);
    node.until_probe("");
    node.is_published();
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
}

#[test]
fn a_claim_that_comes_right_after_the_registration_is_prepared() {
    let mut node = Node::new();
    node.api.add_claim(simple());
    node.start();
    let kubelet = node.kubelet();
    kubelet.info();
    assert_eq!(kubelet.prepare_one(&named("c1", UID)).error, "");
}

#[test]
fn a_driver_that_is_ready_no_longer_withdraws_and_prepares_nothing() {
    let (node, kubelet) = Node::registered();
    node.api.add_claim(simple());
    fs::create_dir_all(node.path("etc/gpuslice")).unwrap();
    fs::write(node.path("etc/gpuslice/config.toml"), "no-such-key = 1\n").unwrap();
    drop(node.api.until("withdrawn", |kept| kept.slices.is_empty()));
    let error = kubelet.prepare_one(&named("c1", UID)).error;
    assert!(error.contains("no-such-key"), "{error}");
    assert!(!node.probe().0);
    assert!(node.cdi_files().is_empty());
}
