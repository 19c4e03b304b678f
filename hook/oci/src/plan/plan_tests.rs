//! The plans of containers.
//! Touches: its arguments; the recorded plans in `snapshots/`.

use super::*;
use crate::request::hook_slices::HookSlice;
use crate::request::{spec, state};
use gpuslice_config::slice::Pressure;
use gpuslice_config::slice::thresholds::Thresholds;
use gpuslice_host::machine::{devices, policy};

#[path = "fence_tests.rs"]
mod fence;
#[path = "foreign_tests.rs"]
mod foreign;
#[path = "others_tests.rs"]
mod others;
#[path = "pods_tests.rs"]
mod pods;

const MACHINE: &str = r#"{"version":1,"devices":[
  {"uuid":"GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":0,"name":"Card","memory":25769803776,"integrated":false},
  {"uuid":"GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":1,"name":"Card","memory":25769803776,"integrated":false}]}"#;

const SPARK: &str = r#"{"version":1,"devices":[
  {"uuid":"GPU-b10aaaaa-4444-4555-8666-777788880000","index":0,"name":"NVIDIA GB10","memory":130663165952,"integrated":true}]}"#;

const MIG: &str = r#"{"version":1,"devices":[
  {"uuid":"GPU-3b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":0,"name":"H200","memory":150754820096,"mig":[
    {"uuid":"MIG-4b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","memory":75161927680},
    {"uuid":"MIG-5b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","memory":75161927680}]}]}"#;

const POD: &[(&str, &str)] = &[
    ("io.kubernetes.cri.container-name", "server"),
    ("io.kubernetes.cri.container-type", "container"),
    (
        "io.kubernetes.cri.sandbox-id",
        "0123456789abcdef0123456789abcdef",
    ),
    ("io.kubernetes.cri.sandbox-name", "web"),
    ("io.kubernetes.cri.sandbox-namespace", "team"),
];

struct Case {
    machine: &'static str,
    policy: &'static str,
    memory: Option<Bytes>,
    linux: serde_json::Value,
    env: &'static [&'static str],
    hooks: serde_json::Value,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            machine: MACHINE,
            policy: "",
            memory: None,
            linux: serde_json::Value::Null,
            env: &["GPUSLICE_CONFIG=/evil", "NVIDIA_VISIBLE_DEVICES=all"],
            hooks: serde_json::Value::Null,
        }
    }
}

impl Case {
    fn decide(&self, annotations: &[(&str, &str)]) -> Result<Decision, PlanError> {
        let annotations: Annotations = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let spec = serde_json::json!({
            "root": {"path": "rootfs"},
            "annotations": annotations,
            "process": {"env": self.env},
            "linux": self.linux,
            "hooks": self.hooks,
            "mounts": [{"destination": "/models", "type": "bind", "source": "/srv/models"}],
        });
        let request = SliceRequest {
            memory: self.memory,
            ..SliceRequest::default()
        };
        let own = HookSlice {
            request,
            ..HookSlice::default()
        };
        decide(&PlanInput {
            state: &state::parse(br#"{"id":"c1","pid":4711,"bundle":"/b"}"#).unwrap(),
            spec: &spec::parse(spec.to_string().as_bytes()).unwrap(),
            policy: &policy::parse(self.policy).unwrap(),
            devices: &devices::parse(self.machine.as_bytes()).unwrap(),
            paths: &HostPaths::default(),
            own: &own,
        })
    }

    fn plan(&self, annotations: &[(&str, &str)]) -> ContainerPlan {
        match self.decide(annotations) {
            Ok(Decision::Slice(plan)) => *plan,
            other => panic!("{other:?}"),
        }
    }

    fn refused(&self, annotations: &[(&str, &str)]) -> String {
        self.decide(annotations).unwrap_err().to_string()
    }
}

fn budgets(plan: &ContainerPlan) -> Vec<(String, Bytes)> {
    let each = |budget: &DeviceBudget| (budget.uuid.to_string()[..5].to_owned(), budget.memory);
    plan.devices.iter().map(each).collect()
}

#[test]
fn the_plan_of_a_plain_container() {
    let plan = Case::default().plan(&[("gpuslice.io/memory", "8GiB")]);
    insta::assert_json_snapshot!(plan);
}

#[test]
fn the_plan_of_a_container_of_a_pod_on_unified_memory() {
    let case = Case {
        machine: SPARK,
        policy: "reserve = \"8GiB\"\n[page-cache]\nmounts = [\"/models\", \"/nowhere\"]",
        ..Case::default()
    };
    let mut annotations = POD.to_vec();
    annotations.extend([
        ("gpuslice.io/memory", "40GiB"),
        ("gpuslice.io/share", "pod"),
    ]);
    insta::assert_json_snapshot!(case.plan(&annotations));
}

#[test]
fn the_container_chooses_the_reaction_to_pressure_the_host_its_threshold() {
    let case = Case {
        machine: SPARK,
        policy: "thresholds = [\"full=7\", \"available=16GiB\", \"used=90\"]\n\
                 [default]\nmemory = \"4GiB\"\npressure = \"release\"",
        ..Case::default()
    };
    let slice = |annotations: &[(&str, &str)]| {
        let plan = case.plan(annotations);
        let text = &plan.files.first().unwrap().text;
        slice::parse(text.as_bytes()).unwrap()
    };
    let asked = [
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/pressure", "release"),
    ];
    let (asked, not, by_default) = (slice(&asked), slice(&asked[..1]), slice(&[]));
    assert_eq!(asked.pressure, Pressure::Release);
    assert_eq!(not.pressure, Pressure::Refuse);
    assert_eq!(by_default.pressure, Pressure::Release);
    let expected = Thresholds {
        full: Some(7),
        available: Some(Bytes::gib(16)),
        used: Some(90),
        ..Thresholds::default()
    };
    for slice in [asked, not, by_default] {
        assert_eq!(slice.thresholds, expected);
    }
}

#[test]
fn a_named_gpu_has_its_own_budget_and_others_may_have_none() {
    let case = Case::default();
    let both = case.plan(&[
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/memory.1", "2GiB"),
    ]);
    let expected = [("GPU-1", Bytes::gib(8)), ("GPU-2", Bytes::gib(2))];
    let owned = |list: &[(&str, Bytes)]| -> Vec<(String, Bytes)> {
        list.iter()
            .map(|(uuid, memory)| ((*uuid).to_owned(), *memory))
            .collect()
    };
    assert_eq!(budgets(&both), owned(&expected));
    let one = case.plan(&[("gpuslice.io/memory.1", "2GiB")]);
    assert_eq!(budgets(&one), owned(&expected[1..]));
    let mig = Case {
        machine: MIG,
        ..Case::default()
    };
    let halves = [("MIG-4", Bytes::gib(8)), ("MIG-5", Bytes::gib(8))];
    assert_eq!(
        budgets(&mig.plan(&[("gpuslice.io/memory.0", "8GiB")])),
        owned(&halves)
    );
    let uuid = "gpuslice.io/memory.MIG-5b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
    assert_eq!(budgets(&mig.plan(&[(uuid, "8GiB")])), owned(&halves[1..]));
}

#[test]
fn who_asks_for_nothing_is_left_alone_or_has_the_default_or_is_refused() {
    let case = |policy| Case {
        policy,
        ..Case::default()
    };
    assert_eq!(
        case("").decide(&[]),
        Ok(Decision::Nothing("it asks for no slice"))
    );
    let default = case("[default]\nmemory = \"4GiB\"").plan(&[]);
    assert_eq!(default.devices[0].memory, Bytes::gib(4));
    assert_eq!(
        case("deny-unannotated = true").decide(&[]),
        Err(PlanError::Unannotated)
    );
    // An image must not escape the limit by annotations that name only other containers.
    let mut sidecar = POD.to_vec();
    sidecar.extend([
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/containers", "other"),
    ]);
    assert_eq!(
        case("deny-unannotated = true").decide(&sidecar),
        Err(PlanError::Unannotated)
    );
    assert_eq!(
        case("").decide(&sidecar),
        Ok(Decision::Nothing("it asks for no slice"))
    );
}

#[test]
fn no_annotation_gives_more_than_the_policy() {
    let case = Case {
        policy: "devices = [0]\n[maximum]\ncontainer = \"8GiB\"\n[namespaces.team]\ncontainer = \"88GiB\"",
        ..Case::default()
    };
    let mut annotations = POD.to_vec();
    annotations.push(("gpuslice.io/memory", "88GiB"));
    assert_eq!(
        case.refused(&annotations),
        "88.00 GiB is more than this host's policy allows a container to have of a GPU (8.00 GiB)"
    );
    assert_eq!(
        case.refused(&[("gpuslice.io/memory.1", "1GiB")]),
        "this host's policy gives no slices of GPU 1"
    );
    assert_eq!(
        case.refused(&[("gpuslice.io/memory.7", "1GiB")]),
        "there is no GPU 7 (this host has GPUs 0, 1; see gpuslice devices)"
    );
    assert_eq!(
        budgets(&case.plan(&[("gpuslice.io/memory", "1GiB")])).len(),
        1
    );
}

#[test]
fn a_policy_for_absent_gpus_is_told_from_a_host_without_gpus() {
    let said = |machine, policy| {
        let case = Case {
            machine,
            policy,
            ..Case::default()
        };
        case.refused(&[("gpuslice.io/memory", "1GiB")])
    };
    assert_eq!(
        said(MACHINE, "devices = [3]"),
        "this host's policy slices none of the container's GPUs (this host has GPUs 0, 1; see \
         devices in config.toml)"
    );
    assert_eq!(
        said(r#"{"version":1,"devices":[]}"#, ""),
        "this host has no GPU"
    );
}

#[test]
fn one_gpu_that_is_named_twice_has_one_size() {
    let case = Case::default();
    let uuid = "gpuslice.io/memory.GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
    assert_eq!(
        case.refused(&[("gpuslice.io/memory.0", "8GiB"), (uuid, "4GiB")]),
        "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4 is asked for twice: gpuslice.io/memory.0 says 8.00 GiB, \
         gpuslice.io/memory.GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4 says 4.00 GiB"
    );
    let same = case.plan(&[("gpuslice.io/memory.0", "8GiB"), (uuid, "8GiB")]);
    assert_eq!(budgets(&same), [("GPU-1".to_owned(), Bytes::gib(8))]);
    // The container's own size overrides its pod's, however each names the GPU.
    let mut pod = POD.to_vec();
    pod.push((uuid, "8GiB"));
    pod.push(("gpuslice.io/container.server.memory.0", "2GiB"));
    assert_eq!(
        budgets(&case.plan(&pod)),
        [("GPU-1".to_owned(), Bytes::gib(2))]
    );
    let mig = Case {
        machine: MIG,
        ..Case::default()
    };
    let half = "gpuslice.io/memory.MIG-4b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
    let said = mig.refused(&[("gpuslice.io/memory.0", "8GiB"), (half, "4GiB")]);
    assert!(said.contains("is asked for twice"), "{said}");
}

#[test]
fn a_slice_without_an_index_counts_on_the_gpus_of_the_container() {
    let case = Case {
        machine: r#"{"version":1,"devices":[
  {"uuid":"GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":0,"minor":0,"name":"Card","memory":25769803776},
  {"uuid":"GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":1,"minor":1,"name":"Card","memory":25769803776}]}"#,
        linux: serde_json::json!({"devices": [{"path": "/dev/nvidia1", "type": "c", "major": 195, "minor": 1}]}),
        ..Case::default()
    };
    let memory = ("gpuslice.io/memory", "8GiB");
    let plan = case.plan(&[memory]);
    assert_eq!(budgets(&plan), [("GPU-2".to_owned(), Bytes::gib(8))]);
    assert_eq!(plan.note, None);
    // The library limits all of them.
    assert!(
        plan.files[0]
            .text
            .contains("\"memory\": 8589934592,\n  \"headroom\"")
    );
    // A size for a named GPU counts on that GPU.
    let named = case.plan(&[memory, ("gpuslice.io/memory.0", "2GiB")]);
    assert_eq!(budgets(&named).len(), 2);
    // For a pod's slice it is unknown which container is given which GPU.
    let mut pod = POD.to_vec();
    pod.extend([memory, ("gpuslice.io/share", "pod")]);
    assert_eq!(budgets(&case.plan(&pod)).len(), 2);
    let untold = Case {
        linux: serde_json::Value::Null,
        ..case
    };
    let plan = untold.plan(&[memory]);
    assert_eq!(budgets(&plan).len(), 2);
    assert_eq!(
        plan.note.unwrap(),
        "its memory counts on 2 GPUs, because the container's configuration does not say which GPUs \
         it is given"
    );
}

#[test]
fn a_cdi_size_takes_options_and_refuses_an_annotation_of_another_size() {
    let case = Case {
        memory: Some(Bytes::gib(2)),
        ..Case::default()
    };
    for (key, said) in [
        (
            "gpuslice.io/memory",
            "annotation gpuslice.io/memory says 8.00 GiB",
        ),
        (
            "gpuslice.io/memory.0",
            "annotation gpuslice.io/memory.0 says 8.00 GiB",
        ),
    ] {
        let refused = case.refused(&[(key, "8GiB"), ("gpuslice.io/total", "device")]);
        assert!(
            refused.contains(said) && refused.contains("2.00 GiB"),
            "{refused}"
        );
    }
    let same = case.plan(&[("gpuslice.io/memory", "2048MiB")]);
    assert_eq!(same.devices[0].memory, Bytes::gib(2));
    assert_eq!(case.plan(&[]).devices[0].memory, Bytes::gib(2));
    // The size is given, so an option needs no further size.
    let option = case.plan(&[("gpuslice.io/total", "device")]);
    assert_eq!(option.devices[0].memory, Bytes::gib(2));
    assert!(option.files[0].text.contains("\"total\": \"device\""));
}

#[test]
fn headroom_that_leaves_nothing_is_refused_before_anything_is_done() {
    let annotations = [
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/headroom", "8GiB"),
    ];
    let said = Case::default().refused(&annotations);
    assert!(
        said.contains("\"headroom\" is not less than \"memory\""),
        "{said}"
    );
}
