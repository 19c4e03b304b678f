//! CDI devices, annotations and sizes below `nvidia-container-runtime`, and below gpuslice-runtime.
//! The toolkit is a stand-in that changes config.json as each mode of the real one does.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::check::Check;
use gpuslice_containers::cri::Cri;
use gpuslice_containers::docker::Docker;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::place;
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::Spec;
use serde_json::json;

pub(crate) const MODES: [&str; 4] = ["auto", "jit-cdi", "cdi", "legacy"];
const SIX: &str = "nvidia.com/gpu=0,gpuslice.io/slice=6gib";

/// Installs the toolkit on a machine, with gpuslice-runtime below it, and CDI devices of two sizes.
pub(crate) fn toolkit(host: &Host, mode: &str, below: &str) {
    let stand_in = std::fs::read(place::package().join("nvidia-container-runtime.py"));
    host.write(
        "/usr/bin/nvidia-container-runtime",
        stand_in.expect("the stand-in"),
    );
    // crun fails a container whose hook does not read its input.
    for hook in ["nvidia-cdi-hook", "nvidia-container-runtime-hook"] {
        host.write(&format!("/usr/bin/{hook}"), "#!/bin/sh\ncat >/dev/null\n");
    }
    host.write(
        "/etc/nvidia-container-runtime/config.toml",
        format!("[nvidia-container-runtime]\nmode = \"{mode}\"\nruntimes = [{below}]\n"),
    );
    host.sh("chmod 755 /usr/bin/nvidia-*
         gpuslice runtime configure --runtime nvidia
         gpuslice cdi generate --size 6GiB --size 2GiB --output /etc/cdi/gpuslice.json")
        .ok();
}

/// A container whose NVIDIA_VISIBLE_DEVICES names these devices.
fn visible(name: &str, devices: &str) -> Spec {
    let mut spec = Spec::new(name);
    spec.env.push(format!("NVIDIA_VISIBLE_DEVICES={devices}"));
    spec
}

#[track_caller]
fn assert_refused(started: Result<String, Done>, words: &[&str]) {
    let done = started.expect_err("two sizes for one GPU");
    let said = format!("{}{}", done.out, done.err);
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn an_annotation_gives_a_slice_in_each_mode_of_the_toolkit() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for mode in MODES {
        for below in ["\"runc\", \"crun\"", "\"crun\", \"runc\""] {
            toolkit(&host, mode, below);
            let mut oci = Oci::without_hooks(&host, "nvidia-container-runtime");
            let spec = visible("one", "nvidia.com/gpu=0").memory("8GiB");
            let id = oci.start(&spec).expect(mode);
            assert_sliced(&oci, &id, 8 * GIB);
            oci.remove(&id);
            assert_nothing_left(&host);
        }
    }
}

#[test]
fn a_cdi_device_keeps_its_size_in_each_mode_of_the_toolkit() {
    if !ready() {
        return;
    }
    let host = Host::new();
    // The legacy mode does not support CDI devices.
    for mode in ["auto", "jit-cdi", "cdi"] {
        toolkit(&host, mode, "\"runc\"");
        let mut oci = Oci::without_hooks(&host, "nvidia-container-runtime");
        let id = oci.start(&visible("six", SIX)).expect(mode);
        assert_sliced(&oci, &id, 6 * GIB);
        oci.remove(&id);
        let same = visible("same", SIX).memory("6144MiB");
        let id = oci.start(&same).expect(mode);
        assert_sliced(&oci, &id, 6 * GIB);
        oci.remove(&id);
        let option = visible("option", SIX).annotated("gpuslice.io/total", "device");
        let id = oci.start(&option).expect(mode);
        let check = Check::run(&oci, &id);
        assert!(check.consistent(), "{}", check.json());
        assert!(check.totals()[0] > 20 * GIB, "{}", check.json());
        assert!(check.free()[0] < 6 * GIB, "{}", check.json());
        oci.remove(&id);

        let two = format!("{SIX},gpuslice.io/slice=2gib");
        assert_refused(oci.start(&visible("two", &two)), &["6.00 GiB", "2.00 GiB"]);
        let differs = visible("differs", SIX).memory("3GiB");
        let words = ["6.00 GiB", "gpuslice.io/memory says 3.00 GiB"];
        assert_refused(oci.start(&differs), &words);
        assert_nothing_left(&host);
    }
}

#[test]
fn a_cdi_device_keeps_its_size_in_docker_below_the_toolkit() {
    if !ready() {
        return;
    }
    let host = Host::new();
    toolkit(&host, "auto", "\"runc\"");
    host.write(
        "/etc/docker/daemon.json",
        r#"{"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}}}"#,
    );
    host.sh("gpuslice runtime configure --runtime docker --size 2GiB")
        .ok();
    let mut docker = Docker::new(&host, "nvidia");
    let id = docker.start(&visible("six", SIX)).expect("it starts");
    assert_sliced(&docker, &id, 6 * GIB);
    docker.remove(&id);
    let two = format!("{SIX},gpuslice.io/slice=2gib");
    assert_refused(
        docker.start(&visible("two", &two)),
        &["6.00 GiB", "2.00 GiB"],
    );
    assert_nothing_left(&host);
}

#[test]
fn a_cdi_device_keeps_its_size_in_podman_with_every_runtime() {
    if !ready() {
        return;
    }
    let host = Host::new();
    toolkit(&host, "cdi", "\"runc\"");
    let _images = Podman::new(&host, "runc", "createRuntime");
    for runtime in [
        "runc",
        "/usr/bin/gpuslice-runtime",
        "/usr/bin/nvidia-container-runtime",
    ] {
        let mut podman = Podman::again(&host, runtime);
        let mut start = |spec: &Spec, devices: &[&str]| {
            let options = podman.options(spec);
            let mut arguments = vec!["run", "-d"];
            let devices: Vec<String> = devices
                .iter()
                .map(|size| format!("--device=gpuslice.io/slice={size}"))
                .collect();
            arguments.extend(devices.iter().map(String::as_str));
            arguments.extend(options.iter().map(String::as_str));
            let done = podman.podman(&arguments);
            match done.code {
                0 => Ok(spec.name.clone()),
                _ => {
                    podman.remove(&spec.name);
                    Err(done)
                }
            }
        };
        let id = start(&Spec::new("six"), &["6gib"]).expect(runtime);
        assert_sliced(&Podman::again(&host, runtime), &id, 6 * GIB);
        Podman::again(&host, runtime).remove(&id);
        assert_refused(
            start(&Spec::new("two"), &["6gib", "2gib"]),
            &["6.00 GiB", "2.00 GiB"],
        );
        let differs = Spec::new("differs").memory("3GiB");
        assert_refused(start(&differs, &["6gib"]), &["6.00 GiB", "3.00 GiB"]);
        // An option is used together with a device. The annotation's own hook is the first to read
        // it.
        let option = Spec::new("option").annotated("gpuslice.io/headroom", "512MiB");
        let id = start(&option, &["6gib"]).expect(runtime);
        assert_sliced(&Podman::again(&host, runtime), &id, 6 * GIB - GIB / 2);
        Podman::again(&host, runtime).remove(&id);
        assert_nothing_left(&host);
    }
}

#[test]
fn a_runtime_of_a_size_above_the_toolkit_keeps_its_size() {
    if !ready() {
        return;
    }
    let host = Host::new();
    toolkit(&host, "auto", "\"crun\", \"runc\"");
    let policy = "runtime = [\"nvidia-container-runtime\"]\n";
    host.write("/etc/gpuslice/config.toml", policy);
    host.sh("gpuslice runtime configure --runtime docker --size 8GiB")
        .ok();
    let mut docker = Docker::new(&host, "gpuslice");
    let spec = visible("sized", "all").memory("8GiB");
    let id = docker.start(&spec).expect("it starts");
    assert_sliced(&docker, &id, 8 * GIB);
    docker.remove(&id);
    assert_nothing_left(&host);
}

/// A container that existed before gpuslice-runtime was put below the toolkit is stopped by the
/// runtime that created it.
#[test]
fn containers_of_crun_below_the_toolkit_are_still_stopped() {
    if !ready() {
        return;
    }
    let host = Host::new();
    toolkit(&host, "auto", "\"crun\", \"runc\"");
    host.sh("gpuslice runtime configure --runtime nvidia --remove")
        .ok();
    let mut oci = Oci::without_hooks(&host, "nvidia-container-runtime");
    let id = oci.start(&Spec::new("early")).expect("it starts");
    assert_eq!(host.sh("crun list -q").ok().trim(), "early");
    host.sh("gpuslice runtime configure --runtime nvidia").ok();
    host.sh("nvidia-container-runtime kill early KILL").ok();
    oci.remove(&id);
    assert_eq!(host.sh("crun list -q").ok().trim(), "");
}

/// The operator's wrapper names its file in the environment, and /etc has no file of the toolkit.
#[test]
fn the_toolkit_of_the_gpu_operator_is_found_and_none_is_made_in_etc() {
    if !ready() {
        return;
    }
    let host = Host::new();
    toolkit(&host, "auto", "\"runc\"");
    let file = "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml";
    let operators = "/usr/local/nvidia/toolkit/nvidia-container-runtime";
    host.sh("rm -r /etc/nvidia-container-runtime").ok();
    let nowhere = host.sh("gpuslice runtime configure --runtime nvidia");
    assert_eq!(nowhere.code, 125);
    assert!(
        nowhere
            .err
            .contains("name the file that the toolkit reads by --config")
    );
    host.write(
        file,
        "[nvidia-container-runtime]\nruntimes = [\"crun\", \"runc\"]\n",
    );
    let script = format!(
        "#!/bin/sh\nexport NVIDIA_CTK_CONFIG_FILE_PATH={file}\nexec /usr/bin/nvidia-container-runtime \"$@\"\n"
    );
    host.write(operators, script);
    host.sh(&format!("chmod 755 {operators}")).ok();
    let said = host.sh("gpuslice runtime configure --runtime nvidia").ok();
    assert!(said.contains("NVIDIA_CONTAINER_RUNTIME_RUNTIMES=/usr/bin/gpuslice-runtime,runc,crun"));
    assert_eq!(
        host.list("/etc/nvidia-container-runtime"),
        Vec::<String>::new()
    );
    let mut oci = Oci::without_hooks(&host, operators);
    let id = oci.start(&visible("one", "all").memory("8GiB"));
    let id = id.expect("it starts");
    assert_sliced(&oci, &id, 8 * GIB);
    assert_eq!(host.sh("crun list -q").ok().trim(), "one");
    oci.remove(&id);
    assert_nothing_left(&host);

    // The policy names a runtime other than the one that has run the containers so far.
    host.write(
        file,
        "[nvidia-container-runtime]\nruntimes = [\"crun\", \"runc\"]\n",
    );
    host.write("/etc/gpuslice/config.toml", "runtime = [\"runc\"]\n");
    let refused = host.sh("gpuslice runtime configure --runtime nvidia");
    assert_eq!(refused.code, 125);
    assert!(
        refused
            .err
            .contains("write runtime = [\"crun\", \"runc\"] into it first"),
        "{refused:?}"
    );
}

#[test]
fn a_pod_of_handler_nvidia_gets_its_slice_if_annotations_are_passed() {
    if !ready() {
        return;
    }
    let host = Host::new();
    toolkit(&host, "auto", "\"runc\"");
    let handler = |lists: &str| {
        format!(
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n\
             runtime_type = \"io.containerd.runc.v2\"\n{lists}\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\n\
             BinaryName = \"/usr/bin/nvidia-container-runtime\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
             runtime_type = \"io.containerd.runc.v2\"\n"
        )
    };
    host.write(
        "/etc/containerd/config.toml",
        format!("version = 2\n{}", handler("")),
    );
    let said = host.sh("gpuslice runtime configure --runtime nvidia").ok();
    assert!(
        said.contains("no pod of containerd's handler nvidia gets a slice by gpuslice.io/*"),
        "{said}"
    );
    let lists =
        "pod_annotations = [\"gpuslice.io/*\"]\ncontainer_annotations = [\"gpuslice.io/*\"]\n";
    assert!(lists.lines().all(|line| said.contains(line)), "{said}");

    host.write("/run/handler.toml", handler(lists));
    let configure = "cat /run/handler.toml >>/etc/containerd/config.toml";
    let mut cri = Cri::new(&host, "nvidia", configure);
    let said = host.sh("gpuslice runtime configure --runtime nvidia").ok();
    assert!(!said.contains("no pod"), "{said}");
    let id = cri.start(&visible("engine", "all").memory("8GiB"));
    let id = id.expect("it starts");
    assert_sliced(&cri, &id, 8 * GIB);
    cri.remove(&id);
    assert_nothing_left(&host);
}

/// Before version 1.27, crun tells the hooks of such a container that its bundle is `/`.
#[test]
fn crun_with_a_user_namespace_and_a_device_node_gets_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    host.write("/etc/gpuslice/config.toml", "runtime = [\"crun\"]\n");
    let mut oci = Oci::without_hooks(&host, "gpuslice-runtime");
    let mut spec = Spec::new("mapped").memory("8GiB");
    spec.user_namespace = true;
    let mut config = oci.config(&spec);
    config["linux"]["devices"] =
        json!([{"path": "/dev/nvidia0", "type": "c", "major": 1, "minor": 3, "fileMode": 438}]);
    oci.prepare_as(&spec, &config);
    oci.run("mapped").ok();
    assert_sliced(&oci, "mapped", 8 * GIB);
    oci.remove("mapped");
    assert_nothing_left(&host);
}
