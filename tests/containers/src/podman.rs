//! Containers and pods of podman, which runs runc or crun.
//! Touches: a `Host`'s podman.

use crate::engine::Engine;
use crate::host::{Done, Host};
use crate::spec::{HOOK, Image, Spec, hook};
use serde_json::json;

/// Podman with one runtime.
#[derive(Debug)]
pub struct Podman<'h> {
    host: &'h Host,
    runtime: &'static str,
}

impl<'h> Podman<'h> {
    /// Sets podman up on a machine, with the images, and with our hook at a stage in hooks.d.
    #[must_use]
    pub fn new(host: &'h Host, runtime: &'static str, stage: &str) -> Podman<'h> {
        let podman = Podman { host, runtime };
        for image in [Image::Debian, Image::Musl] {
            podman.import(image.name());
        }
        podman.hooks_d(stage);
        podman
    }

    /// Podman with another runtime, on a machine where podman is already set up.
    #[must_use]
    pub fn again(host: &'h Host, runtime: &'static str) -> Podman<'h> {
        Podman { host, runtime }
    }

    /// Imports a root that `setup.sh` has built as an image.
    pub fn import(&self, name: &str) {
        self.host
            .sh(&format!(
                "tar -C /run/build/containers/{name} -c . | podman import -q - localhost/{name}:1"
            ))
            .ok();
    }

    /// Imports the image of the pause container, which every pod has.
    pub fn import_pause(&self) {
        self.host
            .sh("mkdir -p /run/pause/bin && cp $(command -v busybox) /run/pause/bin/ &&
                 tar -C /run/pause -c . | podman import -q --change 'CMD [\"/bin/busybox\",\"sleep\",\"1000000\"]' - localhost/pause:1")
            .ok();
    }

    /// Writes hooks.d: our hook at a stage and at poststop, for annotated containers.
    pub fn hooks_d(&self, stage: &str) {
        for (name, stage) in [("50-gpuslice", stage), ("51-gpuslice-end", "poststop")] {
            let hook = json!({
                "version": "1.0.0",
                "hook": hook(stage),
                "when": {"annotations": {"^gpuslice\\.io/": ".*"}},
                "stages": [stage],
            });
            debug_assert_eq!(hook["hook"]["path"], HOOK);
            let path = format!("/usr/share/containers/oci/hooks.d/{name}.json");
            self.host.write(&path, hook.to_string());
        }
    }

    /// Runs podman.
    #[must_use]
    pub fn podman(&self, arguments: &[&str]) -> Done {
        let mut all = vec!["--runtime", self.runtime];
        all.extend(arguments);
        self.host.run("podman", &all)
    }

    /// Removes a pod and its containers.
    pub fn remove_pod(&self, name: &str) {
        // conmon may still be in the pod's cgroup, which podman then cannot remove ("device or
        // resource busy").
        self.until_removed(&["pod", "rm", "-f", "-t", "0", "--ignore", name]);
    }

    /// Repeats a removal until it succeeds.
    fn until_removed(&self, arguments: &[&str]) {
        self.host.wait_for("podman removes what it has made", || {
            let done = self.podman(arguments);
            // Messages of the hook at poststop, too.
            if !done.err.is_empty() {
                eprintln!("podman {arguments:?}: {done:?}");
            }
            done.code == 0
        });
    }

    /// The options of `podman run` for a container.
    #[must_use]
    pub fn options(&self, spec: &Spec) -> Vec<String> {
        let mut options = vec![
            format!("--name={}", spec.name),
            format!("--cgroup-parent=/{}", self.host.name()),
        ];
        for (key, value) in &spec.annotations {
            options.push(format!("--annotation={key}={value}"));
        }
        for (from, to, how) in spec.all_mounts() {
            options.push(format!("--volume={from}:{to}:{how}"));
        }
        for variable in spec.all_env() {
            options.push(format!("--env={variable}"));
        }
        if spec.read_only {
            options.push("--read-only".into());
        }
        if spec.user_namespace {
            options.push("--uidmap=0:100000:65536".into());
            options.push("--gidmap=0:100000:65536".into());
        }
        options.push(format!("localhost/{}:1", spec.image.name()));
        options.extend(spec.command.iter().cloned());
        options
    }
}

impl Engine for Podman<'_> {
    fn name(&self) -> String {
        format!("podman with {}", self.runtime)
    }

    fn start(&mut self, spec: &Spec) -> Result<String, Done> {
        let options = self.options(spec);
        let mut arguments = vec!["run", "-d"];
        arguments.extend(options.iter().map(String::as_str));
        let done = self.podman(&arguments);
        if done.code == 0 {
            return Ok(spec.name.clone());
        }
        self.remove(&spec.name);
        Err(done)
    }

    fn exec(&self, id: &str, command: &[&str]) -> Done {
        let mut arguments = vec!["exec", id];
        arguments.extend(command);
        self.podman(&arguments)
    }

    fn restart(&mut self, id: &str) {
        // podman waits only briefly for the end of what it has killed ("given PIDs did not die within
        // timeout"), which is too short on a busy machine.
        self.host.wait_for("podman restarts the container", || {
            let done = self.podman(&["restart", "-t", "0", id]);
            if done.code != 0 {
                eprintln!("podman restart {id}: {done:?}");
            }
            done.code == 0
        });
    }

    fn remove(&mut self, id: &str) {
        // podman's own cleanup may be running: conmon starts it when the container ends.
        self.until_removed(&["rm", "-f", "-t", "0", "--ignore", id]);
    }
}
