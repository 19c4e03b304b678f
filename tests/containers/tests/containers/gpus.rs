//! Hosts with several GPUs, and GPUs whose driver has limits of its own.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::place;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced, assert_unsliced};
use gpuslice_containers::spec::Spec;
use serde_json::json;

/// Starts a container with one GPU, which CDI and device plugins assign by its device node.
fn with_gpu(oci: &Oci<'_>, spec: &Spec, minor: u32) -> Done {
    let mut config = oci.config(spec);
    config["linux"]["devices"] = json!([
        {"path": format!("/dev/nvidia{minor}"), "type": "c", "major": 195, "minor": minor},
        {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255},
    ]);
    oci.prepare_as(spec, &config);
    oci.run(&spec.name)
}

#[test]
fn a_slice_counts_on_the_gpu_that_its_container_is_given_and_on_no_other() {
    if !ready() {
        return;
    }
    let host = Host::with("2xh200");
    host.list_with_minors("2xh200");
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let spec = |name: &str| {
        let mut spec = Spec::new(name).memory("100GiB");
        spec.gpus = "2xh200";
        spec
    };
    // Two slices of 100 GiB exceed either GPU, but one fits on each.
    for (name, minor) in [("first", 0), ("second", 1)] {
        with_gpu(&oci, &spec(name), minor).ok();
        assert_sliced(&oci, name, 100 * GIB);
    }
    let third = with_gpu(&oci, &spec("third"), 1);
    assert_ne!(third.code, 0, "{third:?}");
    let said =
        "GPU 1 (NVIDIA H200, 139.81 GiB) has 39.81 GiB left, 100.00 GiB requested; held by second";
    assert!(third.out.contains(said), "{third:?}");
    // A container that may use any GPU counts on all of them.
    let mut config = oci.config(&spec("any"));
    config["linux"]["resources"]["devices"] = json!([{"allow": true, "access": "rwm"}]);
    oci.prepare_as(&spec("any"), &config);
    let any = oci.run("any");
    assert_ne!(any.code, 0, "there is no room");
    assert!(any.out.contains("held by first"), "{any:?}");
    // A sidecar or kubectl debug has the pod's annotation and no GPU, so it takes no memory of any
    // GPU.
    let id = oci.start(&spec("sidecar")).expect("it starts on full GPUs");
    let record = std::fs::read_to_string(host.path("/run/gpuslice/slices/sidecar.json"));
    let record: serde_json::Value = serde_json::from_str(&record.expect("it")).expect("JSON");
    assert_eq!(record["devices"], json!([]));
    oci.remove(&id);
    for name in ["first", "second", "third", "any"] {
        oci.remove(name);
    }
    assert_nothing_left(&host);
}

#[test]
fn a_container_that_asks_for_nothing_has_the_policys_maximum_of_its_gpu() {
    if !ready() {
        return;
    }
    let host = Host::with("2xh200");
    host.list_with_minors("2xh200");
    host.write(
        "/etc/gpuslice/config.toml",
        "[maximum]\ncontainer = \"60GiB\"\n",
    );
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let spec = |name: &str| {
        let mut spec = Spec::new(name);
        spec.gpus = "2xh200";
        spec
    };
    with_gpu(&oci, &spec("plain"), 1).ok();
    assert_sliced(&oci, "plain", 60 * GIB);
    let id = oci.start(&spec("sidecar")).expect("it starts");
    assert_unsliced(&oci, &id);
    oci.remove(&id);
    oci.remove("plain");
    assert_nothing_left(&host);
}

/// The file that describes a card with the newest driver, for the machine and its containers.
const NEWER: &str = "/run/build/tmp/newer-driver.toml";

/// Allocates without our library, which is not preloaded on the host.
const ALLOCATE: &str = r#"
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, at = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
print(cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(int(sys.argv[1]) << 30)))
"#;

#[test]
fn where_the_driver_has_limits_it_holds_the_containers_cgroup_too() {
    if !ready() {
        return;
    }
    let card = include_str!("../../../sim/scenarios/rtx3090.toml");
    let newer = card.replace("cuda = 13000", "cuda = 13040\nmemory_limits = \"dmem\"");
    assert_ne!(card, newer, "the scenario has no such driver version");
    let file = place::target().join("tmp/newer-driver.toml");
    std::fs::create_dir_all(file.parent().expect("its folder")).expect("its folder");
    std::fs::write(file, newer).expect("the card");
    let host = Host::with(NEWER);
    // If version 1 is mounted, this mounts version 2 in it. runc uses that; crun would refuse.
    host.sh("[ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified")
        .ok();
    // The hook clears the environment, so this script names the simulated machine again.
    let command = "/usr/bin/gpuslice-of-this-machine";
    let script = format!(
        "#!/bin/sh\nGPUSLICE_SIM={NEWER} GPUSLICE_SIM_STATE=/run/sim exec /usr/bin/gpuslice \"$@\"\n"
    );
    host.write(command, script);
    host.sh(&format!("chmod 755 {command}")).ok();
    host.write(
        "/etc/gpuslice/config.toml",
        format!("command = \"{command}\"\n"),
    );
    let mut spec = Spec::new("limited").memory("6GiB");
    spec.gpus = NEWER;
    spec.mounts.push((NEWER.into(), NEWER.into()));
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let id = oci.start(&spec).expect("it starts");
    assert_sliced(&oci, &id, 6 * GIB);
    host.write("/run/allocate.py", ALLOCATE);
    // Runs a program without the library, inside or outside the container's cgroup.
    let allocate = |cgroup: &str, gib: u64| {
        host.sh(&format!(
            "{cgroup}GPUSLICE_SIM={NEWER} GPUSLICE_SIM_STATE=/run/sim exec python3 /run/allocate.py {gib}"
        ))
        .ok()
    };
    let inside = format!(
        "top=/sys/fs/cgroup; [ -e $top/cgroup.controllers ] || top=$top/unified;
         echo $$ >$top/{}/{id}/cgroup.procs && ",
        host.name()
    );
    assert_eq!(
        allocate("", 7),
        "0\n",
        "outside the cgroup 7 GiB are granted"
    );
    assert_eq!(
        allocate(&inside, 5),
        "0\n",
        "inside the cgroup 5 GiB are granted"
    );
    assert_eq!(allocate(&inside, 7), "2\n", "CUDA_ERROR_OUT_OF_MEMORY");
    oci.remove(&id);
    assert_nothing_left(&host);
}
