//! The taints of devices under pressure, and of devices that are gone.

use super::*;
use crate::publish::devices::{Facts, devices};
use crate::publish::slices;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::{devices as list, policy::Policy};
use k8s_openapi::api::core::v1::Node;

/// A machine with a card and a GPU that shares the host's memory.
fn facts() -> Facts {
    let text = r#"{"version":1,"devices":[
        {"uuid":"GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":0,"name":"Card","memory":25438126080},
        {"uuid":"GPU-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":1,"name":"GB10",
         "memory":128849018880,"integrated":true}]}"#;
    Facts {
        devices: list::parse(text.as_bytes()).unwrap(),
        policy: Policy::default(),
        host_memory: Some(Bytes::gib(120)),
        driver: None,
    }
}

const CARD: &str = "gpu-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
const SHARED: &str = "gpu-2b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";

/// The taints, as `device key=value`.
fn taints(devices: &[Device]) -> Vec<String> {
    let of = |device: &Device| {
        let taints = device.taints.clone().unwrap_or_default().into_iter();
        let name = device.name.clone();
        let line = move |taint: DeviceTaint| {
            assert_eq!(taint.effect, "NoSchedule");
            let value = taint.value.unwrap_or_default();
            format!("{} {}={value}", &name[..5], taint.key)
        };
        taints.map(line).collect::<Vec<String>>()
    };
    devices.iter().flat_map(of).collect()
}

#[test]
fn a_short_host_taints_the_devices_that_share_its_memory_alone() {
    let facts = facts();
    let with = |causes: &[Cause]| {
        let mut devices = devices(&facts, false);
        pressed(
            &mut devices,
            &facts.devices,
            &causes.iter().cloned().collect(),
        );
        taints(&devices)
    };
    assert!(with(&[]).is_empty());
    let host = "gpu-2 gpuslice.io/pressure=host-memory".to_owned();
    assert_eq!(with(&[Cause::Host]), std::slice::from_ref(&host));
    let beyond = "gpu-1 gpuslice.io/pressure=memory-outside-slices".to_owned();
    let causes = [Cause::Beyond(CARD.to_owned()), Cause::Host];
    assert_eq!(with(&causes), [beyond, host]);
}

fn published(devices: &[Device]) -> Vec<ResourceSlice> {
    slices::slices(&Node::default(), devices)
}

#[test]
fn a_device_that_is_gone_is_tainted_while_a_claim_has_a_part_of_it() {
    let (all, none) = (
        facts(),
        list::parse(br#"{"version":1,"devices":[]}"#).unwrap(),
    );
    let found = published(&devices(&all, false));
    let (mut gone, start) = (Gone::default(), Instant::now());
    let claimed = BTreeSet::from([SHARED.to_owned()]);
    assert!(
        gone.devices(&found, &all.devices, &claimed, start)
            .is_empty()
    );
    let now = gone.devices(&found, &none, &claimed, start);
    let both = ["gpu-1", "gpu-2"].map(|gpu| format!("{gpu} gpuslice.io/unhealthy=not-listed"));
    assert_eq!(taints(&now), both);
    assert_eq!(
        now[0].capacity,
        found[0].spec.devices.as_ref().unwrap()[0].capacity
    );
    let found = published(&now);
    let later = start + Duration::from_secs(600);
    let left = gone.devices(&found, &none, &claimed, later);
    assert_eq!(taints(&left), both[1..]);
    // It is back.
    assert!(
        gone.devices(&found, &all.devices, &claimed, later)
            .is_empty()
    );
    assert_eq!(
        gone.devices(&found, &none, &BTreeSet::new(), later).len(),
        2
    );
}

#[test]
fn a_taint_keeps_the_time_that_the_api_server_has_given_it() {
    let all = facts();
    let mut first = devices(&all, false);
    pressed(&mut first, &all.devices, &BTreeSet::from([Cause::Host]));
    let mut answered = first.clone();
    let time: DeviceTaint = serde_json::from_value(serde_json::json!({
        "key": "k", "effect": "NoSchedule", "timeAdded": "2026-11-25T10:00:00Z",
    }))
    .unwrap();
    answered[1].taints.as_mut().unwrap()[0].time_added = time.time_added.clone();
    keep_times(&mut first, &published(&answered));
    assert_eq!(first, answered);
    first[1].taints.as_mut().unwrap()[0].value = Some("other".to_owned());
    keep_times(&mut first, &published(&answered));
    assert_eq!(first[1].taints.as_ref().unwrap()[0].time_added, None);
}
