//! The ways to request a slice, as an operator configures them: `gpuslice runtime configure`,
//! `gpuslice cdi generate`.

use crate::runtimes::keeps_its_promises;
use gpuslice_containers::docker::Docker;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced, assert_unsliced};
use gpuslice_containers::spec::Spec;

#[test]
fn docker_with_a_runtime_for_each_size() {
    if !ready() {
        return;
    }
    let host = Host::new();
    host.write("/etc/docker/daemon.json", "{\n    \"debug\": false\n}\n");
    let configure = "gpuslice runtime configure --runtime docker --size 8GiB --size 3GiB";
    host.sh(configure).ok();
    let again = host.sh(configure).ok();
    assert!(again.contains("nothing to change"), "{again}");
    let mut docker = Docker::new(&host, "gpuslice");
    keeps_its_promises(&host, &mut docker);
    drop(docker);
    host.sh("gpuslice runtime configure --runtime docker --remove")
        .ok();
    let left = std::fs::read_to_string(host.path("/etc/docker/daemon.json"));
    assert_eq!(left.expect("the file"), "{\n    \"debug\": false\n}\n");
}

#[test]
fn podman_by_hooks_by_runtime_and_by_cdi() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut podman = Podman::new(&host, "crun", "createRuntime");
    host.sh("rm /usr/share/containers/oci/hooks.d/*gpuslice*")
        .ok();

    host.sh("gpuslice runtime configure --runtime podman").ok();
    keeps_its_promises(&host, &mut podman);

    host.sh("gpuslice runtime configure --runtime podman --by runtime")
        .ok();
    let mut wrapped = Podman::again(&host, "gpuslice");
    keeps_its_promises(&host, &mut wrapped);
    let removed = host
        .sh("gpuslice runtime configure --runtime podman --remove")
        .ok();
    assert!(!removed.contains("result:"), "{removed}");
    // After the removal no hook reads the annotation.
    let id = podman.start(&Spec::new("after").memory("8GiB"));
    let id = id.expect("it starts");
    assert_unsliced(&podman, &id);
    podman.remove(&id);

    host.sh("gpuslice cdi generate --size 6GiB --size 2GiB --output /etc/cdi/gpuslice.yaml")
        .ok();
    let device = "--device=gpuslice.io/slice=6gib";
    let spec = Spec::new("cdi");
    let options = podman.options(&spec);
    let mut arguments = vec!["run", "-d", device];
    arguments.extend(options.iter().map(String::as_str));
    podman.podman(&arguments).ok();
    assert_sliced(&podman, "cdi", 6 * GIB);
    podman.remove("cdi");
    assert_nothing_left(&host);
}

/// An image that is made of a container with a slice has the empty places of the slice's mounts.
#[test]
fn an_image_made_of_a_container_with_a_slice_gets_the_slice_that_it_asks_for() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut podman = Podman::new(&host, "crun", "createRuntime");
    let first = Spec::new("first").memory("2GiB");
    let id = podman.start(&first).expect("it starts");
    podman
        .podman(&["commit", "-q", &id, "localhost/committed:1"])
        .ok();
    podman.remove(&id);
    for (name, size) in [("again", Some("3GiB")), ("without", None)] {
        let spec = Spec::new(name);
        let spec = match size {
            Some(size) => spec.memory(size),
            None => spec,
        };
        let options = podman.options(&spec);
        let options = options.iter().map(|word| match word.as_str() {
            "localhost/debian:1" => "localhost/committed:1",
            word => word,
        });
        let words: Vec<&str> = ["run", "-d"].into_iter().chain(options).collect();
        podman.podman(&words).ok();
        match size {
            Some(_) => assert_sliced(&podman, name, 3 * GIB),
            None => assert_unsliced(&podman, name),
        }
        podman.remove(name);
    }
    podman.podman(&["rmi", "-f", "localhost/committed:1"]).ok();
    assert_nothing_left(&host);
}
