//! Containers of Docker Engine, with our runtime in front of runc.
//! Touches: a `Host`'s dockerd.

use crate::engine::Engine;
use crate::host::{Done, Host};
use crate::patience;
use crate::spec::Spec;
use std::process::Child;

/// A Docker Engine.
#[derive(Debug)]
pub struct Docker<'h> {
    host: &'h Host,
    daemon: Child,
    /// The runtime of containers without a slice.
    pub runtime: &'static str,
}

impl<'h> Docker<'h> {
    /// Starts an engine on a machine, with the Debian image, as its daemon.json configures it.
    #[must_use]
    pub fn new(host: &'h Host, runtime: &'static str) -> Docker<'h> {
        let group = format!("--cgroup-parent=/{}", host.name());
        let arguments = [
            "--iptables=false",
            "--ip6tables=false",
            "--bridge=none",
            &group,
        ];
        let daemon = host.spawn("dockerd", &arguments, "/run/dockerd.log");
        host.wait_for("dockerd answers", || {
            host.run("docker", &["version"]).code == 0
        });
        host.sh("tar -C /run/build/containers/debian -c . | docker import - debian:1")
            .ok();
        Docker {
            host,
            daemon,
            runtime,
        }
    }
}

impl Engine for Docker<'_> {
    fn name(&self) -> String {
        "docker".into()
    }

    fn start(&mut self, spec: &Spec) -> Result<String, Done> {
        let mut arguments: Vec<String> = ["run", "-d", "--network=none"].map(str::to_owned).into();
        arguments.push(format!("--name={}", spec.name));
        // This engine does not pass on annotations, so it has a runtime for each size.
        let size = |(key, _): &&(String, String)| key == "gpuslice.io/memory";
        let runtime = match spec.annotations.iter().find(size) {
            Some((_, memory)) => format!("gpuslice-{}", memory.to_lowercase()),
            None => self.runtime.to_owned(),
        };
        arguments.push(format!("--runtime={runtime}"));
        for (from, to, how) in spec.all_mounts() {
            arguments.push(format!("--volume={from}:{to}:{how}"));
        }
        for variable in spec.all_env() {
            arguments.push(format!("--env={variable}"));
        }
        if spec.read_only {
            arguments.push("--read-only".into());
        }
        arguments.push(format!("{}:1", spec.image.name()));
        arguments.extend(spec.command.iter().cloned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let done = self.host.run("docker", &arguments);
        if done.code == 0 {
            return Ok(spec.name.clone());
        }
        self.remove(&spec.name);
        Err(done)
    }

    fn exec(&self, id: &str, command: &[&str]) -> Done {
        let mut arguments = vec!["exec", id];
        arguments.extend(command);
        self.host.run("docker", &arguments)
    }

    fn restart(&mut self, id: &str) {
        self.host.run("docker", &["restart", "-t", "0", id]).ok();
    }

    fn remove(&mut self, id: &str) {
        let _ = self.host.run("docker", &["rm", "-f", id]);
    }
}

impl Drop for Docker<'_> {
    fn drop(&mut self) {
        let _ = self.host.sh("kill $(cat /run/docker.pid)");
        let _ = patience::ends(&mut self.daemon);
    }
}
