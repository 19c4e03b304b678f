//! The operator's policy in `/etc/gpuslice/config.toml` applies to every container.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced, assert_unsliced};
use gpuslice_containers::spec::Spec;

const POLICY: &str = "/etc/gpuslice/config.toml";

#[test]
fn who_asks_for_nothing_gets_the_default_slice_or_is_refused() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    host.write(POLICY, "[default]\nmemory = \"4GiB\"\n");
    let id = oci.start(&Spec::new("plain")).expect("it starts");
    assert_sliced(&oci, &id, 4 * GIB);
    oci.remove(&id);
    let id = oci
        .start(&Spec::new("own").memory("2GiB"))
        .expect("it starts");
    assert_sliced(&oci, &id, 2 * GIB);
    oci.remove(&id);
    host.write(POLICY, "deny-unannotated = true\n");
    let refused = oci.start(&Spec::new("plain")).expect_err("it says nothing");
    assert!(refused.out.contains("gpuslice.io/memory"), "{refused:?}");
    let id = oci
        .start(&Spec::new("own").memory("2GiB"))
        .expect("it starts");
    oci.remove(&id);
    assert_nothing_left(&host);
}

#[test]
fn an_unreadable_policy_stops_annotated_containers_and_no_others() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    for policy in ["maximun = 1\n", "[maximum\n"] {
        host.write(POLICY, policy);
        let refused = oci.start(&Spec::new("own").memory("2GiB"));
        let said = refused.expect_err("fail closed").out;
        assert!(said.contains("config.toml"), "{said}");
        let id = oci
            .start(&Spec::new("other"))
            .expect("a container without a request starts");
        assert_unsliced(&oci, &id);
        oci.remove(&id);
    }
    // A policy that users other than root may write to is not used.
    host.write(POLICY, "[default]\nmemory = \"4GiB\"\n");
    host.sh(&format!("chmod 666 {POLICY}")).ok();
    let refused = oci.start(&Spec::new("own").memory("2GiB"));
    assert!(
        refused
            .expect_err("fail closed")
            .out
            .contains("config.toml")
    );
    assert_nothing_left(&host);
}

#[test]
fn a_size_that_is_invalid_or_does_not_fit_is_named_in_the_error() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    for (key, value, word) in [
        ("gpuslice.io/memory", "12Q", "12Q"),
        ("gpuslice.io/memroy", "2GiB", "memroy"),
        ("gpuslice.io/memory", "100GiB", "100.00 GiB"),
        ("gpuslice.io/memory.7", "2GiB", "7"),
    ] {
        let refused = oci.start(&Spec::new("odd").annotated(key, value));
        let said = refused.expect_err(value).out;
        assert!(said.contains(word), "{key}: {value}: {said}");
        assert_nothing_left(&host);
    }
}
