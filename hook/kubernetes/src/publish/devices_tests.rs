//! The devices of machines with discrete, integrated and divided GPUs.

use super::*;
use gpuslice_host::machine::devices;

const CARD: &str = r#"{"version":1,"devices":[{"uuid":"GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4",
    "index":0,"name":"NVIDIA GeForce RTX 3090","memory":25438126080,"minor":0}]}"#;

fn facts(list: &str) -> Facts {
    Facts {
        devices: devices::parse(list.as_bytes()).unwrap(),
        policy: Policy::default(),
        host_memory: Some(Bytes::gib(120)),
        driver: Some("580.65.06\n".to_owned()),
    }
}

fn only(facts: &Facts) -> serde_json::Value {
    let devices = devices(facts, true);
    assert_eq!(devices.len(), 1);
    serde_json::to_value(&devices[0]).unwrap()
}

#[test]
fn a_card_is_a_device_with_its_memory_in_whole_mebibytes() {
    let expected = serde_json::json!({
        "name": "gpu-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4",
        "allowMultipleAllocations": true,
        "attributes": {
            "uuid": {"string": "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4"},
            "type": {"string": "gpu"},
            "index": {"int": 0},
            "integrated": {"bool": false},
            "productName": {"string": "NVIDIA GeForce RTX 3090"},
            "driverVersion": {"version": "580.65.6"},
            "fence": {"string": "preload"},
        },
        "capacity": {"memory": {
            "value": "24259Mi",
            "requestPolicy": {
                "default": "24259Mi",
                "validRange": {"min": "256Mi", "step": "1Mi"},
            },
        }},
    });
    assert_eq!(only(&facts(CARD)), expected);
}

#[test]
fn unified_memory_is_the_hosts_less_the_reserve_and_counts_twice() {
    let list = CARD
        .replace("\"minor\":0", "\"integrated\":true")
        .replace("25438126080", &Bytes::gib(120).get().to_string());
    let mut facts = facts(&list);
    facts.policy.reserve = Some(Bytes::gib(10));
    let device = only(&facts);
    assert_eq!(device["capacity"]["memory"]["value"], "110Gi");
    let mapping = serde_json::json!({"memory": {"capacityKey": "memory"}});
    assert_eq!(device["nodeAllocatableResourceMappings"], mapping);
    facts.host_memory = None;
    assert!(devices(&facts, true).is_empty());
}

#[test]
fn the_instances_of_a_divided_gpu_are_devices_and_the_gpu_is_none() {
    let mig = |digit: &str| {
        let uuid = format!("MIG-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c{digit}");
        format!(r#"{{"uuid":"{uuid}","memory":10468982784}}"#)
    };
    let list = CARD.replace(
        "\"minor\":0",
        &format!("\"mig\":[{},{}]", mig("5"), mig("6")),
    );
    let devices = devices(&facts(&list), true);
    let names: Vec<&str> = devices.iter().map(|one| one.name.as_str()).collect();
    let expected = ["5", "6"].map(|one| format!("mig-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c{one}"));
    assert_eq!(names, expected);
    let attributes = devices[0].attributes.as_ref().unwrap();
    let parent = attributes["parentUUID"].string.as_deref();
    assert_eq!(parent, Some("GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4"));
    assert_eq!(attributes["type"].string.as_deref(), Some("mig"));
}

#[test]
fn the_policy_bounds_the_shares_and_selects_the_gpus() {
    let mut facts = facts(CARD);
    facts.policy.maximum.container = Some(Bytes::gib(8));
    let policy = &only(&facts)["capacity"]["memory"]["requestPolicy"];
    assert_eq!(policy["default"], "8Gi");
    assert_eq!(policy["validRange"]["max"], "8Gi");
    facts.policy.devices = Some(vec!["1".parse().unwrap()]);
    assert!(devices(&facts, true).is_empty());
}

#[test]
fn a_device_smaller_than_one_share_is_not_published() {
    let list = CARD.replace("25438126080", &Bytes::mib(256).get().to_string());
    assert!(devices(&facts(&list), true).is_empty());
}

#[test]
fn a_long_name_is_cut_and_a_strange_version_left_out() {
    let mut facts = facts(&CARD.replace("NVIDIA GeForce RTX 3090", &"ü".repeat(60)));
    facts.driver = Some("580.65.06-beta".to_owned());
    let device = only(&facts);
    assert_eq!(
        device["attributes"]["productName"]["string"],
        "ü".repeat(32)
    );
    assert_eq!(device["attributes"].get("driverVersion"), None);
}

proptest::proptest! {
    #[test]
    fn every_amount_obeys_the_rules_of_the_api_server(
        memory in 0_u64..1 << 45,
        host in 0_u64..1 << 45,
        most in proptest::option::of(1_u64 << 20..1 << 45),
        integrated: bool,
    ) {
        let list = CARD
            .replace("25438126080", &memory.to_string())
            .replace("\"minor\":0", &format!("\"integrated\":{integrated}"));
        let mut facts = facts(&list);
        facts.host_memory = Some(Bytes::new(host));
        facts.policy.maximum.container = most.map(Bytes::new);
        for device in devices(&facts, true) {
            let capacity = &device.capacity.unwrap()["memory"];
            let read = |text| quantity::bytes(text).unwrap().get();
            let policy = capacity.request_policy.as_ref().unwrap();
            let range = policy.valid_range.as_ref().unwrap();
            let (value, default) = (read(&capacity.value), read(policy.default.as_ref().unwrap()));
            let (min, step) = (read(&range.min), read(range.step.as_ref().unwrap()));
            let max = range.max.as_ref().map_or(value, read);
            proptest::prop_assert!(value <= memory && min.saturating_add(step) <= value);
            proptest::prop_assert!(min <= default && default <= max && max <= value);
            proptest::prop_assert!([value, default, max].iter().all(|one| one.is_multiple_of(step)));
        }
    }
}
