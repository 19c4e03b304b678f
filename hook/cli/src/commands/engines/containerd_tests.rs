//! Tests that containerd's file keeps all contents written by others, also after `--remove`.

use super::*;

const NONE: Dialects = Dialects {
    kai: false,
    hami: false,
    nvidia: false,
};

/// Debian's file, as packaged.
const DEBIAN: &str = r#"version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"#;

const SPEC: By<'static> = By::BaseSpec("/etc/containerd/gpuslice-base-spec.json");

#[test]
fn the_handler_is_added_to_debians_file_and_taken_out_again() {
    let ours = add(Some(DEBIAN), SPEC, false, NONE).unwrap();
    let handler = r#"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.gpuslice]
runtime_type = "io.containerd.runc.v2"
pod_annotations = ["gpuslice.io/*"]
container_annotations = ["gpuslice.io/*"]
base_runtime_spec = "/etc/containerd/gpuslice-base-spec.json"

# As without this table (gpuslice).
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#;
    assert!(ours.contains(handler), "{ours}");
    assert_eq!(ours.replace(handler, ""), DEBIAN);
    assert_eq!(add(Some(&ours), SPEC, false, NONE).unwrap(), ours);
    assert_eq!(remove(&ours).unwrap(), DEBIAN);
    assert_eq!(remove(DEBIAN).unwrap(), DEBIAN);
}

/// A cluster's file, of containerd 2.
const CLUSTER: &str = r#"version = 3
root = "/data/containerd" # on the fast disk

[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "nvidia" # since the GPUs came

  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
    # made by nvidia-ctk
    runtime_type = "io.containerd.runc.v2"
    pod_annotations = ["com.example/*"]
    base_runtime_spec = "/etc/containerd/cri-base.json"

    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
      BinaryName = "/usr/bin/nvidia-container-runtime"
      SystemdCgroup = true
"#;

#[test]
fn what_the_default_runtime_sets_holds_for_ours() {
    let ours = add(Some(CLUSTER), SPEC, true, NONE).unwrap();
    let read: DocumentMut = ours.parse().unwrap();
    let containerd = find(
        &read,
        &["plugins", "io.containerd.cri.v1.runtime", "containerd"],
    )
    .unwrap();
    assert_eq!(containerd[DEFAULT].as_str(), Some("gpuslice"));
    assert!(ours.contains("# since the GPUs came") && ours.contains("# on the fast disk"));
    let handler = &containerd["runtimes"]["gpuslice"];
    let strings = |key: &str| toml_file::strings(&handler[key]).unwrap();
    assert_eq!(
        strings("pod_annotations"),
        ["com.example/*", "gpuslice.io/*"]
    );
    assert_eq!(handler["options"]["SystemdCgroup"].as_bool(), Some(true));
    assert_eq!(
        handler["options"]["BinaryName"].as_str(),
        Some("/usr/bin/nvidia-container-runtime")
    );
    assert_eq!(
        base_spec(Some(CLUSTER)).unwrap().as_deref(),
        Some("/etc/containerd/cri-base.json")
    );
    assert_eq!(add(Some(&ours), SPEC, true, NONE).unwrap(), ours);
    let by_runtime = By::Runtime("/usr/bin/gpuslice-runtime");
    let wrapped = add(Some(CLUSTER), by_runtime, false, NONE).unwrap();
    assert_eq!(
        add(Some(&wrapped), by_runtime, false, NONE).unwrap(),
        wrapped
    );
    assert!(wrapped.contains("BinaryName = \"/usr/bin/gpuslice-runtime\"\n"));
    assert_eq!(remove(&wrapped).unwrap(), CLUSTER);
}

#[test]
fn the_wrapper_does_not_take_the_place_of_a_runtime_with_a_sandbox() {
    let text = CLUSTER.replace("io.containerd.runc.v2", "io.containerd.runsc.v1");
    let by_runtime = By::Runtime("/usr/bin/gpuslice-runtime");
    let error = add(Some(&text), by_runtime, true, NONE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "its default runtime is io.containerd.runsc.v1, which runs no gpuslice-runtime: leave out --by \
         runtime"
    );
    // With hooks, the handler keeps its runtime.
    let ours = add(Some(&text), SPEC, true, NONE).unwrap();
    assert_eq!(ours.matches("io.containerd.runsc.v1").count(), 2);
}

#[test]
fn a_file_that_is_not_there_is_made_and_one_of_version_1_is_known() {
    let made = add(None, SPEC, false, NONE).unwrap();
    assert!(
        made.starts_with("version = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\""),
        "{made}"
    );
    let old = "oom_score = 0\n";
    let ours = add(Some(old), SPEC, false, NONE).unwrap();
    assert!(
        ours.contains("[plugins.cri.containerd.runtimes.gpuslice]\n"),
        "{ours}"
    );
    assert_eq!(remove(&ours).unwrap(), old);
}

#[test]
fn what_cannot_be_understood_is_left_alone() {
    for (text, said) in [
        ("version = 2\nplugins = 1\n", "is not a table"),
        ("version = 5\n", "a version that gpuslice does not know"),
        ("version = [\n", "not TOML"),
    ] {
        let error = add(Some(text), SPEC, false, NONE).unwrap_err();
        assert!(format!("{error:#}").contains(said), "{error:#}");
    }
}

#[test]
fn the_base_specification_sets_no_limit_of_open_files() {
    let spec = r#"{"process": {"cwd": "/", "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024}], "args": []}}"#;
    let without = without_rlimits(spec).unwrap();
    assert_eq!(without, r#"{"process": {"cwd": "/", "args": []}}"#);
    assert_eq!(without_rlimits("{}").unwrap(), "{}");
}

#[test]
fn the_handler_passes_on_the_annotations_of_the_policys_dialects() {
    let kai = Dialects { kai: true, ..NONE };
    let ours = add(Some(DEBIAN), SPEC, false, kai).unwrap();
    let both = "pod_annotations = [\"gpuslice.io/*\", \"gpu-memory*\", \"gpu-fraction*\", \"mps\", \
                \"nvidia.com/container.*\", \"kai.scheduler/container.*\"]";
    assert!(ours.contains(both), "{ours}");
    assert!(ours.contains(&both.replace("pod_", "container_")), "{ours}");
    assert_eq!(add(Some(&ours), SPEC, false, kai).unwrap(), ours);
    assert_eq!(remove(&ours).unwrap(), DEBIAN);
}

#[test]
fn a_table_for_another_version_does_not_hide_the_handler() {
    // Without a version, containerd reads the table `cri` alone.
    let mixed =
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"x\"\n";
    let ours = add(Some(mixed), SPEC, false, NONE).unwrap();
    assert!(has(&ours) && !has(mixed), "{ours}");
    assert_eq!(remove(&ours).unwrap(), mixed);
}
