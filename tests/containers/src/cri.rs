//! Pods and containers of containerd, requested as a kubelet requests them.
//! Touches: a `Host`'s containerd; the client is `cri.py`.

use crate::engine::Engine;
use crate::host::{Done, Host};
use crate::patience;
use crate::place;
use crate::podman::Podman;
use crate::spec::Spec;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::process::{Child, Command};
use std::sync::OnceLock;

/// A containerd and its CRI.
#[derive(Debug)]
pub struct Cri<'h> {
    host: &'h Host,
    daemon: Child,
    pods: HashMap<String, String>,
    /// The request for each pod. A kubelet repeats it for each container of the pod.
    asked: RefCell<HashMap<String, Value>>,
    /// The runtime handler of the pods.
    pub handler: &'static str,
    /// Whether `start` puts a container's annotations on its pod, and not on the container.
    pub annotate_pod: bool,
}

impl<'h> Cri<'h> {
    /// Starts containerd on a machine, with the Debian image. `handler` runs the pods: `runc`, or a
    /// handler that `configure` sets up, a line of shell that runs before containerd starts.
    #[must_use]
    pub fn new(host: &'h Host, handler: &'static str, configure: &str) -> Cri<'h> {
        host.write(
            "/etc/containerd/config.toml",
            r#"version = 2
# For a root that may not raise limits, on a machine without networks.
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
"#,
        );
        host.sh(configure).ok();
        let podman = Podman::new(host, "runc", "createRuntime");
        podman.import_pause();
        let daemon = host.spawn("containerd", &[], "/run/containerd.log");
        let cri = Cri {
            host,
            daemon,
            pods: HashMap::new(),
            asked: RefCell::default(),
            handler,
            annotate_pod: true,
        };
        host.wait_for("containerd answers", || {
            cri.call("Version", &json!({"version": "v1"})).is_ok()
        });
        for image in ["debian", "pause"] {
            host.sh(&format!(
                "podman save -q --format oci-archive -o /run/{image}.tar localhost/{image}:1 &&
                 ctr -n k8s.io images import /run/{image}.tar && rm /run/{image}.tar"
            ))
            .ok();
        }
        cri
    }

    /// Like [`Cri::new`], with containerd 1.7, which adds CDI devices to containers. It is downloaded
    /// once.
    ///
    /// # Panics
    /// When it cannot be had.
    #[must_use]
    pub fn with_cdi(host: &'h Host, handler: &'static str, configure: &str) -> Cri<'h> {
        static FETCHED: OnceLock<bool> = OnceLock::new();
        let is_fetched = FETCHED.get_or_init(|| {
            let mut script = Command::new(place::package().join("containerd.sh"));
            let status = script.arg(place::roots().join("containerd")).status();
            status.expect("a shell").success()
        });
        assert!(is_fetched, "containerd 1.7 cannot be had");
        let cdi = format!(
            "cp /run/build/containers/containerd/usr/bin/* /usr/bin/ &&
             echo '  enable_cdi = true' >>/etc/containerd/config.toml
             {configure}"
        );
        Cri::new(host, handler, &cdi)
    }

    /// Makes one call.
    ///
    /// # Errors
    /// The text of the error, when the answer is one.
    pub fn call(&self, method: &str, request: &Value) -> Result<Value, Done> {
        let python = place::roots().join("venv/bin/python3");
        let client = place::package().join("cri.py");
        let words = ["/run/containerd/containerd.sock", method];
        let python = python.to_string_lossy();
        let client = client.to_string_lossy();
        let arguments = [&*client, words[0], words[1]];
        let done = self
            .host
            .run_with(&python, &arguments, request.to_string().as_bytes());
        if done.code != 0 {
            return Err(done);
        }
        Ok(serde_json::from_str(&done.out).expect("JSON"))
    }

    /// Requests a pod and returns its id.
    ///
    /// # Errors
    /// When it did not start.
    pub fn run_pod(&self, name: &str, annotations: &Value) -> Result<String, Done> {
        let config = self.pod_config(name, annotations);
        let request = json!({"config": config, "runtime_handler": self.handler});
        let pod = id(&self.call("RunPodSandbox", &request)?, "pod_sandbox_id");
        self.asked.borrow_mut().insert(pod.clone(), config);
        Ok(pod)
    }

    fn pod_config(&self, name: &str, annotations: &Value) -> Value {
        json!({
            "metadata": {"name": name, "uid": name, "namespace": "default"},
            "log_directory": "/run/log/pods",
            "annotations": annotations,
            "linux": {
                "cgroup_parent": format!("/{}", self.host.name()),
                "security_context": {"namespace_options": {"network": 2, "pid": 1, "ipc": 0}},
            },
        })
    }

    /// Requests a container of a pod, starts it, and returns its id.
    ///
    /// # Errors
    /// When it did not start.
    pub fn run_container(
        &self,
        pod: &str,
        spec: &Spec,
        annotations: &Value,
    ) -> Result<String, Done> {
        self.run_container_with(pod, spec, annotations, &[])
    }

    /// Like [`Cri::run_container`], with CDI devices: a kubelet names those that a driver has
    /// prepared for the pod's claims.
    ///
    /// # Errors
    /// When it did not start.
    pub fn run_container_with(
        &self,
        pod: &str,
        spec: &Spec,
        annotations: &Value,
        devices: &[&str],
    ) -> Result<String, Done> {
        let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
        let mounts: Vec<Value> = spec
            .all_mounts()
            .into_iter()
            .map(|(from, to, how)| json!({"container_path": to, "host_path": from, "readonly": how == "ro"}))
            .collect();
        let envs: Vec<Value> = spec
            .all_env()
            .iter()
            .filter_map(|variable| variable.split_once('='))
            .map(|(key, value)| json!({"key": key, "value": value}))
            .collect();
        let config = json!({
            "metadata": {"name": spec.name},
            "image": {"image": format!("localhost/{}:1", spec.image.name())},
            "command": spec.command,
            "envs": envs,
            "mounts": mounts,
            "annotations": annotations,
            "log_path": format!("{}.log", spec.name),
            "cdi_devices": devices,
            "linux": {"security_context": {
                "namespace_options": {"network": 2, "pid": 1},
                "readonly_rootfs": spec.read_only,
            }},
        });
        let pod_config = self.asked.borrow().get(pod).cloned();
        let request =
            json!({"pod_sandbox_id": pod, "config": config, "sandbox_config": pod_config});
        let container = id(&self.call("CreateContainer", &request)?, "container_id");
        let started = self.call("StartContainer", &json!({"container_id": container}));
        if let Err(done) = started {
            let _ = self.call("RemoveContainer", &json!({"container_id": container}));
            return Err(done);
        }
        Ok(container)
    }

    /// Stops and removes a pod.
    ///
    /// # Panics
    /// When that fails.
    pub fn remove_pod(&self, pod: &str) {
        for method in ["StopPodSandbox", "RemovePodSandbox"] {
            let done = self.call(method, &json!({"pod_sandbox_id": pod}));
            done.expect(method);
        }
    }

    /// Stops and removes a container.
    ///
    /// # Panics
    /// When that fails.
    pub fn remove_container(&self, id: &str) {
        self.call("StopContainer", &json!({"container_id": id, "timeout": 0}))
            .expect("the container stops");
        self.call("RemoveContainer", &json!({"container_id": id}))
            .expect("the container is removed");
    }
}

fn id(answer: &Value, name: &str) -> String {
    answer[name].as_str().unwrap_or_default().to_owned()
}

impl Engine for Cri<'_> {
    fn name(&self) -> String {
        "containerd's CRI".into()
    }

    fn start(&mut self, spec: &Spec) -> Result<String, Done> {
        let annotations = spec.annotations_json();
        let (of_pod, own) = if self.annotate_pod {
            (annotations, json!({}))
        } else {
            (json!({}), annotations)
        };
        let pod = self.run_pod(&spec.name, &of_pod)?;
        match self.run_container(&pod, spec, &own) {
            Ok(container) => {
                self.pods.insert(container.clone(), pod);
                Ok(container)
            }
            Err(done) => {
                self.remove_pod(&pod);
                Err(done)
            }
        }
    }

    fn exec(&self, id: &str, command: &[&str]) -> Done {
        let request = json!({"container_id": id, "cmd": command, "timeout": 60});
        match self.call("ExecSync", &request) {
            Err(done) => done,
            Ok(answer) => Done {
                code: i32::try_from(answer["exit_code"].as_i64().unwrap_or(-1)).unwrap_or(-1),
                out: answer["stdout"].as_str().unwrap_or_default().to_owned(),
                err: answer["stderr"].as_str().unwrap_or_default().to_owned(),
            },
        }
    }

    fn restart(&mut self, _id: &str) {
        // A kubelet creates a new container in the pod instead. Tests call `run_container` again.
    }

    fn remove(&mut self, id: &str) {
        self.remove_container(id);
        if let Some(pod) = self.pods.remove(id) {
            self.remove_pod(&pod);
        }
    }
}

impl Drop for Cri<'_> {
    fn drop(&mut self) {
        let pods: Vec<String> = self.pods.drain().map(|(_, pod)| pod).collect();
        for pod in pods {
            let _ = self.call("StopPodSandbox", &json!({"pod_sandbox_id": pod}));
        }
        let _ = self.host.sh("kill $(pidof containerd)");
        let _ = patience::ends(&mut self.daemon);
    }
}
