//! Claims from the API server to containers: the driver prepares them as a kubelet asks, and
//! containerd 1.7 starts containers with the CDI devices that the driver has written.
//! Touches: a machine of `gpuslice_containers`, an API server, child processes.

use crate::api_server::ApiServer;
use crate::claims::{claim, result, uid};
use crate::kubelet::{Kubelet, named};
use gpuslice_containers::cri::Cri;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::Spec;
use serde_json::{Value, json};
use std::process::Child;
use std::time::{Duration, Instant};

const DRIVER: &str = env!("CARGO_BIN_EXE_gpuslice-dra");

/// A machine with containerd and the driver, and its API server.
struct Node<'h> {
    host: &'h Host,
    cri: Cri<'h>,
    api: ApiServer,
    kubelet: Kubelet,
    gpu: String,
    driver: Child,
}

/// Starts the driver. It reads containerd's configuration where containerd reads it.
fn start(host: &Host) -> Child {
    let options = [
        ["--node-name", "node1"],
        ["--kubeconfig", "/run/kubeconfig"],
        ["--plugins", "/run/plugins"],
        ["--plugins-registry", "/run/registry"],
    ];
    host.sh("mkdir -p /run/registry").ok();
    host.spawn(DRIVER, &options.concat(), "/run/driver.log")
}

impl<'h> Node<'h> {
    fn new(host: &'h Host, cri: Cri<'h>) -> Node<'h> {
        host.list_with_minors("rtx3090");
        let api = ApiServer::start();
        let version = cri.call("Version", &json!({"version": "v1"})).unwrap();
        let version = version["runtime_version"].as_str().unwrap();
        api.kept().engine = format!("containerd://{version}");
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
            api.address
        );
        host.write("/run/kubeconfig", kubeconfig);
        let list = std::fs::read(host.path("/run/gpuslice/devices.json")).unwrap();
        let list: Value = serde_json::from_slice(&list).unwrap();
        Node {
            host,
            api,
            kubelet: Kubelet::new(host.path("/run/registry")),
            gpu: list["devices"][0]["uuid"].as_str().unwrap().to_owned(),
            driver: start(host),
            cri,
        }
    }

    /// Gives the claim of this number an amount of memory, as the scheduler does, and has the driver
    /// prepare it. Returns the names of the CDI devices.
    fn prepare(&self, number: usize, memory: &str) -> Vec<String> {
        let name = format!("c{number}");
        let share = uid(100 + number);
        let results = [result("r", &self.gpu, memory, &share)];
        self.api
            .add_claim(claim(&name, &uid(number), &results, &[]));
        let prepared = self.kubelet.prepare_one(&named(&name, &uid(number)));
        assert_eq!(prepared.error, "");
        prepared.devices[0].cdi_device_ids.clone()
    }

    /// A container with these CDI devices, in a pod.
    fn run(&self, pod: &str, name: &str, devices: &[String]) -> Result<String, Done> {
        let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        let none = json!({});
        self.cri
            .run_container_with(pod, &Spec::new(name), &none, &devices)
    }

    fn pod(&self, name: &str) -> String {
        self.cri.run_pod(name, &json!({})).unwrap()
    }

    fn kill_driver(&mut self) {
        self.host.sh("kill -9 $(pidof gpuslice-dra)").ok();
        self.driver.wait().unwrap();
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        let _ = self.host.sh("kill -9 $(pidof gpuslice-dra)");
        let _ = self.driver.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.host.sh("cat /run/driver.log").out);
        }
    }
}

#[test]
fn a_prepared_claim_is_a_slice_of_each_container_that_uses_it() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut node = Node::new(&host, Cri::with_cdi(&host, "runc", ""));
    node.kubelet.register();
    let (team, own) = (node.prepare(1, "8Gi"), node.prepare(2, "6Gi"));
    let pods = ["p1", "p2", "p3"].map(|name| node.pod(name));
    let [p1, p2, p3] = &pods;
    let mut shared: Vec<String> = [(p1, "a"), (p1, "b"), (p2, "a")]
        .iter()
        .map(|(pod, name)| node.run(pod, name, &team).unwrap())
        .collect();
    let alone = node.run(p2, "own", &own).unwrap();
    for id in &shared {
        assert_sliced(&node.cri, id, 8 * GIB);
    }
    assert_sliced(&node.cri, &alone, 6 * GIB);
    let devices = node.cri.exec(&alone, &["/usr/bin/ls", "/dev"]).ok();
    assert!(devices.lines().any(|name| name == "nvidia0"), "{devices}");

    // The hook counts for itself: the claim of 8 GiB once, for three containers.
    let late = node.prepare(3, "12Gi");
    let refused = node.run(p3, "late", &late).unwrap_err().err;
    for part in [
        "has 9.69 GiB left, 12.00 GiB requested; held by",
        "default/p2/own 6.00 GiB",
    ] {
        assert!(refused.contains(part), "{refused}");
    }

    // The driver is killed: what runs goes on, and a container restarts with the file that is there.
    node.kill_driver();
    node.cri.remove_container(&shared.remove(0));
    shared.push(node.run(p1, "again", &team).unwrap());
    assert_sliced(&node.cri, shared.last().unwrap(), 8 * GIB);
    // A boot empties /run/cdi, and the next driver writes the same files.
    let files = host.list("/run/cdi");
    assert_eq!(files.len(), 3, "{files:?}");
    host.sh("rm -r /run/cdi").ok();
    assert!(
        node.run(p1, "lost", &team).is_err(),
        "no file names the device"
    );
    node.driver = start(&host);
    node.kubelet.register();
    assert_eq!(
        (node.prepare(1, "8Gi"), node.prepare(2, "6Gi")),
        (team.clone(), own)
    );

    for id in shared.iter().chain([&alone]) {
        node.cri.remove_container(id);
    }
    let late_again = node.prepare(3, "12Gi");
    assert_eq!(late_again, late);
    let late = node.run(p3, "late", &late).unwrap();
    assert_sliced(&node.cri, &late, 12 * GIB);
    node.cri.remove_container(&late);
    for pod in &pods {
        node.cri.remove_pod(pod);
    }
    assert_nothing_left(&host);

    // Claims that were taken back give nothing any more.
    let all = [1, 2, 3].map(|number| named(&format!("c{number}"), &uid(number)));
    node.kubelet.unprepare(&all);
    assert_eq!(host.list("/run/cdi"), Vec::<String>::new());
    let pod = node.pod("p4");
    let gone = node.run(&pod, "gone", &team).unwrap_err().err;
    assert!(gone.contains("unresolvable CDI devices"), "{gone}");
    node.cri.remove_pod(&pod);
}

#[test]
fn beside_a_containerd_that_ignores_cdi_devices_no_claim_is_prepared() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let off = "sed -i s/enable_cdi.*/enable_cdi\\ =\\ false/ /etc/containerd/config.toml";
    let node = Node::new(&host, Cri::with_cdi(&host, "runc", off));
    let probe = || host.run(DRIVER, &["--plugins", "/run/plugins", "ready"]);
    let end = Instant::now() + Duration::from_secs(60);
    let part = "ignores CDI devices, according to /etc/containerd/config.toml, so";
    while !probe().err.contains(part) {
        assert!(Instant::now() < end, "{:?}", probe());
        std::thread::sleep(Duration::from_millis(20));
    }
    node.kubelet.register();
    let error = node.kubelet.prepare_one(&named("c1", &uid(1))).error;
    assert!(error.contains(part), "{error}");
    assert!(node.api.kept().changes.is_empty());
}
