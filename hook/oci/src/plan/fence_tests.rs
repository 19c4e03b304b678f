//! The fence in the plans of containers: the driver's limit, or the library's.
//! Touches: its arguments.

use super::*;
use gpuslice_config::slice::DriverLimit;

const R615: &str = r#"{"version":1,"driver_limit":"dmem","devices":[
  {"uuid":"GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4","index":0,"name":"Card","memory":25769803776,"driver_limits":true}]}"#;

#[test]
fn the_policy_chooses_the_fence_or_the_container_does() {
    let memory = ("gpuslice.io/memory", "8GiB");
    let fence = |policy, chosen: Option<&'static str>| {
        let machine = R615;
        let case = Case {
            machine,
            policy,
            ..Case::default()
        };
        let chosen = chosen.map(|chosen| ("gpuslice.io/fence", chosen));
        let annotations: Vec<_> = [memory].into_iter().chain(chosen).collect();
        case.plan(&annotations).fence
    };
    assert_eq!(fence("", None), Fence::Auto);
    assert_eq!(fence("", Some("driver")), Fence::Driver);
    assert_eq!(fence("", Some("preload")), Fence::Preload);
    assert_eq!(fence("fence = \"driver\"", Some("preload")), Fence::Driver);
    assert_eq!(fence("fence = \"preload\"", Some("auto")), Fence::Preload);
    assert_eq!(fence("driver-limits = \"off\"", None), Fence::Preload);
}

#[test]
fn a_container_that_the_driver_cannot_hold_is_refused_if_that_is_asked_for() {
    let asks = [
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/fence", "driver"),
    ];
    let older = R615.replace("true", "false");
    for (machine, why) in [
        (&*older, "its driver cannot limit cgroups"),
        (SPARK, "it shares the host's memory"),
        (MIG, "it is a MIG instance"),
    ] {
        let machine = machine.to_owned().leak();
        let case = Case {
            machine,
            ..Case::default()
        };
        let refused = case.refused(&asks);
        assert!(refused.contains(why), "{refused}");
    }
    let here = Case {
        machine: R615,
        policy: "fence = \"preload\"",
        ..Case::default()
    };
    assert!(here.refused(&asks).contains("this host's policy"));
    let here = Case { policy: "", ..here };
    let percent = [&asks[..], &[("gpuslice.io/total", "device")]].concat();
    assert!(
        here.refused(&percent)
            .contains("instead of the total that the container requests")
    );
    let pod = [POD, &asks, &[("gpuslice.io/share", "pod")]].concat();
    assert!(here.refused(&pod).contains("a pod's containers share"));
    let wrong = [asks[0], ("gpuslice.io/fence", "kernel")];
    let refused = here.refused(&wrong);
    assert!(
        refused.contains("not one of auto, driver, preload"),
        "{refused}"
    );
}

#[test]
fn a_slice_file_names_the_cgroup_and_the_way_of_the_driver() {
    let case = Case {
        machine: R615,
        ..Case::default()
    };
    let mut plan = case.plan(&[("gpuslice.io/memory", "8GiB")]);
    let uuid = plan.devices[0].uuid;
    let before = plan.files[0].text.clone();
    plan.is_limited_by_driver(&"/x".repeat(128), &[uuid], DriverLimit::Misc);
    assert_eq!(plan.files[0].text, before, "the path is too long");
    plan.is_limited_by_driver("/docker/c1", &[uuid], DriverLimit::Dmem);
    let slice = slice::parse(plan.files[0].text.as_bytes()).unwrap();
    let cgroup = slice.driver_cgroup.unwrap();
    let listed = slice.devices().next().unwrap().driver_limit;
    assert_eq!(
        (cgroup.as_str(), listed),
        ("/docker/c1", Some(DriverLimit::Dmem))
    );
    let mut again = case.plan(&[("gpuslice.io/memory", "8GiB")]);
    again.keeps_driver_limits(&slice);
    assert_eq!(again.files[0].text, plan.files[0].text);
    // Containers that share a slice: the library enforces it.
    let pod = [
        POD,
        &[("gpuslice.io/memory", "8GiB"), ("gpuslice.io/share", "pod")],
    ]
    .concat();
    let mut shared = case.plan(&pod);
    shared.is_limited_by_driver("/docker/c1", &[uuid], DriverLimit::Dmem);
    let slice = slice::parse(shared.files[0].text.as_bytes()).unwrap();
    let listed = slice.devices().next().unwrap();
    assert_eq!((listed.driver_limit, listed.driver_backstop), (None, true));
    let mut again = case.plan(&pod);
    again.keeps_driver_limits(&slice);
    assert_eq!(again.files[0].text, shared.files[0].text);
}
