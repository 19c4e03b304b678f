//! The limit of a container is the same whether the driver or the library enforces it, by the hook and
//! by the wrapper, on machines of every kind, and every API reports it.

use super::driver_limits::{DMEM, MISC, kept, limited, machine, with_toolkit};
use gpuslice_containers::bundle::Oci;
use gpuslice_containers::check::Check;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::place;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left};
use serde_json::{Value, json};

/// Machines, what holds a slice there, and why it is not the driver.
const MACHINES: [(&str, &str, &str); 5] = [
    ("rtx3090", "preload", "its driver cannot limit cgroups"),
    (DMEM, "driver", "dmem"),
    (MISC, "driver", "misc"),
    ("h200-mig@615", "preload", "it is a MIG instance"),
    ("gb10@615", "preload", "it shares the host's memory"),
];

const SLEEPS: [&str; 2] = ["/usr/bin/sleep", "1000000"];
const NAME: &str = "limited";

/// The two ways to a slice: the hook in config.json, and the runtime that adds the hook.
fn ways(host: &Host) -> [Oci<'_>; 2] {
    [
        Oci::new(host, "runc", "createRuntime"),
        Oci::without_hooks(host, "gpuslice-runtime"),
    ]
}

/// Starts a container of 6 GiB with this fence, if one is given. `own_namespace`: it has a cgroup
/// namespace of its own, as Docker and Podman give it.
fn start(
    host: &Host,
    oci: &Oci<'_>,
    gpu: &'static str,
    fence: Option<&str>,
    own_namespace: bool,
) -> (i32, String) {
    let (spec, mut config) = limited(host, oci, gpu, &SLEEPS);
    if own_namespace {
        let namespaces = config["linux"]["namespaces"].as_array_mut();
        namespaces.expect("a list").push(json!({"type": "cgroup"}));
    }
    if let Some(fence) = fence {
        config["annotations"]["gpuslice.io/fence"] = json!(fence);
    }
    oci.prepare_as(&spec, &config);
    let done = oci.run(NAME);
    (done.code, done.out + &done.err)
}

fn status(host: &Host) -> Value {
    let said = host.sh("gpuslice status --json").out;
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn every_api_shows_the_limit_of_a_container_whatever_holds_it() {
    if !ready() {
        return;
    }
    for (gpu, fence, _) in MACHINES {
        let host = machine(gpu);
        for (way, mut oci) in ["hook", "wrapper"].into_iter().zip(ways(&host)) {
            let case = format!("{gpu}, {way}");
            let (code, said) = start(&host, &oci, gpu, None, way == "hook");
            assert_eq!(code, 0, "{case}: {said}");
            let check = Check::run(&oci, NAME);
            assert!(check.consistent(), "{case}: {}", check.json());
            assert_eq!(check.json()["slice"]["fence"], fence, "{case}");
            if !gpu.contains("mig") {
                assert_eq!(check.totals(), [6 * GIB], "{case}: {}", check.json());
            }
            let log = oci.exec(
                NAME,
                &[
                    "/usr/bin/env",
                    "GPUSLICE_LOG=info",
                    "/opt/gpuslice",
                    "check",
                ],
            );
            let line = "the driver enforces the limit of this process's cgroup";
            assert_eq!(log.err.contains(line), fence == "driver", "{case}: {log:?}");
            let status = status(&host);
            assert_eq!(status["slices"][0]["fence"], fence, "{case}: {status}");
            oci.remove(NAME);
            assert_nothing_left(&host);
        }
    }
}

#[test]
fn a_resize_changes_the_drivers_limit_of_a_container_with_the_slice() {
    if !ready() {
        return;
    }
    for gpu in [DMEM, MISC] {
        let host = machine(gpu);
        for (way, mut oci) in ["hook", "wrapper"].into_iter().zip(ways(&host)) {
            let (code, said) = start(&host, &oci, gpu, None, way == "hook");
            assert_eq!(code, 0, "{gpu}, {way}: {said}");
            for gib in [8, 3, 5] {
                let case = format!("{gpu}, {way}: {gib} GiB");
                let done = host.sh(&format!(
                    "GPUSLICE_SIM={gpu} GPUSLICE_SIM_STATE=/run/sim gpuslice resize {NAME} {gib}GiB"
                ));
                assert_eq!(done.code, 0, "{case}: {done:?}");
                let limit = kept(&host, &format!("/pods/{NAME}")).0;
                assert_eq!(limit, Some((0, gib * GIB)), "{case}");
                let check = Check::run(&oci, NAME);
                assert!(check.consistent(), "{case}: {}", check.json());
                assert_eq!(check.totals(), [gib * GIB], "{case}: {}", check.json());
                assert_eq!(check.json()["slice"]["fence"], "driver", "{case}");
            }
            oci.remove(NAME);
            assert_nothing_left(&host);
        }
    }
}

#[test]
fn a_container_that_asks_for_the_driver_is_refused_where_it_cannot_be() {
    if !ready() {
        return;
    }
    for (gpu, fence, why) in MACHINES {
        let host = machine(gpu);
        for (way, mut oci) in ["hook", "wrapper"].into_iter().zip(ways(&host)) {
            let case = format!("{gpu}, {way}");
            let (code, said) = start(&host, &oci, gpu, Some("driver"), false);
            assert_eq!(code == 0, fence == "driver", "{case}: {said}");
            assert!(code == 0 || said.contains(why), "{case}: {said}");
            oci.remove(NAME);
            assert_nothing_left(&host);
        }
    }
}

#[test]
fn a_container_cannot_choose_another_fence_than_the_policys() {
    if !ready() {
        return;
    }
    for (policy, asked, fence) in [
        ("preload", None, Some("preload")),
        ("preload", Some("driver"), None),
        ("driver", Some("preload"), Some("driver")),
    ] {
        let host = machine(DMEM);
        host.sh(&format!(
            "echo 'fence = \"{policy}\"' >>/etc/gpuslice/config.toml"
        ))
        .ok();
        let mut oci = Oci::new(&host, "runc", "createRuntime");
        let (code, said) = start(&host, &oci, DMEM, asked, false);
        assert_eq!(code == 0, fence.is_some(), "{policy}: {said}");
        if let Some(fence) = fence {
            let check = Check::run(&oci, NAME);
            assert_eq!(check.json()["slice"]["fence"], fence, "{policy}");
        }
        oci.remove(NAME);
        assert_nothing_left(&host);
    }
}

/// Where NVIDIA's toolkit sets a higher limit after the hook, the driver does not hold the slice.
#[test]
fn a_limit_that_nvidias_toolkit_raises_is_held_by_the_library() {
    if !ready() {
        return;
    }
    let host = machine(DMEM);
    let stand_in = std::fs::read(place::package().join("nvidia-memory-limits.py"));
    host.write("/usr/bin/nvidia-cdi-hook", stand_in.expect("the stand-in"));
    host.sh("chmod 755 /usr/bin/nvidia-cdi-hook").ok();
    for (fence, theirs, held_by) in [
        (None, "8192", Some("preload")),
        (Some("driver"), "8192", None),
        // A lower limit makes the slice smaller, and the driver holds it.
        (Some("driver"), "4096", Some("driver")),
    ] {
        let mut oci = Oci::new(&host, "runc", "createRuntime");
        oci.hooks = with_toolkit(DMEM, false);
        let (spec, mut config) = limited(&host, &oci, DMEM, &SLEEPS);
        for name in ["REQUEST", "LIMIT"] {
            let env = config["process"]["env"].as_array_mut().expect("it");
            env.push(json!(format!("NVIDIA_GPU_MEMORY_{name}={theirs}")));
        }
        if let Some(fence) = fence {
            config["annotations"]["gpuslice.io/fence"] = json!(fence);
        }
        oci.prepare_as(&spec, &config);
        let done = oci.run(NAME);
        let case = format!("{fence:?}, {theirs} MiB: {done:?}");
        assert_eq!(done.code == 0, held_by.is_some(), "{case}");
        match held_by {
            Some(held_by) => {
                let check = Check::run(&oci, NAME);
                assert!(check.consistent(), "{case}: {}", check.json());
                assert_eq!(check.json()["slice"]["fence"], held_by, "{case}");
            }
            None => assert!(case.contains("raises the driver's limit"), "{case}"),
        }
        oci.remove(NAME);
        assert_nothing_left(&host);
    }
}

#[test]
fn the_driver_holds_a_claim_only_for_one_container() {
    if !ready() {
        return;
    }
    for (fence, holder) in [("driver", "driver"), ("auto", "preload")] {
        let host = machine(DMEM);
        let mut oci = Oci::without_hooks(&host, "runc");
        let start = |name: &str| {
            let (mut spec, mut config) = limited(&host, &oci, DMEM, &SLEEPS);
            name.clone_into(&mut spec.name);
            config["linux"]["cgroupsPath"] = json!(format!("/{}/pods/{name}", host.name()));
            let memory = "GPU-3090aaaa-1111-4222-8333-444455550000=6GiB";
            let hook = |stage: &str| {
                let words = [
                    "gpuslice-hook",
                    "--slice",
                    "claim",
                    "--memory",
                    memory,
                    "--fence",
                    fence,
                    stage,
                ];
                json!([{"path": "/usr/bin/gpuslice-hook", "args": words, "env": ["PATH=/usr/bin:/bin"]}])
            };
            config["hooks"] =
                json!({"createRuntime": hook("createRuntime"), "poststop": hook("poststop")});
            oci.prepare_as(&spec, &config);
            oci.run(name)
        };
        let mut started = vec!["first".to_owned(), "second".to_owned()];
        start("first").ok();
        let check = Check::run(&oci, "first");
        assert!(check.consistent(), "{fence}: {}", check.json());
        assert_eq!(check.json()["slice"]["fence"], holder, "{fence}");
        assert_eq!(kept(&host, "/pods/first").0, Some((0, 6 * GIB)), "{fence}");
        let second = start("second");
        match holder {
            "driver" => {
                assert_ne!(second.code, 0);
                assert!(
                    second.out.contains("slice claim is used by first alone"),
                    "{second:?}"
                );
            }
            _ => {
                second.ok();
                // Each container's limit follows, and so does that of a container that joins.
                for gib in [8, 3] {
                    host.sh(&format!(
                        "GPUSLICE_SIM={DMEM} GPUSLICE_SIM_STATE=/run/sim gpuslice resize first {gib}GiB"
                    ))
                    .ok();
                    let joining = format!("joins-{gib}");
                    start(&joining).ok();
                    for name in ["first", "second", &joining] {
                        let limit = kept(&host, &format!("/pods/{name}")).0;
                        assert_eq!(limit, Some((0, gib * GIB)), "{name}: {gib} GiB");
                    }
                    let check = Check::run(&oci, &joining);
                    assert!(check.consistent(), "{}", check.json());
                    assert_eq!(check.totals(), [gib * GIB], "{}", check.json());
                    started.push(joining);
                }
            }
        }
        for name in started {
            oci.remove(&name);
        }
        assert_nothing_left(&host);
    }
}
