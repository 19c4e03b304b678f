//! Slices by the NRI plugin: pods with an annotation and no RuntimeClass, on containerd 1.7.

use gpuslice_containers::cri::Cri;
use gpuslice_containers::host::Host;
use gpuslice_containers::patience;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced, assert_unsliced};
use gpuslice_containers::spec::Spec;
use serde_json::json;
use std::process::Child;

/// containerd 1.7 with NRI, and its default handler without a hook.
const CONTAINERD: &str = r#"
install -m 755 /run/build/containers/containerd/usr/bin/* /usr/bin/
cat >>/etc/containerd/config.toml <<'TOML'
[plugins."io.containerd.nri.v1.nri"]
  disable = false
TOML
"#;

/// The plugin, which ends with the test.
struct Plugin(Child);

impl Plugin {
    /// Starts the plugin and waits until containerd uses it.
    fn start(host: &Host) -> Plugin {
        let arguments = ["--plugins", "/run/plugins", "nri"];
        // Built by `cargo test` of the whole workspace: alone, half of its dependencies would be built
        // again with other features.
        let program = "/run/build/debug/gpuslice-dra";
        assert!(
            host.run("test", &["-x", program]).code == 0,
            "no {program} (run cargo build -p gpuslice-dra)"
        );
        let plugin = Plugin(host.spawn(program, &arguments, "/run/nri.log"));
        let probe = ["--plugins", "/run/plugins", "ready", "--nri"];
        host.wait_for("the plugin is registered", || {
            host.run(program, &probe).code == 0
        });
        plugin
    }

    fn kill(mut self, host: &Host) {
        host.sh("kill -9 $(pidof gpuslice-dra)").ok();
        let _ = patience::ends(&mut self.0);
    }
}

#[test]
fn a_pod_without_a_class_gets_its_slice_by_nri() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let cri = Cri::new(&host, "runc", CONTAINERD);
    host.write("/etc/gpuslice/config.toml", "[dialects]\nkai = true\n");
    let plugin = Plugin::start(&host);
    let none = json!({});
    let run = |pod: &str, annotations: serde_json::Value| {
        let pod = cri.run_pod(pod, &annotations).expect("a pod");
        let container = cri.run_container(&pod, &Spec::new("main"), &none);
        (pod, container)
    };
    let (first, container) = run("first", json!({"gpuslice.io/memory": "5GiB", "team": "a"}));
    let native = container.expect("a container");
    assert_sliced(&cri, &native, 5 * GIB);
    // A pod that was written for KAI Scheduler.
    let (second, container) = run("second", json!({"gpu-memory": "4096"}));
    let kai = container.expect("a container");
    assert_sliced(&cri, &kai, 4 * GIB);
    let (third, container) = run("third", json!({}));
    let plain = container.expect("a container");
    assert_unsliced(&cri, &plain);
    let config = |id: &str| {
        let path = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/config.json");
        std::fs::read_to_string(host.path(&path)).expect("its configuration")
    };
    assert!(
        !config(&native).contains("\"team\""),
        "what is not ours is not passed"
    );
    assert!(!config(&plain).contains("gpuslice-hook"));

    // The hook refuses what has no room, and names the holders.
    let (late, container) = run("late", json!({"gpuslice.io/memory": "20GiB"}));
    let refused = container.expect_err("no room");
    assert!(
        refused.err.contains("no room for default/late/main"),
        "{}",
        refused.err
    );
    assert!(
        refused.err.contains("default/first/main 5.00 GiB"),
        "{}",
        refused.err
    );
    // A request that is not understood is refused, too.
    let (wrong, container) = run("wrong", json!({"gpu-memory": "4Gi"}));
    let refused = container.expect_err("not MiB");
    assert!(
        refused.err.contains("is not a whole number of MiB"),
        "{}",
        refused.err
    );

    for id in [native, kai, plain] {
        cri.remove_container(&id);
    }
    for pod in [first, second, third, late, wrong] {
        cri.remove_pod(&pod);
    }
    assert_nothing_left(&host);
    plugin.kill(&host);
}

#[test]
fn what_starts_while_the_plugin_is_dead_is_reported_by_the_next_one() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let cri = Cri::new(&host, "runc", CONTAINERD);
    let plugin = Plugin::start(&host);
    let pod = cri
        .run_pod("pod", &json!({"gpuslice.io/memory": "5GiB"}))
        .expect("a pod");
    let none = json!({});
    let before = cri
        .run_container(&pod, &Spec::new("before"), &none)
        .expect("a container");
    plugin.kill(&host);
    // The container that has a slice keeps it. containerd before 2.2 cannot require a plugin.
    assert_sliced(&cri, &before, 5 * GIB);
    let meanwhile = cri
        .run_container(&pod, &Spec::new("meanwhile"), &none)
        .expect("a container");
    assert_unsliced(&cri, &meanwhile);
    let plugin = Plugin::start(&host);
    // Other machines may have left events: the folder is a copy of this machine's.
    let escapes = || {
        let escapes = "grep -h '\"escape\"' /var/log/gpuslice/events.jsonl | grep default/pod/";
        host.sh(escapes).out
    };
    host.wait_for("the escape is an event", || !escapes().is_empty());
    let escapes = escapes();
    assert_eq!(escapes.lines().count(), 1, "{escapes}");
    assert!(escapes.contains("default/pod/meanwhile"), "{escapes}");
    assert!(escapes.contains(&meanwhile), "{escapes}");
    let after = cri
        .run_container(&pod, &Spec::new("after"), &none)
        .expect("a container");
    assert_sliced(&cri, &after, 5 * GIB);
    for id in [before, meanwhile, after] {
        cri.remove_container(&id);
    }
    cri.remove_pod(&pod);
    assert_nothing_left(&host);
    plugin.kill(&host);
}
