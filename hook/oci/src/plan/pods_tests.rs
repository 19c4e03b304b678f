//! Slices of pods and of claims: who shares one, and what it is called.
//! Touches: its arguments.

use super::*;

#[test]
fn a_slice_is_shared_only_in_a_pod() {
    let shared = [("gpuslice.io/memory", "8GiB"), ("gpuslice.io/share", "pod")];
    assert_eq!(Case::default().decide(&shared), Err(PlanError::NoPod));
    for forged in ["../../../../etc/passwd-and", "short"] {
        let mut annotations = shared.to_vec();
        annotations.push(("io.kubernetes.cri.sandbox-id", forged));
        assert_eq!(
            Case::default().decide(&annotations),
            Err(PlanError::NoPod),
            "{forged}"
        );
    }
}

#[test]
fn a_pods_slice_is_named_by_a_hash_that_does_not_give_its_sandbox_away() {
    let shared = [("gpuslice.io/memory", "8GiB"), ("gpuslice.io/share", "pod")];
    let plan = Case::default().plan(&[POD, &shared].concat());
    assert!(plan.slice.starts_with("pod-") && plan.slice.len() == 20);
    assert!(!plan.slice.contains("0123456789abcdef"));
    assert_eq!(
        plan.sandbox.as_deref(),
        Some("0123456789abcdef0123456789abcdef")
    );
    assert_ne!(
        pod_slice("0123456789abcdef0"),
        pod_slice("0123456789abcdef1")
    );
    // The reference value of FNV-1a's authors.
    assert_eq!(pod_slice("foobar"), "pod-85944171f73967e8");
}

#[test]
fn a_claims_namespace_counts_and_not_that_of_an_annotation() {
    let options = "gpuslice-hook --slice a --claim team/c1 --memory 2GiB";
    let words: Vec<&str> = options.split(' ').collect();
    let hook = serde_json::json!({"path": "/usr/bin/gpuslice-hook", "args": words});
    let case = Case {
        hooks: serde_json::json!({"createRuntime": [hook]}),
        ..Case::default()
    };
    let annotations = [
        ("io.kubernetes.cri.sandbox-namespace", "other"),
        ("io.kubernetes.cri.sandbox-name", "web"),
        ("io.kubernetes.cri.container-name", "server"),
    ];
    let plan = case.plan(&annotations);
    assert_eq!(plan.namespace.as_deref(), Some("team"));
    assert_eq!(plan.name, "team/web/server");
}

#[test]
fn a_named_slice_is_its_names_and_no_other_ones() {
    let slice = |options: &[&str]| {
        let hook = |options: &&str| {
            let words = options.split_whitespace();
            let words: Vec<&str> = ["gpuslice-hook"].into_iter().chain(words).collect();
            serde_json::json!({"path": "/usr/bin/gpuslice-hook", "args": words})
        };
        let hooks: Vec<_> = options.iter().map(hook).collect();
        let plan = Case {
            hooks: serde_json::json!({"createRuntime": hooks}),
            ..Case::default()
        };
        plan.plan(POD)
    };
    let (a, b) = ("--slice a --memory 1GiB", "--slice b --memory 2GiB");
    let plan = slice(&[a]);
    assert_eq!((plan.named.as_deref(), plan.shared), (Some("a"), true));
    assert_eq!(plan.sandbox, None);
    assert!(plan.slice.starts_with("named-") && plan.slice.len() == 22);
    let both = slice(&[b, a]);
    assert_eq!(both.named.as_deref(), Some("a,b"));
    assert_eq!(both.slice, slice(&[a, b]).slice);
    assert_ne!(both.slice, plan.slice);
    assert_eq!(both.devices[0].memory, Bytes::gib(3));
    // The driver limits each container by itself.
    let alone = slice(&["--slice a --memory 1GiB --fence driver"]);
    assert_eq!((alone.fence, alone.shared), (Fence::Driver, false));
    assert_eq!(alone.slice, plan.slice);
}

#[test]
fn container_ids_that_look_like_a_pods_slice_or_a_run_are_refused() {
    for id in [
        "pod-5f3759df0badc0de",
        "pod-5F3759DF0BADC0DE",
        "named-5f3759df0badc0de",
        "run.1.5.x",
        "run.1.5",
    ] {
        assert!(is_reserved(id), "{id}");
    }
    for id in [
        "pod-web",
        "named-web",
        "pod-5f3759df0badc0de1",
        "run.1",
        "run.a.5.x",
        "run-1",
        "running",
        "5f3759df0badc0de",
    ] {
        assert!(!is_reserved(id), "{id}");
    }
}

#[test]
fn a_pods_sandbox_is_left_alone() {
    let sandbox = [
        ("io.kubernetes.cri.container-type", "sandbox"),
        ("io.kubernetes.cri.sandbox-id", "c1"),
        ("gpuslice.io/memory", "8GiB"),
    ];
    let left = Case::default().decide(&sandbox);
    assert_eq!(
        left,
        Ok(Decision::Nothing("it only holds a pod's namespaces"))
    );
}
