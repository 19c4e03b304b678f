//! Configurations as engines write them, and the GPUs that each gives.

use super::*;
use crate::request::spec;
use gpuslice_host::machine::devices;
use serde_json::{Value, json};

fn machine() -> Devices {
    let device = |index: u32, minor: u32| {
        json!({"uuid": format!("GPU-{index}b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4"), "index": index,
               "name": "Card", "memory": 24u64 << 30, "minor": minor})
    };
    // The driver's minor numbers need not be in nvidia-smi's order.
    let list = json!({"version": 1, "devices": [device(0, 1), device(1, 0), device(2, 2)]});
    devices::parse(list.to_string().as_bytes()).unwrap()
}

fn given(config: &Value) -> Option<Vec<u32>> {
    let machine = machine();
    let spec = spec::parse(config.to_string().as_bytes()).unwrap();
    let index = |uuid: DeviceUuid| {
        let device = machine.devices.iter().find(|device| device.uuid == uuid);
        device.unwrap().index
    };
    Some(of(&spec, &machine)?.into_iter().map(index).collect())
}

fn node(path: &str, minor: i64) -> Value {
    json!({"path": path, "type": "c", "major": 195, "minor": minor})
}

#[test]
fn the_nodes_of_cdi_name_the_gpus_by_the_kernels_numbers() {
    let deny = json!({"allow": false, "access": "rwm"});
    let config = json!({"linux": {
        "devices": [node("/dev/nvidia1", 1), node("/dev/nvidiactl", 255), node("/dev/renamed", 2),
                    {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 0}],
        "resources": {"devices": [deny, {"allow": true, "type": "c", "major": 195, "minor": 1, "access": "rw"}]},
    }});
    assert_eq!(given(&config), Some(vec![0, 2]));
}

#[test]
fn a_node_that_is_mounted_is_given_too() {
    let mount = json!({"destination": "/dev/nvidia0", "type": "bind", "source": "/dev/nvidia0"});
    let config = json!({"linux": {}, "mounts": [mount]});
    assert_eq!(given(&config), Some(vec![1]));
}

/// `ctr run --gpus` and older nerdctl name the GPU only in the arguments of NVIDIA's program.
#[test]
fn a_hook_of_containerd_that_brings_gpus_is_not_taken_for_no_gpu() {
    let deny = json!({"allow": false, "access": "rwm"});
    let of = |program: &str| {
        json!({
            "linux": {"resources": {"devices": [deny]}},
            "hooks": {"createRuntime": [{
                "path": "/usr/bin/containerd",
                "args": ["containerd", "oci-hook", "--", program, "--load-kmods", "configure"],
            }]},
        })
    };
    assert_eq!(given(&of("/usr/bin/nvidia-container-cli")), None);
    assert_eq!(given(&of("/usr/bin/other")), Some(Vec::new()));
}

#[test]
fn what_a_configuration_does_not_say_is_not_guessed() {
    let devices = json!([node("/dev/nvidia1", 1)]);
    let rule =
        |rule: Value| json!({"linux": {"devices": devices, "resources": {"devices": [rule]}}});
    let legacy = json!({"linux": {"devices": devices}, "hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}});
    let whole = json!({"linux": {"devices": devices}, "mounts": [{"destination": "/dev", "source": "/dev"}]});
    for (what, config) in [
        ("no GPU at all", json!({"linux": {}})),
        ("nothing of Linux", json!({})),
        (
            "nulls",
            json!({"linux": {"devices": null, "resources": null}, "hooks": null}),
        ),
        (
            "a GPU that is not listed",
            json!({"linux": {"devices": [node("/dev/nvidia7", 7)]}}),
        ),
        ("privileged", rule(json!({"allow": true, "access": "rwm"}))),
        (
            "every GPU",
            rule(json!({"allow": true, "type": "c", "major": 195, "access": "rw"})),
        ),
        (
            "every device, in numbers",
            rule(json!({"allow": true, "type": "c", "major": -1, "minor": -1})),
        ),
        ("the legacy hook", legacy),
        ("the host's /dev", whole),
    ] {
        assert_eq!(given(&config), None, "{what}");
    }
    // An unknown hook of NVIDIA's, and a device that may be a GPU of another kind.
    let deny = json!({"devices": [{"allow": false, "access": "rwm"}]});
    for more in [
        json!({"linux": {"resources": deny}, "hooks": {"createContainer": [{"path": "/usr/bin/nvidia-ctk"}]}}),
        json!({"linux": {"resources": deny, "devices": [{"path": "/dev/nvhost-gpu", "type": "c", "major": 508, "minor": 1}]}}),
        json!({"linux": {"resources": {"devices": [{"allow": false}, {"allow": true, "type": "c", "major": 195, "minor": 0}]}}}),
        json!({"linux": {"resources": deny}, "mounts": [{"destination": "/dev/dri", "source": "/dev/dri"}]}),
    ] {
        assert_eq!(given(&more), None, "{more}");
    }
    // The rule that runtimes add for every container.
    let mknod = rule(json!({"allow": true, "type": "c", "access": "m"}));
    assert_eq!(given(&mknod), Some(vec![0]));
}

#[test]
fn a_gpu_whose_device_file_the_container_may_create_is_given_too() {
    let with = |rule: Value| {
        json!({"linux": {"devices": [node("/dev/nvidia1", 1)],
               "resources": {"devices": [{"allow": false}, rule]}}})
    };
    let allow = |access: &str| json!({"allow": true, "type": "c", "major": 195, "minor": 0, "access": access});
    assert_eq!(given(&with(allow("rwm"))), Some(vec![0, 1]));
    assert_eq!(given(&with(allow("m"))), Some(vec![0]));
}

#[test]
fn a_container_that_can_open_no_gpu_is_given_none() {
    let deny = json!({"devices": [{"allow": false, "access": "rwm"}, {"allow": true, "type": "c", "major": 1, "minor": 5}]});
    let fuse = json!([{"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}]);
    let plain = json!({"linux": {"resources": deny, "devices": fuse}});
    assert_eq!(given(&plain), Some(vec![]));
    let legacy = |env: Value, mounts: Value| {
        json!({"linux": {"resources": deny}, "process": {"env": env}, "mounts": mounts,
               "hooks": {"prestart": [{"path": "/usr/bin/nvidia-container-runtime-hook"}]}})
    };
    let by_env = |env: &[&str]| given(&legacy(json!(env), json!([])));
    for none in ["void", "none", ""] {
        let own = format!("NVIDIA_VISIBLE_DEVICES={none}");
        assert_eq!(by_env(&["PATH=/bin", &own]), Some(vec![]), "{none}");
        assert_eq!(by_env(&[&own, "NVIDIA_VISIBLE_DEVICES=0"]), None);
    }
    assert_eq!(
        by_env(&["PATH=/bin"]),
        None,
        "an old image of CUDA wants all"
    );
    let volume =
        json!([{"destination": "/var/run/nvidia-container-devices/0", "source": "/dev/null"}]);
    assert_eq!(
        given(&legacy(json!(["NVIDIA_VISIBLE_DEVICES=void"]), volume)),
        None
    );
    // The variable has no effect where the configuration lists device nodes.
    let mut nodes = legacy(json!(["NVIDIA_VISIBLE_DEVICES=void"]), json!([]));
    nodes["linux"]["devices"] = json!([node("/dev/nvidia1", 1)]);
    assert_eq!(given(&nodes), Some(vec![0]));
}

#[test]
fn a_list_without_the_kernels_numbers_tells_nothing() {
    let list = br#"{"version":1,"devices":[{"uuid":"GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":0,"name":"Card","memory":1}]}"#;
    let old = devices::parse(list).unwrap();
    let config = json!({"linux": {"devices": [node("/dev/nvidia0", 0)]}});
    let spec = spec::parse(config.to_string().as_bytes()).unwrap();
    assert_eq!(of(&spec, &old), None);
}
