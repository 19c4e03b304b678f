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

fn sorted(plan: &ContainerPlan) -> Vec<(String, Bytes)> {
    let mut all = budgets(plan);
    all.sort();
    all
}

const ONE: (&str, &str) = ("gpuslice.io/memory.1", "2GiB");
const DEFAULT: &str = "[default]\nmemory = \"4GiB\"";
const MAXIMUM: &str = "[maximum]\ncontainer = \"8GiB\"";
const DENY: &str = "deny-unannotated = true";

#[test]
fn a_size_for_a_gpu_that_the_container_is_not_given_is_refused() {
    assert_eq!(
        given(&[0], "").refused(&[ONE]),
        "the request names GPU 1, but the container is given GPU 0: name one of these, or limit all of \
         them (gpuslice.io/memory)"
    );
    let plan = given(&[1], "").plan(&[ONE]);
    assert_eq!(budgets(&plan), [("GPU-2".to_owned(), Bytes::gib(2))]);
    assert_eq!(plan.note, None);
}

#[test]
fn a_gpu_that_the_request_does_not_name_has_the_default_and_counts() {
    let plan = given(&[0, 1], DEFAULT).plan(&[ONE]);
    let one = ("GPU-1".to_owned(), Bytes::gib(4));
    assert_eq!(sorted(&plan), [one, ("GPU-2".to_owned(), Bytes::gib(2))]);
    assert_eq!(
        plan.note.unwrap(),
        "it has the policy's default of 4.00 GiB on GPU 0, which its request does not name"
    );
}

#[test]
fn naming_one_gpu_does_not_evade_the_policy_on_another() {
    for policy in [MAXIMUM, DENY] {
        given(&[1], policy).plan(&[ONE]);
        given(&[0, 1], policy).plan(&[ONE, ("gpuslice.io/memory.0", "1GiB")]);
    }
    assert_eq!(
        given(&[0, 1], DENY).refused(&[ONE]),
        "the request gives no size for GPU 0, and this host's policy lets no container have a GPU \
         without one (annotation gpuslice.io/memory.GPU, or gpuslice.io/memory for all)"
    );
    let plan = given(&[0, 1], MAXIMUM).plan(&[ONE]);
    assert_eq!(sorted(&plan), [("GPU-2".to_owned(), Bytes::gib(2))]);
    assert_eq!(memory_of(&plan), Some(Bytes::gib(8)), "on the others");
    assert_eq!(
        plan.note.unwrap(),
        "it has the policy's maximum of 8.00 GiB on GPU 0, which its request does not name"
    );
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
    // Without a policy, they have no limit. NVIDIA's legacy hook may bring exactly those.
    assert_eq!(
        untold("").plan(&[ONE]).note.unwrap(),
        "its configuration does not say which GPUs it is given; it has no limit on GPU 0, which its \
         request does not name"
    );
}

#[test]
fn containers_of_a_pod_share_sizes_of_gpus_that_one_of_them_is_given() {
    let mut pod = POD.to_vec();
    pod.extend([ONE, ("gpuslice.io/share", "pod")]);
    let plan = given(&[0], MAXIMUM).plan(&pod);
    assert_eq!(budgets(&plan), [("GPU-2".to_owned(), Bytes::gib(2))]);
    assert!(plan.files[0].text.contains("\"memory\": 8589934592"));
}

/// The limit on GPUs that the slice does not list.
fn memory_of(plan: &ContainerPlan) -> Option<Bytes> {
    slice::parse(plan.files[0].text.as_bytes()).unwrap().memory
}

#[test]
fn a_maximum_limits_a_container_that_asks_for_nothing_and_counts_nothing() {
    let plan = given(&[0, 1], MAXIMUM).plan(&[]);
    assert_eq!(budgets(&plan), []);
    assert_eq!(memory_of(&plan), Some(Bytes::gib(8)));
    assert_eq!(
        plan.note.unwrap(),
        "it has the policy's maximum of 8.00 GiB on GPUs 0, 1, because it requests no size"
    );
    // The maximum of one namespace, and the share of all its containers, bound it too.
    for policy in [
        "[namespaces.team]\ncontainer = \"2GiB\"",
        "[maximum]\nnamespace = \"2GiB\"",
        "[maximum]\ncontainer = \"8GiB\"\n[namespaces.team]\nnamespace = \"2GiB\"",
    ] {
        let plan = given(&[1], policy).plan(POD);
        assert_eq!(memory_of(&plan), Some(Bytes::gib(2)), "{policy}");
    }
    let default = "[default]\nmemory = \"4GiB\"\n[maximum]\nnamespace = \"2GiB\"";
    let plan = given(&[1], default).plan(POD);
    assert_eq!(budgets(&plan), [("GPU-2".to_owned(), Bytes::gib(2))]);
    let elsewhere = given(&[1], "[namespaces.other]\ncontainer = \"2GiB\"").decide(POD);
    assert_eq!(elsewhere, Ok(Decision::Nothing("it asks for no slice")));
    let denied = given(
        &[1],
        "deny-unannotated = true\n[maximum]\ncontainer = \"8GiB\"",
    );
    assert_eq!(denied.decide(&[]), Err(PlanError::Unannotated));
}

#[test]
fn a_maximum_leaves_alone_what_it_does_not_bound() {
    let unbound = Ok(Decision::Nothing(
        "the policy's maximum bounds none of its GPUs",
    ));
    // The container has no GPU, the GPU is no larger, or it is not for slices.
    assert_eq!(
        sidecar(MAXIMUM).decide(&[]),
        Ok(Decision::Nothing("it is given no GPU"))
    );
    let whole = given(&[0], "[maximum]\ncontainer = \"24GiB\"");
    assert_eq!(whole.decide(&[]), unbound);
    let other = given(&[0], "devices = [1]\n[maximum]\ncontainer = \"8GiB\"");
    assert_eq!(other.decide(&[]), unbound);
    let without = Case {
        machine: r#"{"version":1,"devices":[]}"#,
        ..given(&[0], MAXIMUM)
    };
    assert_eq!(
        without.decide(&[]),
        Ok(Decision::Nothing("this host has no GPU"))
    );
}

/// A container that certainly has no GPU.
fn sidecar(policy: &'static str) -> Case {
    Case {
        linux: serde_json::json!({"resources": {"devices": [{"allow": false, "access": "rwm"}]}}),
        ..given(&[], policy)
    }
}

/// The annotations of a pod are those of its sidecars, too.
#[test]
fn a_size_for_a_named_gpu_takes_no_room_for_a_container_without_gpus() {
    let zero = ("gpuslice.io/memory.0", "4GiB");
    for policy in ["", DEFAULT, MAXIMUM, DENY] {
        let plan = sidecar(policy).plan(&[ONE, zero]);
        assert_eq!(budgets(&plan), [], "{policy}");
        // A GPU that it should have after all is limited.
        assert_eq!(memory_of(&plan), Some(Bytes::gib(2)), "{policy}");
        assert_eq!(
            plan.note.unwrap(),
            "its memory counts on no GPU, because the container is given none"
        );
    }
    let all = ("gpuslice.io/memory", "20GiB");
    assert_eq!(
        memory_of(&sidecar("").plan(&[all, zero])),
        Some(Bytes::gib(4))
    );
    assert_eq!(
        sidecar(MAXIMUM).refused(&[("gpuslice.io/memory.0", "9GiB")]),
        "9.00 GiB is more than this host's policy allows a container to have of a GPU (8.00 GiB)"
    );
}

#[test]
fn a_default_leaves_alone_what_has_only_gpus_that_are_not_sliced() {
    let policy = "devices = [0]\n[default]\nmemory = \"4GiB\"";
    assert_eq!(
        given(&[1], policy).decide(&[]),
        Ok(Decision::Nothing("the policy slices none of its GPUs"))
    );
    for case in [given(&[0], policy), given(&[0, 1], policy), untold(policy)] {
        let one = ("GPU-1".to_owned(), Bytes::gib(4));
        assert_eq!(budgets(&case.plan(&[])), [one]);
    }
    // A policy for GPUs that this host does not have is a mistake.
    let mistaken = "devices = [3]\n[default]\nmemory = \"4GiB\"";
    let said = given(&[1], mistaken).refused(&[]);
    assert!(
        said.contains("slices none of the container's GPUs"),
        "{said}"
    );
}

/// Privileged containers, and those that NVIDIA's legacy hook could give a GPU and does not.
#[test]
fn a_maximum_leaves_alone_what_may_have_no_gpu() {
    let unknown = Ok(Decision::Nothing(
        "its configuration does not say that it has a GPU",
    ));
    assert_eq!(untold(MAXIMUM).decide(&[]), unknown);
    let every = serde_json::json!({"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0});
    let privileged = Case {
        linux: serde_json::json!({
            "devices": [every],
            "resources": {"devices": [{"allow": true, "access": "rwm"}]},
        }),
        ..untold(MAXIMUM)
    };
    assert_eq!(privileged.decide(&[]), unknown);
    let legacy = |env: &'static [&'static str]| Case {
        hooks: serde_json::json!({"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}),
        env,
        ..untold(MAXIMUM)
    };
    for none in [
        &["A=B"][..],
        &["NVIDIA_VISIBLE_DEVICES=void", "CUDA_VERSION=12.0"],
        &["CUDA_VERSION=12.0", "NVIDIA_REQUIRE_CUDA=cuda>=12.0"],
    ] {
        assert_eq!(legacy(none).decide(&[]), unknown, "{none:?}");
    }
    for all in [
        &["NVIDIA_VISIBLE_DEVICES=all"][..],
        &["NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_REQUIRE_CUDA=cuda>=12.0"],
        &["CUDA_VERSION=12.0"],
    ] {
        let plan = legacy(all).plan(&[]);
        assert_eq!(budgets(&plan), [], "{all:?}");
        assert_eq!(memory_of(&plan), Some(Bytes::gib(8)), "{all:?}");
    }
}

#[test]
fn mig_instances_beside_a_named_one_are_limited_and_do_not_count() {
    let named = (
        "gpuslice.io/memory.MIG-5b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4",
        "2GiB",
    );
    for (policy, limit) in [(DEFAULT, 4), (MAXIMUM, 8), (DENY, 2)] {
        let mig = Case {
            machine: MIG,
            ..given(&[0], policy)
        };
        let plan = mig.plan(&[named]);
        assert_eq!(budgets(&plan), [("MIG-5".to_owned(), Bytes::gib(2))]);
        let slice = slice::parse(plan.files[0].text.as_bytes()).unwrap();
        assert_eq!(slice.memory, Some(Bytes::gib(limit)), "{policy}");
    }
    let free = Case {
        machine: MIG,
        ..given(&[0], "")
    };
    let text = &free.plan(&[named]).files[0].text;
    assert_eq!(slice::parse(text.as_bytes()).unwrap().memory, None);
}
