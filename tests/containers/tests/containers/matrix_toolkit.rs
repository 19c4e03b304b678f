//! CDI devices, and NVIDIA's toolkit in each of its modes, with everything that a container may
//! bring. Each start gives a slice or a refusal with the reason.
//!
//! Debian's Docker 20.10 and containerd 1.6 do not support CDI. With them, NVIDIA_VISIBLE_DEVICES
//! names the device, and the toolkit adds it. Newer engines apply the edits of a CDI device
//! themselves; runc, crun and podman test these edits. The toolkit is a stand-in that changes
//! config.json as each mode of the real one does.

use crate::matrix::{ByDevice, Store, Way, faults, import_images, prepare};
use crate::nvidia::{MODES, toolkit};
use gpuslice_containers::bundle::Oci;
use gpuslice_containers::cri::Cri;
use gpuslice_containers::docker::Docker;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::spec::{Image, Spec};
use serde_json::{Value, json};

const BOTH: [Way; 2] = [Way::Device, Way::DeviceDeny];
const OTHERS: [Way; 3] = [Way::AnnotatedRequest, Way::Default, Way::Deny];

/// A runtime that the test calls directly, without an engine.
struct Direct<'h> {
    host: &'h Host,
    oci: Oci<'h>,
    /// A name for messages: the runtime, and its peculiarity.
    name: String,
    /// Whether it is crun, whose standard error does not show a hook's messages.
    is_crun: bool,
}

impl Engine for Direct<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn start(&mut self, spec: &Spec) -> Result<String, Done> {
        let mut spec = spec.clone();
        let is_linked = spec.image == Image::Linked;
        if is_linked {
            spec.image = Image::Debian;
        }
        // crun writes the messages of a hook to the file that this annotation names.
        if self.is_crun {
            spec = spec.annotated("run.oci.hooks.stderr", "/run/hook.err");
        }
        self.host.sh("rm -f /run/hook.err").ok();
        self.oci.prepare(&spec);
        if is_linked {
            let root = format!("{}/rootfs", Oci::bundle(&spec.name));
            self.host
                .sh(&format!("ln -sf /nowhere {root}/etc/ld.so.preload"))
                .ok();
        }
        let mut done = self.oci.run(&spec.name);
        if done.code == 0 {
            return Ok(spec.name);
        }
        done.err.push_str(&self.host.sh("cat /run/hook.err").out);
        self.oci.remove(&spec.name);
        Err(done)
    }

    fn exec(&self, id: &str, command: &[&str]) -> Done {
        self.oci.exec(id, command)
    }

    fn restart(&mut self, id: &str) {
        self.oci.restart(id);
    }

    fn remove(&mut self, id: &str) {
        self.oci.remove(id);
    }
}

/// An engine whose containers name their devices in the toolkit's variable.
struct Visible<'e> {
    engine: &'e mut dyn Engine,
    devices: String,
    mode: &'static str,
}

impl Engine for Visible<'_> {
    fn name(&self) -> String {
        format!(
            "{} below the toolkit in mode {}",
            self.engine.name(),
            self.mode
        )
    }

    fn start(&mut self, spec: &Spec) -> Result<String, Done> {
        let mut spec = spec.clone();
        spec.env
            .push(format!("NVIDIA_VISIBLE_DEVICES={}", self.devices));
        self.engine.start(&spec)
    }

    fn exec(&self, id: &str, command: &[&str]) -> Done {
        self.engine.exec(id, command)
    }

    fn restart(&mut self, id: &str) {
        self.engine.restart(id);
    }

    fn remove(&mut self, id: &str) {
        self.engine.remove(id);
    }
}

/// Tries each way to a slice that the engine has, below the toolkit in one mode.
fn below_toolkit(
    host: &Host,
    engine: &mut dyn Engine,
    mode: &'static str,
    ways: &[Way],
) -> Vec<String> {
    let mut all = Vec::new();
    for way in ways {
        // The legacy mode does not support CDI devices.
        if way.has_device() && mode == "legacy" {
            continue;
        }
        let devices = match way.has_device() {
            true => "nvidia.com/gpu=0,gpuslice.io/slice=2gib",
            false => "nvidia.com/gpu=0",
        };
        let mut visible = Visible {
            engine: &mut *engine,
            devices: devices.to_owned(),
            mode,
        };
        all.extend(faults(host, &mut visible, &[*way]));
    }
    all
}

/// The edits that an engine with CDI support applies for the device of 2 GiB.
fn edits(host: &Host) -> Value {
    host.sh(
        "mkdir -p /etc/cdi && gpuslice cdi generate --size 2GiB --output /etc/cdi/gpuslice.json",
    )
    .ok();
    let text = std::fs::read(host.path("/etc/cdi/gpuslice.json")).expect("it");
    let cdi: Value = serde_json::from_slice(&text).expect("JSON");
    let device = &cdi["devices"][0];
    assert_eq!(device["name"], "2gib");
    let mut hooks = json!({});
    for edit in device["containerEdits"]["hooks"].as_array().expect("them") {
        let stage = edit["hookName"].as_str().expect("a stage");
        let own = json!({"path": edit["path"], "args": edit["args"], "env": edit["env"]});
        match hooks[stage].as_array_mut() {
            Some(all) => all.push(own),
            None => hooks[stage] = json!([own]),
        }
    }
    hooks
}

fn by_edits<'h>(host: &'h Host, binary: &'static str) -> Direct<'h> {
    let mut oci = Oci::without_hooks(host, binary);
    oci.hooks = edits(host);
    Direct {
        host,
        oci,
        name: format!("{binary} with the edits of a CDI device"),
        is_crun: binary == "crun",
    }
}

#[test]
fn a_cdi_device_gives_its_slice_or_a_reason_whatever_the_container_brings() {
    if !ready() {
        return;
    }
    let host = Host::new();
    prepare(&host);
    for binary in ["runc", "crun"] {
        let faults = faults(&host, &mut by_edits(&host, binary), &BOTH);
        assert_eq!(faults, Vec::<String>::new());
    }
}

fn direct<'h>(host: &'h Host, below: &str) -> Direct<'h> {
    Direct {
        host,
        oci: Oci::without_hooks(host, "nvidia-container-runtime"),
        name: format!("nvidia-container-runtime over {below}"),
        is_crun: below == "crun",
    }
}

#[test]
fn the_toolkits_default_mode_gives_every_container_a_slice_or_a_reason() {
    if !ready() {
        return;
    }
    let host = Host::new();
    prepare(&host);
    toolkit(&host, "jit-cdi", "\"runc\"");
    let ways = [Way::AnnotatedRequest, Way::Device];
    let faults = below_toolkit(&host, &mut direct(&host, "runc"), "jit-cdi", &ways);
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
#[ignore = "hundreds of containers of every engine: make check-all"]
fn runtimes_below_the_toolkit_start_nothing_without_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    prepare(&host);
    let mut all = Vec::new();
    for mode in MODES {
        for below in ["runc", "crun"] {
            toolkit(&host, mode, &format!("\"{below}\""));
            let mut direct = direct(&host, below);
            all.extend(below_toolkit(&host, &mut direct, mode, &OTHERS));
            all.extend(below_toolkit(&host, &mut direct, mode, &BOTH));
        }
    }
    assert_eq!(all, Vec::<String>::new());
}

#[test]
#[ignore = "hundreds of containers of every engine: make check-all"]
fn podman_above_the_toolkit_starts_nothing_without_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    prepare(&host);
    let _images = Podman::new(&host, "runc", "createRuntime");
    // podman has no hooks of its own here; only gpuslice-runtime below the toolkit adds them.
    host.sh("rm -f /usr/share/containers/oci/hooks.d/*gpuslice*")
        .ok();
    import_images(&host, Store::Podman);
    let mut all = Vec::new();
    for mode in MODES {
        toolkit(&host, mode, "\"runc\"");
        let runtime = "/usr/bin/nvidia-container-runtime";
        let mut podman = Podman::again(&host, runtime);
        all.extend(below_toolkit(&host, &mut podman, mode, &OTHERS));
        // First podman's own CDI device together with the toolkit's, then the toolkit's alone.
        let mut by_device = ByDevice(Podman::again(&host, runtime));
        let mut visible = Visible {
            engine: &mut by_device,
            devices: "nvidia.com/gpu=0".into(),
            mode,
        };
        all.extend(faults(&host, &mut visible, &BOTH));
        all.extend(below_toolkit(&host, &mut podman, mode, &BOTH));
    }
    assert_eq!(all, Vec::<String>::new());
}

#[test]
#[ignore = "hundreds of containers of every engine: make check-all"]
fn docker_above_the_toolkit_starts_nothing_without_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    prepare(&host);
    toolkit(&host, "auto", "\"runc\"");
    host.write(
        "/etc/docker/daemon.json",
        r#"{"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}}"#,
    );
    let mut docker = Docker::new(&host, "nvidia");
    import_images(&host, Store::Docker);
    let mut all = Vec::new();
    // This engine does not pass on annotations.
    let ways = [Way::Default, Way::Deny, Way::Device, Way::DeviceDeny];
    for mode in MODES {
        toolkit(&host, mode, "\"runc\"");
        all.extend(below_toolkit(&host, &mut docker, mode, &ways));
    }
    assert_eq!(all, Vec::<String>::new());
}

#[test]
#[ignore = "hundreds of containers of every engine: make check-all"]
fn containerd_above_the_toolkit_starts_no_pod_without_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    prepare(&host);
    toolkit(&host, "auto", "\"runc\"");
    let handler = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n\
         runtime_type = \"io.containerd.runc.v2\"\n\
         pod_annotations = [\"gpuslice.io/*\"]\ncontainer_annotations = [\"gpuslice.io/*\"]\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\n\
         BinaryName = \"/usr/bin/nvidia-container-runtime\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
         runtime_type = \"io.containerd.runc.v2\"\n";
    host.write("/run/handler.toml", handler);
    let configure = "cat /run/handler.toml >>/etc/containerd/config.toml";
    let mut cri = Cri::new(&host, "nvidia", configure);
    import_images(&host, Store::Containerd);
    let mut all = Vec::new();
    for mode in MODES {
        toolkit(&host, mode, "\"runc\"");
        all.extend(below_toolkit(&host, &mut cri, mode, &OTHERS));
        all.extend(below_toolkit(&host, &mut cri, mode, &BOTH));
    }
    assert_eq!(all, Vec::<String>::new());
}
