//! The examples that packages ship run unchanged, except for their images.

use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::Spec;
use serde_json::json;
use std::path::Path;

const COMPOSE: &str = "/run/build/examples-venv/bin/podman-compose";

fn example(name: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples");
    std::fs::read_to_string(examples.join(name)).unwrap()
}

/// Writes the specification that `nvidia-ctk cdi generate` would write, for the simulated driver.
fn device(host: &Host) {
    let spec = Spec::new("");
    let mounts: Vec<_> = spec
        .all_mounts()
        .into_iter()
        .map(|(from, to, how)| {
            json!({"hostPath": from, "containerPath": to, "options": ["rbind", how]})
        })
        .collect();
    let edits = json!({"mounts": mounts, "env": spec.all_env()});
    let cdi = json!({
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": edits}],
    });
    host.write("/etc/cdi/nvidia.json", cdi.to_string());
}

/// Makes the images that an example names; each is a Debian.
fn images(host: &Host, text: &str) {
    for line in text.lines().map(str::trim) {
        let named = line
            .strip_prefix("image: ")
            .or_else(|| line.strip_prefix("Image="));
        if let Some(image) = named {
            host.sh(&format!("podman tag localhost/debian:1 {image}"))
                .ok();
        }
    }
}

#[test]
fn the_compose_file_starts_two_engines_in_their_slices() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let podman = Podman::new(&host, "crun", "createRuntime");
    host.sh("rm /usr/share/containers/oci/hooks.d/*gpuslice*")
        .ok();
    host.sh("gpuslice runtime configure --runtime podman --by runtime")
        .ok();
    device(&host);
    let text = example("compose.yaml");
    images(&host, &text);
    host.write("/srv/engines/compose.yaml", &text);
    // The images contain no engine, and the machine has no network.
    let idle = json!({"network_mode": "none", "command": ["/usr/bin/sleep", "1000000"]});
    let instead = json!({"services": {"chat": &idle, "embeddings": &idle}});
    host.write("/srv/engines/test.yaml", instead.to_string());
    let compose = |verb: &str| -> Done {
        host.sh(&format!(
            "cd /srv/engines && {COMPOSE} --in-pod false --podman-run-args=--cgroup-parent=/{} \
             -f compose.yaml -f test.yaml {verb}",
            host.name()
        ))
    };
    compose("up -d").ok();
    assert_sliced(&podman, "engines_chat_1", 12 * GIB);
    assert_sliced(&podman, "engines_embeddings_1", 10 * GIB);
    compose("down -t 0").ok();
    host.sh("gpuslice gc").ok();
    assert_nothing_left(&host);
}

#[test]
fn the_quadlet_starts_its_container_in_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut podman = Podman::new(&host, "crun", "createRuntime");
    device(&host);
    let text = example("llama-server.container");
    images(&host, &text);
    // Translates each key as podman's generator does, because Debian's podman is older than
    // quadlets.
    let mut options = vec![format!("--cgroup-parent=/{}", host.name())];
    let mut image = String::new();
    let (_, container) = text.split_once("[Container]\n").unwrap();
    let (container, _) = container.split_once("\n[").unwrap();
    for line in container.lines().filter(|line| !line.is_empty()) {
        match line.split_once('=').unwrap() {
            ("ContainerName", name) => options.push(format!("--name={name}")),
            ("AddDevice", name) => options.push(format!("--device={name}")),
            ("Annotation", pair) => options.push(format!("--annotation={pair}")),
            ("Image", name) => image = name.to_owned(),
            ("Exec", _) => {}
            (key, _) => panic!("{key}: this test does not know it"),
        }
    }
    let mut arguments = vec!["run", "-d"];
    arguments.extend(options.iter().map(String::as_str));
    arguments.extend([image.as_str(), "/usr/bin/sleep", "1000000"]);
    podman.podman(&arguments).ok();
    assert_sliced(&podman, "llama-server", 8 * GIB);
    podman.remove("llama-server");
    assert_nothing_left(&host);
}
