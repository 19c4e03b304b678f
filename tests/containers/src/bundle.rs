//! Containers that runc and crun start directly: a bundle, its `config.json`, the command line.
//! Touches: a `Host`'s /run/bundles.

use crate::engine::Engine;
use crate::host::{Done, Host};
use crate::spec::{Spec, hooks};
use serde_json::{Value, json};

/// The capabilities that Docker gives to a container's root.
pub const CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// runc or crun.
#[derive(Debug)]
pub struct Oci<'h> {
    host: &'h Host,
    binary: &'static str,
    /// The hooks of every container, as `config.json` has them.
    pub hooks: Value,
}

impl<'h> Oci<'h> {
    /// A runtime whose containers have our hook at this stage.
    #[must_use]
    pub fn new(host: &'h Host, binary: &'static str, stage: &str) -> Oci<'h> {
        Oci {
            host,
            binary,
            hooks: hooks(stage),
        }
    }

    /// A runtime whose containers have no hooks.
    #[must_use]
    pub fn without_hooks(host: &'h Host, binary: &'static str) -> Oci<'h> {
        let hooks = json!({});
        Oci {
            host,
            binary,
            hooks,
        }
    }

    /// The path of a container's bundle.
    #[must_use]
    pub fn bundle(name: &str) -> String {
        format!("/run/bundles/{name}")
    }

    /// Makes a bundle: an overlay over the image's root, and its configuration.
    pub fn prepare(&self, spec: &Spec) {
        self.prepare_as(spec, &self.config(spec));
    }

    /// Makes a bundle with the given configuration.
    pub fn prepare_as(&self, spec: &Spec, config: &Value) {
        let bundle = Self::bundle(&spec.name);
        let image = spec.image.name();
        self.host
            .sh(&format!(
                "mkdir -p {bundle}/rootfs {bundle}/upper {bundle}/work &&
                 mount -t overlay -o lowerdir=/run/build/containers/{image},upperdir={bundle}/upper,workdir={bundle}/work overlay {bundle}/rootfs"
            ))
            .ok();
        self.host
            .write(&format!("{bundle}/config.json"), config.to_string());
    }

    /// Starts the container of an existing bundle.
    #[must_use]
    pub fn run(&self, name: &str) -> Done {
        let bundle = Self::bundle(name);
        // The caller waits until every process has closed this output, so the container must not
        // inherit it.
        let done = self.host.sh(&format!(
            "{} run -d -b {bundle} {name} >{bundle}/out 2>&1 </dev/null || {{ code=$?; cat {bundle}/out; exit $code; }}",
            self.binary
        ));
        self.wait_for_its_program(name);
        done
    }

    /// Waits until the container's first process executes the container's program, or has ended. A
    /// runtime calls a container started before that, and crun then refuses an exec into one with
    /// a user namespace (its issue 1264).
    fn wait_for_its_program(&self, name: &str) {
        let executes_the_runtime = format!(
            "pid=$({0} state {name} 2>/dev/null | sed -n 's/.*\"pid\": *\\([0-9]*\\).*/\\1/p')
             case \"$(tr '\\0' ' ' 2>/dev/null </proc/${{pid:-0}}/cmdline)\" in
             {0}\\ *) exit 0;;
             esac
             exit 1",
            self.binary
        );
        self.host
            .wait_for("the container's program is executed", || {
                self.host.sh(&executes_the_runtime).code != 0
            });
    }

    /// The configuration of a container.
    #[must_use]
    pub fn config(&self, spec: &Spec) -> Value {
        let mut capabilities: Vec<String> = CAPABILITIES.map(str::to_owned).to_vec();
        capabilities.extend(spec.capabilities.iter().cloned());
        let mut namespaces = vec![
            json!({"type": "pid"}),
            json!({"type": "mount"}),
            json!({"type": "ipc"}),
            json!({"type": "uts"}),
        ];
        let mut env = vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()];
        env.extend(spec.all_env());
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]}),
            json!({"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]}),
            json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]}),
        ];
        for (source, destination, how) in spec.all_mounts() {
            mounts.push(json!({"destination": destination, "type": "bind", "source": source, "options": ["rbind", how]}));
        }
        let mut linux = json!({
            "cgroupsPath": format!("/{}/{}", self.host.name(), spec.name),
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "maskedPaths": ["/proc/kcore", "/proc/keys"],
            "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger"],
        });
        if spec.user_namespace {
            namespaces.push(json!({"type": "user"}));
            let map = json!([{"containerID": 0, "hostID": 100_000, "size": 65536}]);
            linux["uidMappings"] = map.clone();
            linux["gidMappings"] = map;
        }
        linux["namespaces"] = json!(namespaces);
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": spec.command,
                "env": env,
                "cwd": "/",
                "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
                "noNewPrivileges": true,
            },
            "root": {"path": "rootfs", "readonly": spec.read_only},
            "hostname": spec.name,
            "mounts": mounts,
            "hooks": self.hooks,
            "linux": linux,
            "annotations": spec.annotations_json(),
        })
    }
}

impl Engine for Oci<'_> {
    fn name(&self) -> String {
        self.binary.to_owned()
    }

    fn start(&mut self, spec: &Spec) -> Result<String, Done> {
        self.prepare(spec);
        let done = self.run(&spec.name);
        if done.code == 0 {
            return Ok(spec.name.clone());
        }
        self.remove(&spec.name);
        Err(done)
    }

    fn exec(&self, id: &str, command: &[&str]) -> Done {
        let mut arguments = vec!["exec", id];
        arguments.extend(command);
        self.host.run(self.binary, &arguments)
    }

    fn restart(&mut self, id: &str) {
        // Engines restart in this way: a new container gets the same root.
        self.host.run(self.binary, &["delete", "-f", id]).ok();
        self.run(id).ok();
    }

    fn remove(&mut self, id: &str) {
        let bundle = Self::bundle(id);
        let binary = self.binary;
        self.host
            .sh(&format!(
                "{binary} delete -f {id} 2>/dev/null; umount {bundle}/rootfs && rm -rf {bundle}"
            ))
            .ok();
    }
}
