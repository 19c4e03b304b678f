//! Requests that name some of the GPUs of a container.
//! Touches: its arguments.

use super::*;

const TWO: &str = r#"{"version":1,"devices":[
  {"uuid":"GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":0,"minor":0,"name":"Card","memory":25769803776},
  {"uuid":"GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":1,"minor":1,"name":"Card","memory":25769803776}]}"#;

/// A container of a host with two GPUs that is given the GPUs of these minor numbers.
fn given(minors: &[i64], policy: &'static str) -> Case {
    let nodes = minors.iter().map(|minor| {
        serde_json::json!({"path": format!("/dev/nvidia{minor}"), "type": "c", "major": 195, "minor": minor})
    });
    Case {
        machine: TWO,
        policy,
        linux: serde_json::json!({"devices": nodes.collect::<Vec<_>>()}),
        ..Case::default()
    }
}

/// A container of the same host whose configuration does not say which GPUs it is given.
fn untold(policy: &'static str) -> Case {
    Case {
        linux: serde_json::Value::Null,
        ..given(&[], policy)
    }
}

const ONE: (&str, &str) = ("gpuslice.io/memory.1", "2GiB");
const DEFAULT: &str = "[default]\nmemory = \"4GiB\"";
const MAXIMUM: &str = "[maximum]\ncontainer = \"8GiB\"";
const DENY: &str = "deny-unannotated = true";

#[test]
fn a_size_for_a_gpu_that_the_container_is_not_given_is_refused() {
    assert_eq!(
        given(&[0], "").refused(&[ONE]),
        "the request names GPU 1, but the container is given GPU 0: name a GPU that it is given, or \
         none (gpuslice.io/memory)"
    );
    let plan = given(&[1], "").plan(&[ONE]);
    assert_eq!(budgets(&plan), [("GPU-2".to_owned(), Bytes::gib(2))]);
    assert_eq!(plan.note, None);
}

#[test]
fn a_gpu_that_the_request_does_not_name_has_the_default_and_counts() {
    let plan = given(&[0, 1], DEFAULT).plan(&[ONE]);
    let mut all = budgets(&plan);
    all.sort();
    let one = ("GPU-1".to_owned(), Bytes::gib(4));
    assert_eq!(all, [one, ("GPU-2".to_owned(), Bytes::gib(2))]);
    assert_eq!(
        plan.note.unwrap(),
        "it has the policy's default of 4.00 GiB on GPU 0, which its request does not name"
    );
}

#[test]
fn naming_one_gpu_does_not_evade_the_policy_on_another() {
    for policy in [MAXIMUM, DENY] {
        assert_eq!(
            given(&[0, 1], policy).refused(&[ONE]),
            "the request gives no size for GPU 0, and this host's policy lets no container have a \
             GPU without one (annotation gpuslice.io/memory.GPU, or gpuslice.io/memory for all)"
        );
        given(&[1], policy).plan(&[ONE]);
        given(&[0, 1], policy).plan(&[ONE, ("gpuslice.io/memory.0", "1GiB")]);
    }
    let note = given(&[0, 1], "").plan(&[ONE]).note;
    assert_eq!(
        note.unwrap(),
        "it has no limit on GPU 0, which its request does not name"
    );
}

#[test]
fn gpus_of_a_container_that_are_not_known_are_limited_and_do_not_count() {
    for (policy, limit) in [(DEFAULT, Bytes::gib(4)), (MAXIMUM, Bytes::gib(8))] {
        let plan = untold(policy).plan(&[ONE]);
        assert_eq!(budgets(&plan), [("GPU-2".to_owned(), Bytes::gib(2))]);
        let line = format!("\"memory\": {},\n  \"headroom\"", limit.get());
        assert!(plan.files[0].text.contains(&line), "{}", plan.files[0].text);
    }
    let said = untold(DENY).refused(&[ONE]);
    assert!(said.contains("gives no size for GPU 0"), "{said}");
    // Without a policy, they have no limit, as the annotation says.
    assert_eq!(untold("").plan(&[ONE]).note, None);
}

#[test]
fn containers_of_a_pod_share_sizes_of_gpus_that_one_of_them_is_given() {
    let mut pod = POD.to_vec();
    pod.extend([ONE, ("gpuslice.io/share", "pod")]);
    let plan = given(&[0], MAXIMUM).plan(&pod);
    assert_eq!(budgets(&plan), [("GPU-2".to_owned(), Bytes::gib(2))]);
    assert!(plan.files[0].text.contains("\"memory\": 8589934592"));
}
