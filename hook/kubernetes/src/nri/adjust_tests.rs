//! Containers as engines describe them, and what is added to each.

use super::*;
use crate::nri::api::{CdiDevice, DeviceRule, LinuxContainer, LinuxDevice, LinuxResources, Mount};
use gpuslice_host::machine::policy;

fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn pod(annotations: &[(&str, &str)]) -> PodSandbox {
    PodSandbox {
        annotations: map(annotations),
        ..PodSandbox::default()
    }
}

fn container() -> Container {
    Container {
        name: "main".to_owned(),
        annotations: map(&[("io.kubernetes.cri.container-name", "main")]),
        ..Container::default()
    }
}

fn with(policy: &str, pod: &PodSandbox, container: &Container) -> Option<Adjustment> {
    let policy = policy::parse(policy).unwrap();
    let host = Adjusting {
        policy: Some(&policy),
        hook: Path::new("/usr/bin/gpuslice-hook"),
    };
    adjust(pod, container, &host)
}

#[test]
fn an_annotation_of_the_pod_gives_its_containers_hook_and_annotation() {
    let pod = pod(&[("gpuslice.io/memory", "8GiB"), ("team", "a")]);
    let adjustment = with("", &pod, &container()).unwrap();
    assert_eq!(
        adjustment.annotations,
        map(&[("gpuslice.io/memory", "8GiB")])
    );
    let hooks = adjustment.hooks.unwrap();
    let [create, stop] = [&hooks.create_runtime, &hooks.poststop].map(|hooks| &hooks[0]);
    assert_eq!(create.path, "/usr/bin/gpuslice-hook");
    assert_eq!(create.args, ["gpuslice-hook", "createRuntime"]);
    assert_eq!(stop.args, ["gpuslice-hook", "poststop"]);
    assert_eq!(create.env, [ENVIRONMENT]);
    assert!(hooks.prestart.is_empty());
}

#[test]
fn a_pod_that_asks_for_nothing_is_left_as_it_is() {
    let pod = pod(&[("gpu-memory", "8192"), ("team", "a")]);
    assert_eq!(with("", &pod, &container()), None);
}

#[test]
fn another_systems_pod_counts_where_the_policy_says_so() {
    let fraction = pod(&[
        ("gpu-fraction", "0.5"),
        ("gpu-fraction-container-name", "main"),
    ]);
    let adjustment = with("[dialects]\nkai = true", &fraction, &container()).unwrap();
    assert_eq!(adjustment.annotations, fraction.annotations);
    assert!(adjustment.hooks.is_some());
    let limited = Container {
        env: vec!["CUDA_DEVICE_MEMORY_LIMIT_0=3000m".to_owned()],
        ..container()
    };
    let none = pod(&[]);
    assert!(with("[dialects]\nhami = true", &none, &limited).is_some());
    assert_eq!(with("[dialects]\nkai = true", &none, &limited), None);
}

#[test]
fn a_container_of_the_runtime_class_gets_nothing_twice() {
    let pod = pod(&[("gpuslice.io/memory", "8GiB")]);
    let mut container = container();
    container.hooks = Some(hooks(Path::new("/opt/gpuslice-hook")));
    let adjustment = with("", &pod, &container).unwrap();
    assert_eq!(adjustment.hooks, None);
    // The handler of the class has passed the annotation on.
    container.annotations = map(&[("gpuslice.io/memory", "8GiB")]);
    assert_eq!(with("", &pod, &container), None);
}

#[test]
fn a_containers_own_annotation_is_not_replaced_by_its_pods() {
    let pod = pod(&[
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/headroom", "1GiB"),
    ]);
    let mut container = container();
    container.annotations = map(&[("gpuslice.io/memory", "2GiB")]);
    let adjustment = with("", &pod, &container).unwrap();
    assert_eq!(
        adjustment.annotations,
        map(&[("gpuslice.io/headroom", "1GiB")])
    );
}

#[test]
fn a_policy_for_all_containers_reaches_those_with_a_gpu_and_no_others() {
    let none = pod(&[]);
    let gpus = [
        Container {
            linux: Some(LinuxContainer {
                devices: vec![LinuxDevice {
                    path: "/dev/nvidia0".to_owned(),
                }],
                resources: None,
            }),
            ..container()
        },
        Container {
            linux: Some(LinuxContainer {
                devices: vec![LinuxDevice {
                    path: "/dev/nvmap".to_owned(),
                }],
                resources: None,
            }),
            ..container()
        },
        // NVIDIA's device plugin can name GPUs by mounts.
        Container {
            mounts: vec![Mount {
                destination: "/var/run/nvidia-container-devices/0".to_owned(),
            }],
            ..container()
        },
        // NVIDIA's runtime reads it where the engine does not.
        Container {
            annotations: map(&[("cdi.k8s.io/plugin", "nvidia.com/gpu=0")]),
            ..container()
        },
        Container {
            cdi_devices: vec![CdiDevice {
                name: "nvidia.com/gpu=all".to_owned(),
            }],
            ..container()
        },
        Container {
            env: vec!["NVIDIA_VISIBLE_DEVICES=all".to_owned()],
            ..container()
        },
        // An image from before that variable.
        Container {
            env: vec!["CUDA_VERSION=9.0".to_owned()],
            ..container()
        },
    ];
    for policy in [
        "[default]\nmemory = \"4GiB\"",
        "[maximum]\ncontainer = \"4GiB\"",
        "deny-unannotated = true",
    ] {
        for container in &gpus {
            assert!(
                with(policy, &none, container).is_some(),
                "{policy}: {container:?}"
            );
        }
        for variable in [
            "NVIDIA_VISIBLE_DEVICES=void",
            "NVIDIA_REQUIRE_CUDA=cuda>=9.0",
        ] {
            let void = Container {
                env: vec!["CUDA_VERSION=9.0".to_owned(), variable.to_owned()],
                ..container()
            };
            assert_eq!(with(policy, &none, &void), None);
        }
        assert_eq!(with(policy, &none, &container()), None);
    }
    assert_eq!(with("", &none, &gpus[0]), None);
}

/// The rule that allows a GPU; -1: all of them.
fn gpu(minor: i64) -> DeviceRule {
    DeviceRule {
        allow: true,
        kind: "c".to_owned(),
        major: Some(Number { value: 195 }),
        minor: Some(Number { value: minor }),
    }
}

/// A node's network daemon: engines give a privileged container every device of the host.
fn privileged() -> Container {
    let node = |path: &str| LinuxDevice {
        path: path.to_owned(),
    };
    let every = DeviceRule {
        allow: true,
        ..DeviceRule::default()
    };
    Container {
        linux: Some(LinuxContainer {
            devices: ["/dev/null", "/dev/nvidia0", "/dev/nvidiactl"]
                .map(node)
                .into(),
            resources: Some(LinuxResources {
                devices: vec![every],
            }),
        }),
        ..container()
    }
}

#[test]
fn a_privileged_container_that_asks_for_no_gpu_starts_as_before() {
    let none = pod(&[]);
    for policy in [
        "[default]\nmemory = \"4GiB\"",
        "[maximum]\ncontainer = \"4GiB\"",
        "deny-unannotated = true",
    ] {
        assert_eq!(with(policy, &none, &privileged()), None, "{policy}");
        let wants = Container {
            env: vec!["NVIDIA_VISIBLE_DEVICES=all".to_owned()],
            ..privileged()
        };
        assert!(with(policy, &none, &wants).is_some(), "{policy}");
        // A GPU by CDI: the engine allows its device, and sends no names of CDI devices.
        let mut given = privileged();
        given.env = vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()];
        let linux = given.linux.as_mut().unwrap();
        linux.resources.as_mut().unwrap().devices.push(gpu(0));
        assert!(with(policy, &none, &given).is_some(), "{policy}");
        // A GPU by a device plugin, on containerd.
        let mut twice = privileged();
        let nodes = &mut twice.linux.as_mut().unwrap().devices;
        nodes.push(nodes[1].clone());
        assert!(with(policy, &none, &twice).is_some(), "{policy}");
        // The engine gives privileged containers no devices of the host.
        let mut alone = privileged();
        alone.linux.as_mut().unwrap().devices.remove(0);
        assert!(with(policy, &none, &alone).is_some(), "{policy}");
        // A rule about some devices does not make it privileged.
        let mut one = privileged();
        let linux = one.linux.as_mut().unwrap();
        linux.resources.as_mut().unwrap().devices = vec![gpu(-1)];
        assert!(with(policy, &none, &one).is_some(), "{policy}");
    }
    let asks = pod(&[("gpuslice.io/memory", "8GiB")]);
    assert!(with("", &asks, &privileged()).is_some());
    let policy = policy::parse("deny-unannotated = true").unwrap();
    let host = Adjusting {
        policy: Some(&policy),
        hook: Path::new("/usr/bin/gpuslice-hook"),
    };
    assert!(host.leaves_privileged(&none, &privileged()));
    assert!(!host.leaves_privileged(&none, &container()));
}

#[test]
fn a_namespace_that_the_policy_exempts_is_ruled_by_its_requests_alone() {
    let policy = "deny-unannotated = true\nexempt-namespaces = [\"gpu-operator\"]";
    let gpu = Container {
        env: vec!["NVIDIA_VISIBLE_DEVICES=all".to_owned()],
        ..container()
    };
    let of = |namespace: &str, annotations: &[(&str, &str)]| PodSandbox {
        namespace: namespace.to_owned(),
        ..pod(annotations)
    };
    assert_eq!(with(policy, &of("gpu-operator", &[]), &gpu), None);
    assert!(with(policy, &of("team", &[]), &gpu).is_some());
    let asks = [("gpuslice.io/memory", "8GiB")];
    assert!(with(policy, &of("gpu-operator", &asks), &gpu).is_some());
}

#[test]
fn without_a_usable_policy_the_hook_decides_about_all_that_may_ask() {
    let host = Adjusting {
        policy: None,
        hook: Path::new("/usr/bin/gpuslice-hook"),
    };
    let kai = pod(&[("gpu-memory", "8192")]);
    assert!(adjust(&kai, &container(), &host).is_some());
    assert!(adjust(&pod(&[("gpuslice.io/memory", "1GiB")]), &container(), &host).is_some());
    assert_eq!(adjust(&pod(&[]), &container(), &host), None);
}
