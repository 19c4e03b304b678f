//! The slices of containers whose requests are written for other systems.

use super::*;
use serde_json::json;

const ON: &str = "[dialects]\nkai = true\nhami = true\nnvidia = true\n";

const UNEQUAL: &str = r#"{"version":1,"devices":[
  {"uuid":"GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":0,"name":"Card","memory":25769803776,"minor":0},
  {"uuid":"GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":1,"name":"Large","memory":85899345920,"minor":1}]}"#;

fn case() -> Case {
    Case {
        machine: SPARK,
        policy: ON,
        ..Case::default()
    }
}

/// The budgets and the slice file of a container of a pod with these annotations.
fn slice(case: &Case, annotations: &[(&str, &str)]) -> (Vec<(String, Bytes)>, Slice) {
    let plan = case.plan(&[POD, annotations].concat());
    let text = plan.files.first().unwrap().text.as_bytes().to_vec();
    (budgets(&plan), slice::parse(&text).unwrap())
}

#[test]
fn one_pod_in_any_dialect_gets_the_slice_of_the_native_annotation() {
    let shares = "GPU-b10aaaaa-4444-4555-8666-777788880000,NVIDIA,8192,0:;";
    let native = case().plan(&[POD, &[("gpuslice.io/memory", "8GiB")]].concat());
    for annotation in [
        ("gpu-memory", "8192"),
        ("nvidia.com/container.server.gpu-memory.request", "8Gi"),
        ("nvidia.com/container.server.gpu-memory.limit", "8Gi"),
    ] {
        let plan = case().plan(&[POD, &[annotation]].concat());
        assert_eq!(plan, native, "{annotation:?}");
    }
    let plan = case().plan(&[POD, &[("hami.io/vgpu-devices-allocated", shares)]].concat());
    assert_eq!(plan.devices, native.devices);
    for variable in [
        "CUDA_DEVICE_MEMORY_LIMIT_0=8192m",
        "CUDA_DEVICE_MEMORY_LIMIT=8g",
        "NVIDIA_GPU_MEMORY_LIMIT=8192",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8G",
    ] {
        let env: &'static [&'static str] = Box::leak(Box::new([variable]));
        let plan = Case { env, ..case() }.plan(POD);
        assert_eq!(plan.devices, native.devices, "{variable}");
        assert_eq!(plan.files, native.files, "{variable}");
    }
}

#[test]
fn a_fraction_is_of_each_gpus_total() {
    let unequal = Case {
        machine: UNEQUAL,
        ..case()
    };
    let (budgets, slice) = slice(&unequal, &[("gpu-fraction", "0.5")]);
    let each = [
        ("GPU-1".to_owned(), Bytes::gib(12)),
        ("GPU-2".to_owned(), Bytes::gib(40)),
    ];
    assert_eq!(budgets, each);
    // A GPU that is in no list has the smaller of both.
    assert_eq!(slice.memory, Some(Bytes::gib(12)));
}

#[test]
fn a_fraction_counts_on_the_gpu_that_the_container_is_given() {
    let linux = json!({
        "devices": [{"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1}],
        "resources": {"devices": [{"allow": false, "access": "rwm"}]},
    });
    let unequal = Case {
        machine: UNEQUAL,
        linux,
        env: &[],
        ..case()
    };
    let (budgets, _) = slice(&unequal, &[("gpu-fraction", "0.25")]);
    assert_eq!(budgets, [("GPU-2".to_owned(), Bytes::gib(20))]);
}

/// The cgroup of a container without a GPU.
fn closed() -> serde_json::Value {
    json!({"resources": {"devices": [{"allow": false, "access": "rwm"}]}})
}

#[test]
fn a_sidecar_without_a_gpu_starts_beside_containers_of_different_shares() {
    let shares = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4,NVIDIA,4096,0:;\
                  GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4,NVIDIA,8192,0:;;";
    let annotations = [POD, &[("hami.io/vgpu-devices-allocated", shares)]].concat();
    // The hook decides without a list of GPUs first.
    for machine in [r#"{"version":1,"devices":[]}"#, UNEQUAL] {
        let sidecar = Case {
            machine,
            linux: closed(),
            env: &[],
            ..case()
        };
        assert_eq!(
            sidecar.decide(&annotations),
            Ok(Decision::Nothing("it asks for no slice")),
            "{machine}"
        );
    }
    let unknown = Case {
        machine: UNEQUAL,
        env: &[],
        ..case()
    };
    let said = unknown.refused(&annotations);
    assert!(said.contains("different shares"), "{said}");
}

#[test]
fn without_the_policys_word_no_dialect_counts() {
    let off = Case {
        env: &["CUDA_DEVICE_MEMORY_LIMIT=1g"],
        ..Case::default()
    };
    let annotations = [POD, &[("gpu-memory", "8192")]].concat();
    assert!(matches!(off.decide(&annotations), Ok(Decision::Nothing(_))));
}

#[test]
fn a_native_annotation_that_differs_is_refused_and_both_are_named() {
    let refused = |annotations: &[(&str, &str)]| case().refused(&[POD, annotations].concat());
    assert_eq!(
        refused(&[("gpuslice.io/memory", "4GiB"), ("gpu-memory", "8192")]),
        "gpuslice.io/memory says 4.00 GiB, and gpu-memory says 8192 (8.00 GiB): leave one of them out"
    );
    assert_eq!(
        refused(&[("gpuslice.io/memory.0", "4GiB"), ("gpu-memory", "8192")]),
        "gpuslice.io/memory.0 says 4.00 GiB, and gpu-memory says 8192 (8.00 GiB): leave one of them \
         out"
    );
    let said = refused(&[("gpuslice.io/memory", "4GiB"), ("gpu-fraction", "0.5")]);
    assert!(said.contains("gpu-fraction says 0.5 (60.84 GiB)"), "{said}");
    let hook = Case {
        memory: Some(Bytes::gib(4)),
        ..case()
    };
    assert_eq!(
        hook.refused(&[POD, &[("gpu-memory", "8192")]].concat()),
        "a hook in config.json says 4.00 GiB, and gpu-memory says 8192 (8.00 GiB): leave one of them \
         out"
    );
}

#[test]
fn native_options_apply_to_a_size_of_a_dialect() {
    let both = [("gpuslice.io/headroom", "1GiB"), ("gpu-memory", "8192")];
    let (budgets, slice) = slice(&case(), &both);
    assert_eq!(budgets, [("GPU-b".to_owned(), Bytes::gib(8))]);
    assert_eq!(slice.headroom, Bytes::gib(1));
    let same = [("gpuslice.io/memory", "8GiB"), ("gpu-memory", "8192")];
    let plan = case().plan(&[POD, &same].concat());
    assert_eq!(self::budgets(&plan), budgets);
}

#[test]
fn a_variable_lowers_a_slice_and_never_enlarges_it() {
    let low = Case {
        env: &["CUDA_DEVICE_MEMORY_LIMIT=2g"],
        ..case()
    };
    let plan = low.plan(&[POD, &[("gpuslice.io/memory", "8GiB")]].concat());
    assert_eq!(budgets(&plan), [("GPU-b".to_owned(), Bytes::gib(2))]);
    let note = "its slice is no larger than CUDA_DEVICE_MEMORY_LIMIT, 2.00 GiB";
    assert_eq!(plan.note.as_deref(), Some(note));
    let high = Case {
        env: &["CUDA_DEVICE_MEMORY_LIMIT=20g"],
        ..case()
    };
    let plan = high.plan(&[POD, &[("gpuslice.io/memory", "8GiB")]].concat());
    assert_eq!(budgets(&plan), [("GPU-b".to_owned(), Bytes::gib(8))]);
    assert_eq!(plan.note, None);
}

#[test]
fn a_variable_never_enlarges_the_default_slice_nor_lifts_a_refusal() {
    let default = |env| Case {
        policy: Box::leak(format!("{ON}[default]\nmemory = \"4GiB\"").into_boxed_str()),
        env,
        ..case()
    };
    let plan = default(&["NVIDIA_GPU_MEMORY_LIMIT=81920"]).plan(POD);
    assert_eq!(budgets(&plan), [("GPU-b".to_owned(), Bytes::gib(4))]);
    let plan = default(&["NVIDIA_GPU_MEMORY_LIMIT=1024"]).plan(POD);
    assert_eq!(budgets(&plan), [("GPU-b".to_owned(), Bytes::gib(1))]);
    let denied = Case {
        policy: Box::leak(format!("deny-unannotated = true\n{ON}").into_boxed_str()),
        env: &["NVIDIA_GPU_MEMORY_LIMIT=1024"],
        ..case()
    };
    assert!(
        denied
            .refused(POD)
            .contains("do not say how much GPU memory")
    );
}

#[test]
fn a_pods_shared_slice_is_not_lowered_by_one_containers_variable() {
    let shared = Case {
        env: &["CUDA_DEVICE_MEMORY_LIMIT=2g"],
        ..case()
    };
    let annotations = [("gpuslice.io/memory", "8GiB"), ("gpuslice.io/share", "pod")];
    let plan = shared.plan(&[POD, &annotations].concat());
    assert_eq!(budgets(&plan), [("GPU-b".to_owned(), Bytes::gib(8))]);
    assert!(
        plan.note
            .unwrap()
            .contains("does not lower the slice that it shares")
    );
}

#[test]
fn the_maximum_of_the_policy_bounds_every_dialect() {
    let bounded = Case {
        policy: Box::leak(format!("{ON}[maximum]\ncontainer = \"4GiB\"").into_boxed_str()),
        ..case()
    };
    for annotation in [("gpu-memory", "8192"), ("gpu-fraction", "0.5")] {
        let said = bounded.refused(&[POD, &[annotation]].concat());
        assert!(
            said.contains("more than this host's policy allows"),
            "{said}"
        );
    }
}

#[test]
fn a_variable_below_the_maximum_does_not_keep_a_container_from_starting() {
    let default = "[default]\nmemory = \"16GiB\"\n";
    for (policy, env, expected) in [
        ("", "NVIDIA_GPU_MEMORY_LIMIT=2048", 2),
        ("", "NVIDIA_GPU_MEMORY_LIMIT=81920", 4),
        (default, "NVIDIA_GPU_MEMORY_LIMIT=2048", 2),
        (default, "NVIDIA_GPU_MEMORY_LIMIT=81920", 4),
        (default, "A=B", 4),
    ] {
        let policy = format!("{ON}[maximum]\ncontainer = \"4GiB\"\n{policy}");
        let bounded = Case {
            policy: Box::leak(policy.into_boxed_str()),
            env: Box::leak(Box::new([env])),
            ..case()
        };
        let (budgets, slice) = slice(&bounded, &[]);
        let expected = Bytes::gib(expected);
        assert_eq!(budgets, [("GPU-b".to_owned(), expected)], "{env}");
        assert_eq!(slice.memory, Some(expected), "{env}");
        let sidecar = Case {
            linux: closed(),
            ..bounded
        };
        assert!(sidecar.decide(POD).is_ok(), "{env}");
    }
}

#[test]
fn what_cannot_be_honoured_is_in_the_plan() {
    let compute = Case {
        env: &["CUDA_DEVICE_SM_LIMIT=30", "CUDA_TASK_PRIORITY=1"],
        ..case()
    };
    let plan = compute.plan(&[POD, &[("gpu-memory", "8192"), ("mps", "true")]].concat());
    let keys = [
        "mps true",
        "CUDA_DEVICE_SM_LIMIT 30",
        "CUDA_TASK_PRIORITY 1",
    ];
    assert_eq!(plan.unheld.len(), keys.len());
    for (line, key) in plan.unheld.iter().zip(keys) {
        assert!(line.starts_with(key), "{line}");
    }
}
