//! `gpuslice doctor` of containers that real runtimes have started, from the host and from inside.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::spec::{Image, Spec};
use serde_json::{Value, json};

/// Whether the slice is in force, the codes of the findings, and the exit status.
fn said(done: &Done) -> Value {
    let answer: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{done:?}"));
    let findings = answer["findings"].as_array().expect("a list").iter();
    let codes: Vec<&Value> = findings.map(|finding| &finding["code"]).collect();
    json!([answer["in_force"], codes, done.code])
}

fn is_in_order(host: &Host, engine: &mut dyn Engine) {
    let id = engine.start(&Spec::new("served").memory("8GiB"));
    let id = id.unwrap_or_else(|done| panic!("{}: {done:?}", engine.name()));
    let healthy = json!([true, [], 0]);
    // podman tells the hook no name, so the record has the id that podman gave.
    let records = host.list("/run/gpuslice/slices");
    let [record] = records.as_slice() else {
        panic!("{}: {records:?}", engine.name());
    };
    let subject = record.trim_end_matches(".json");
    let outside = host.run("gpuslice", &["doctor", subject, "--json"]);
    assert_eq!(said(&outside), healthy, "{}: {outside:?}", engine.name());
    let inside = engine.exec(&id, &["/opt/gpuslice", "doctor", "--json"]);
    assert_eq!(said(&inside), healthy, "{}: {inside:?}", engine.name());
    engine.remove(&id);
}

#[test]
fn a_container_with_its_slice_is_in_order_from_outside_and_inside() {
    if ready() {
        let host = Host::new();
        is_in_order(&host, &mut Oci::new(&host, "runc", "createRuntime"));
        is_in_order(&host, &mut Oci::new(&host, "crun", "createRuntime"));
        is_in_order(&host, &mut Podman::new(&host, "crun", "createRuntime"));
    }
}

#[test]
fn a_container_of_musl_is_named_with_the_reason_of_the_hook() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let mut spec = Spec::new("other").memory("2GiB");
    spec = spec.running(&["/bin/hello", "wait"]);
    spec.image = Image::Musl;
    let id = oci.start(&spec).expect("a warning, not a refusal");
    let done = host.run("gpuslice", &["doctor", "other", "--json"]);
    let why = json!([false, ["image-not-injectable"], 1]);
    assert_eq!(said(&done), why, "{done:?}");
    assert!(done.out.contains("musl"), "{done:?}");
    oci.remove(&id);
}

/// An engine calls a container started while its process still executes the runtime.
#[test]
fn a_container_that_is_just_being_started_is_in_order() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for binary in ["runc", "crun"] {
        let mut oci = Oci::new(&host, binary, "createRuntime");
        oci.prepare(&Spec::new("starting").memory("2GiB"));
        let bundle = Oci::bundle("starting");
        let script = format!(
            "{binary} create --bundle {bundle} starting </dev/null >/run/out 2>&1 && {{ sleep 0.3; \
             {binary} start starting; }} & sleep 0.1; until ls /run/gpuslice/slices | grep -q starting; \
             do sleep 0.01; done; sleep 0.1; gpuslice doctor starting --json; wait"
        );
        let done = host.sh(&script);
        assert_eq!(said(&done), json!([true, [], 0]), "{binary}: {done:?}");
        oci.remove("starting");
    }
}

/// The list is mounted on a file in /etc, and a link at /etc can be replaced.
#[test]
fn an_etc_that_root_of_the_container_has_replaced_is_named() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    oci.prepare(&Spec::new("moved").memory("2GiB"));
    let root = format!("{}/rootfs", Oci::bundle("moved"));
    let link = "mv etc usr/etc && ln -s usr/etc etc";
    host.sh(&format!("cd {root} && {link}")).ok();
    oci.run("moved").ok();
    let attack = "rm /etc; cp -a /usr/etc /e; rm /e/ld.so.preload; mv /e /etc";
    oci.exec("moved", &["sh", "-c", attack]).ok();
    let done = host.run("gpuslice", &["doctor", "moved", "--json"]);
    assert!(done.out.contains("ld-so-preload-edited"), "{done:?}");
    oci.remove("moved");
}
