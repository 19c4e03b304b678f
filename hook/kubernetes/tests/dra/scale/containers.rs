//! Containers, as an engine makes them of a pod and of the CDI files. A sampled share of them is
//! real: a process in a mount namespace of its own, into which the program gpuslice-hook puts the
//! slice. The others are admitted and recorded by the hook's own functions, and have no process.
//! Touches: the node's folders, child processes, mount namespaces.

use crate::scale::node::Node;
use gpuslice_hook::request::arguments::{self, Arguments, Invocation};
use gpuslice_hook::request::state::{self, State};
use gpuslice_hook::stage;
use gpuslice_host::machine::process::InitProcess;
use gpuslice_host::slices::records::{self, Registry};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A pod, as its containers' annotations name it.
pub struct Place<'a> {
    pub namespace: &'a str,
    pub pod: &'a str,
    pub uid: &'a str,
    pub sandbox: &'a str,
    pub container: usize,
}

/// A container that runs.
pub struct Container {
    pub id: String,
    /// Its pod, and its number in it.
    pub pod: usize,
    pub number: usize,
    /// The names of its slices, as its hooks give them.
    pub slices: Vec<String>,
    state: String,
    hooks: Vec<Vec<String>>,
    process: Option<Child>,
}

impl Drop for Container {
    fn drop(&mut self) {
        self.dies();
    }
}

/// A program of `make`.
fn built(name: &str) -> PathBuf {
    let given = std::env::var_os("GPUSLICE_TARGET").map(PathBuf::from);
    let here = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let path = given.unwrap_or_else(here).join("release").join(name);
    assert!(path.exists(), "run `make` first: no {}", path.display());
    path
}

/// The files that all nodes and containers share.
pub fn shared_files(folder: &Path) {
    let machine = std::env::consts::ARCH;
    let places = [
        format!("/lib/{machine}-linux-gnu"),
        "/lib64".into(),
        "/usr/lib64".into(),
    ];
    let mut places = places
        .iter()
        .map(|place| Path::new(place).join("libc.so.6"));
    let libc = places.find(|path| path.exists()).unwrap();
    fs::copy(libc, folder.join("libc.so.6")).unwrap();
    let library = folder.join("libgpuslice.so");
    fs::copy(built("libgpuslice.so"), &library).unwrap();
    fs::set_permissions(library, fs::Permissions::from_mode(0o644)).unwrap();
}

/// Makes the smallest root that counts as a glibc image.
fn image(root: &Path, libc: &Path) {
    let machine = std::env::consts::ARCH;
    let own = root.join(format!("lib/{machine}-linux-gnu"));
    for folder in [
        &own,
        &root.join("etc"),
        &root.join("lib64"),
        &root.join("dev"),
    ] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::hard_link(libc, own.join("libc.so.6")).unwrap();
    for loader in ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"] {
        if Path::new("/").join(loader).exists() {
            fs::write(root.join(loader), "").unwrap();
        }
    }
}

/// The edits of a CDI device, as an engine reads them.
fn edits(node: &Node, device: &str) -> Option<Value> {
    let name = device.strip_prefix("k8s.gpuslice.io/claim=")?;
    let claim = &name[..36];
    let file = format!("k8s.gpuslice.io-claim-{claim}.json");
    let text = fs::read(node.settings.cdi.join(file)).ok()?;
    let file: Value = serde_json::from_slice(&text).unwrap();
    let mut devices = file["devices"].as_array().unwrap().iter();
    let device = devices.find(|device| device["name"] == name)?;
    Some(device["containerEdits"].clone())
}

/// The words of the hooks of one stage.
fn words(edits: &Value, stage: &str) -> Vec<String> {
    let mut hooks = edits["hooks"].as_array().unwrap().iter();
    let hook = hooks.find(|hook| hook["hookName"] == stage).unwrap();
    serde_json::from_value(hook["args"].clone()).unwrap()
}

impl Container {
    /// Starts a container. The text says why it does not start.
    pub fn start(
        node: &Node,
        place: &Place<'_>,
        pod: usize,
        id: &str,
        devices: &[String],
        annotation: Option<&str>,
        is_real: bool,
    ) -> Result<Container, String> {
        let bundle = node.path("bundles").join(id);
        fs::create_dir_all(&bundle).unwrap();
        let ours = devices
            .iter()
            .filter(|device| !device.starts_with("nvidia.com/"));
        let edits: Option<Vec<Value>> = ours.map(|device| edits(node, device)).collect();
        let edits = edits.ok_or("unresolvable CDI devices")?;
        let mut annotations = json!({
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.container-name": format!("c{}", place.container),
            "io.kubernetes.cri.sandbox-name": place.pod,
            "io.kubernetes.cri.sandbox-namespace": place.namespace,
            "io.kubernetes.cri.sandbox-uid": place.uid,
            "io.kubernetes.cri.sandbox-id": place.sandbox,
        });
        if let Some(size) = annotation {
            annotations["gpuslice.io/memory"] = json!(size);
        }
        let at = |stage: &str| {
            let hook = |edits: &Value| json!({"path": "/usr/bin/gpuslice-hook", "args": words(edits, stage)});
            edits.iter().map(hook).collect::<Vec<Value>>()
        };
        if is_real {
            image(&bundle.join("rootfs"), &node.path("../libc.so.6"));
        }
        let spec = json!({
            "root": {"path": "rootfs"},
            "process": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
            "annotations": annotations,
            "hooks": {"createRuntime": at("createRuntime"), "poststop": at("poststop")},
            "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]},
        });
        fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        let process = is_real.then(first_process);
        let pid = process.as_ref().map_or_else(std::process::id, Child::id);
        let state = json!({
            "ociVersion": "1.0.2", "id": id, "status": "creating", "pid": pid,
            "bundle": bundle, "annotations": annotations,
        });
        let slice = |edits: &Value| words(edits, "createRuntime")[2].clone();
        let mut container = Container {
            id: id.to_owned(),
            pod,
            number: place.container,
            slices: edits.iter().map(slice).collect(),
            state: state.to_string(),
            hooks: edits.iter().map(|edits| words(edits, "poststop")).collect(),
            process,
        };
        container.slices.sort();
        for edits in &edits {
            let words = words(edits, "createRuntime");
            let ran = match container.process {
                Some(_) => program(node, &words, &container.state),
                None => function(node, &words, &container.state),
            };
            if let Err(why) = ran {
                // The runtime deletes a container that did not start.
                container.stop(node);
                return Err(why);
            }
        }
        Ok(container)
    }

    pub fn is_real(&self) -> bool {
        self.process.is_some()
    }

    /// Its first process ends.
    pub fn dies(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Its process is killed, and the runtime does not get to delete it.
    pub fn loses_process(mut self, node: &Node) -> Orphan {
        self.dies();
        if self.process.is_none() {
            end_in_record(node, &self.id);
        }
        Orphan(self)
    }

    /// It stops: its process ends, and the runtime runs poststop.
    pub fn stop(&mut self, node: &Node) {
        self.dies();
        self.poststop(node);
        let _ = fs::remove_dir_all(node.path("bundles").join(&self.id));
    }

    fn poststop(&self, node: &Node) {
        for words in &self.hooks {
            let ran = match self.process {
                Some(_) => program(node, words, &self.state),
                None => function(node, words, &self.state),
            };
            assert_eq!(ran, Ok(()), "poststop of {}", self.id);
        }
    }
}

/// A container without a process, whose poststop has not run yet.
pub struct Orphan(Container);

impl Orphan {
    /// The runtime deletes it at last.
    pub fn deleted(mut self, node: &Node) {
        self.0.stop(node);
    }
}

/// Runs the program.
fn program(node: &Node, words: &[String], state: &str) -> Result<(), String> {
    let mut hook = Command::new(built("gpuslice-hook"))
        .arg("--root")
        .arg(node.path(""))
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = hook.stdin.take().unwrap().write_all(state.as_bytes());
    let output = hook.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    match output.status.success() && said.is_empty() {
        true => Ok(()),
        false => Err(said),
    }
}

/// Calls the functions that the program calls, up to the container's own files.
fn function(node: &Node, words: &[String], state: &str) -> Result<(), String> {
    let root = ["--root".into(), node.path("").into_os_string()];
    let words = words[1..].iter().map(OsString::from);
    let Invocation::Stage(arguments) = arguments::parse(root.into_iter().chain(words))? else {
        return Err("it is no stage".to_owned());
    };
    let arguments: &Arguments = &arguments;
    let state: State = state::parse(state.as_bytes()).map_err(|error| error.to_string())?;
    match arguments.verb.as_str() {
        "createRuntime" => {
            let owner = InitProcess::of(state.pid).map_err(|error| error.to_string())?;
            stage::admit(&state, arguments, owner)
        }
        _ => stage::release(&state, arguments).map(drop),
    }
}

/// Makes the process in a container's record one that has ended.
fn end_in_record(node: &Node, id: &str) {
    let registry = Registry::lock(&node.paths).unwrap();
    for mut record in records::records(&node.paths).unwrap() {
        for member in &mut record.containers {
            if member.id == id {
                member.owner.start_time -= 1000;
            }
        }
        registry.write(&record).unwrap();
    }
}

/// Starts a process in a mount namespace of its own, and waits until it is there.
fn first_process() -> Child {
    let mut child = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            "echo; exec sleep 600",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.as_mut().unwrap());
    output.read_line(&mut line).unwrap();
    child
}
