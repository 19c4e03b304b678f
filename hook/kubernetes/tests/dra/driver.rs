//! Starts gpuslice-dra on a host of its own.
//! Touches: a temporary folder, child processes.

use crate::api_server::{ApiServer, Kept};
use crate::claims::CARD;
use crate::kubelet::Kubelet;
use gpuslice_host::base::paths::HostPaths;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A host with an API server and, once started, a driver.
pub struct Node {
    pub api: ApiServer,
    folder: tempfile::TempDir,
    driver: Option<Child>,
}

/// A GPU in the list of GPUs.
pub fn gpu(uuid: &str, index: u32, more: &str) -> String {
    format!(
        r#"{{"uuid":"{uuid}","index":{index},"name":"NVIDIA GeForce RTX 3090",
            "memory":25438126080,"minor":{index}{more}}}"#
    )
}

impl Node {
    /// A host with one card, and no driver yet.
    pub fn new() -> Node {
        let node = Node {
            api: ApiServer::start(),
            folder: tempfile::Builder::new().prefix("dra").tempdir().unwrap(),
            driver: None,
        };
        for folder in [
            "run/gpuslice",
            "etc/containerd",
            "usr/bin",
            "dev",
            "plugins",
            "registry",
        ] {
            fs::create_dir_all(node.path(folder)).unwrap();
        }
        let hook = node.path("usr/bin/gpuslice-hook");
        fs::write(&hook, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&hook, Permissions::from_mode(0o755)).unwrap();
        node.devices(&[gpu(CARD, 0, "")]);
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"http://{}\"}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
            node.api.address
        );
        fs::write(node.path("kubeconfig"), kubeconfig).unwrap();
        node
    }

    /// A host whose driver is registered, and has published its GPU.
    pub fn registered() -> (Node, Kubelet) {
        let mut node = Node::new();
        node.start();
        let kubelet = node.kubelet();
        kubelet.register();
        node.is_published();
        (node, kubelet)
    }

    /// Waits until the API server has a slice of the driver.
    pub fn is_published(&self) {
        let has = |kept: &Kept| kept.slices.contains_key("node1.gpuslice.io");
        drop(self.api.until("published", has));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn kubelet(&self) -> Kubelet {
        Kubelet::new(self.path("registry"))
    }

    /// Replaces the list of GPUs, as `gpuslice devices --write` does.
    pub fn devices(&self, gpus: &[String]) {
        let text = format!(r#"{{"version":1,"devices":[{}]}}"#, gpus.join(","));
        let (new, path) = (
            self.path("run/gpuslice/new"),
            self.path("run/gpuslice/devices.json"),
        );
        fs::write(&new, text).unwrap();
        fs::set_permissions(&new, Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, path).unwrap();
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuslice-dra"));
        let options = [
            ("--host-root", ""),
            ("--plugins", "plugins"),
            ("--plugins-registry", "registry"),
            ("--cdi", "cdi"),
            ("--kubeconfig", "kubeconfig"),
        ];
        for (option, value) in options {
            command.arg(option).arg(self.path(value));
        }
        command.args(["--node-name", "node1"]).args(more);
        command.stdin(Stdio::null());
        command
    }

    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    pub fn start_with(&mut self, more: &[&str]) {
        let mut log = fs::File::options();
        let log = log.create(true).append(true).open(self.path("log"));
        let log = log.unwrap();
        let child = self.command(more).stderr(log).spawn().unwrap();
        self.driver = Some(child);
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.driver.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Starts another driver beside the running one, which is returned.
    pub fn start_another(&mut self) -> Child {
        let old = self.driver.take().unwrap();
        self.start();
        old
    }

    /// Ends the driver as the kubelet ends a pod.
    pub fn terminate(&mut self) -> bool {
        let child = self.driver.take().unwrap();
        Node::terminate_one(child)
    }

    pub fn terminate_one(mut child: Child) -> bool {
        let pid = i32::try_from(child.id()).unwrap();
        // SAFETY: kill has no memory effects, and the child is not yet waited for.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
        child.wait().unwrap().success()
    }

    pub fn pid(&self) -> u32 {
        self.driver.as_ref().unwrap().id()
    }

    /// The readiness probe: the exit status, and the last line of its output.
    pub fn probe(&self) -> (bool, String) {
        let Output { status, stderr, .. } = self.command(&["ready"]).output().unwrap();
        let text = String::from_utf8(stderr).unwrap();
        let sentence = text.trim_end().split_once(" gpuslice: ");
        let sentence = sentence.map_or("", |(_, sentence)| sentence);
        (status.success(), sentence.to_owned())
    }

    /// Waits until the readiness probe reports this.
    pub fn until_probe(&self, expected: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let (is_ready, sentence) = self.probe();
            if sentence == expected {
                assert_eq!(is_ready, expected.is_empty());
                return;
            }
            assert!(Instant::now() < end, "{sentence:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The paths of gpuslice on this host.
    pub fn host(&self) -> HostPaths {
        HostPaths::below(self.folder.path())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The CDI files, by name.
    pub fn cdi_files(&self) -> Vec<String> {
        let files = fs::read_dir(self.path("cdi")).into_iter().flatten();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The CDI file of a claim.
    pub fn cdi(&self, uid: &str) -> serde_json::Value {
        let file = format!("cdi/k8s.gpuslice.io-claim-{uid}.json");
        serde_json::from_slice(&fs::read(self.path(&file)).unwrap()).unwrap()
    }

    /// The arguments of the hook at createRuntime, for each device of a claim.
    pub fn hooks(&self, uid: &str) -> Vec<String> {
        let cdi = self.cdi(uid);
        let devices = cdi["devices"].as_array().unwrap().iter();
        let words = |device: &serde_json::Value| {
            let words = device["containerEdits"]["hooks"][0]["args"].clone();
            let words: Vec<String> = serde_json::from_value(words).unwrap();
            words.join(" ")
        };
        devices.map(words).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}
