//! The hook is killed at every step. The container does not start, and the remains are collected.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::{Spec, hook};
use gpuslice_hook::base::crash_points::CRASH_POINTS;
use serde_json::json;

/// The root of the container. A read-only file system takes the hook through most of its steps. On
/// a machine with unified memory, promises add steps to the stages outside the container.
const ROOT: &str = "/run/bundles/killed/rootfs";

fn prepare(host: &Host, oci: &Oci, spec: &Spec) {
    oci.prepare(spec);
    host.sh(&format!(
        "mkdir -p /run/empty && umount {ROOT} && mount -t overlay -o lowerdir=/run/empty:/run/build/containers/debian overlay {ROOT}"
    ))
    .ok();
}

#[test]
fn a_hook_killed_at_any_step_leaves_no_mount_no_file_and_no_budget() {
    if !ready() {
        return;
    }
    // At createContainer the hook refuses unified memory.
    for (stage, gpus) in [("createRuntime", "gb10"), ("createContainer", "h200")] {
        let host = Host::with(gpus);
        let mut spec = Spec::new("killed").memory("80GiB");
        spec.gpus = gpus;
        spec.mounts.push(("/etc/hosts".into(), "/etc/hosts".into()));
        let mut reached = Vec::new();
        for step in CRASH_POINTS {
            let case = format!("{stage} at {step}");
            let mut oci = Oci::new(&host, "runc", stage);
            let mut killed = hook(stage);
            killed["args"] = json!(["gpuslice-hook", "--die-at", step, stage]);
            oci.hooks = json!({ stage: [killed] });
            prepare(&host, &oci, &spec);
            let before = host.changes();
            let done = oci.run("killed");
            if done.code != 0 {
                assert!(done.out.contains("killed"), "{case}: {done:?}");
                reached.push(step);
            }
            // No poststop follows, because for the runtime no hook has run.
            oci.remove("killed");
            host.run("gpuslice", &["gc"]).ok();
            assert_nothing_left(&host);
            assert_eq!(host.changes(), before, "{case}");

            // After this crash no gc runs: the next start collects the remains itself.
            prepare(&host, &oci, &spec);
            let _ = oci.run("killed");
            oci.remove("killed");
            let mut next = Oci::new(&host, "runc", stage);
            let id = next.start(&Spec {
                name: "next".into(),
                ..spec.clone()
            });
            let id = id.unwrap_or_else(|done| panic!("{case}: the budget is lost: {done:?}"));
            assert_sliced(&next, &id, 80 * GIB);
            next.remove(&id);
            host.run("gpuslice", &["gc"]).ok();
            assert_nothing_left(&host);
        }
        assert_eq!(
            reached, CRASH_POINTS,
            "{stage}: these steps were never reached"
        );
    }
}
