//! A root that changes between the hook's check of a path and its use, in hundreds of starts.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::host::Host;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::assert_nothing_left;
use gpuslice_containers::spec::Spec;

/// The number of starts at each of two stages. `make hostile` sets 1,000.
fn starts() -> usize {
    let wanted = std::env::var("GPUSLICE_HOSTILE_STARTS");
    wanted.map_or(200, |starts| starts.parse().expect("a number"))
}

/// Starts a container repeatedly while an attacker that shares its root swaps its /etc with a link
/// to the host's. Returns how often it started.
fn race(host: &Host, stage: &str, target: &str) -> usize {
    let oci = Oci::new(host, "crun", stage);
    let spec = Spec::new(stage).memory("1GiB");
    let mut spec = spec.running(&["/usr/bin/busybox", "true"]);
    // A process that loads the image's code on the host leaves a mark in the host's /run.
    spec.env.push("LD_PRELOAD=/proc/self/cwd/evil.so".into());
    spec.env.push("LD_AUDIT=/proc/self/cwd/evil.so".into());
    let starts = starts();
    let mut config = oci.config(&spec);
    // The container needs only /proc and /dev. Without other mounts it starts fast.
    let mounts = config["mounts"].as_array_mut().expect("mounts");
    mounts.truncate(2);
    oci.prepare_as(&spec, &config);
    let bundle = Oci::bundle(stage);
    // A folder of an overlay's lower layer cannot be swapped, so this root is a copy.
    let script = format!(
        "cd {bundle} && umount rootfs && cp -a /run/build/containers/debian/. rootfs && cp /run/build/containers/evil.so rootfs/ && ln -s {target} rootfs/swap || exit 1
         /run/build/containers/race rootfs/etc rootfs/swap >race.log 2>&1 & racer=$!
         started=0
         for i in $(seq {starts}); do
             if crun run -b {bundle} {stage} >/dev/null 2>&1 </dev/null; then started=$((started + 1)); else crun delete -f {stage} 2>/dev/null; fi
         done
         kill $racer || {{ cat race.log >&2; exit 1; }}
         wait $racer 2>/dev/null
         cd / && rm -rf {bundle} && echo $started"
    );
    host.sh(&script).ok().trim().parse().expect("a number")
}

/// CVE-2021-30465, CVE-2025-23359, CVE-2026-24260.
#[test]
fn cve_2021_30465_hundreds_of_starts_against_somebody_who_swaps_etc() {
    if !ready() {
        return;
    }
    let host = Host::new();
    host.sh("mkdir /opt/prey && echo mine > /opt/prey/ld.so.conf")
        .ok();
    let before = (host.changes(), host.mounts());
    let started = std::thread::scope(|scope| {
        let outside = scope.spawn(|| race(&host, "createRuntime", "/opt/prey"));
        let inside = race(&host, "createContainer", "../../../../../../../opt/prey");
        [outside.join().expect("the other"), inside]
    });
    host.run("gpuslice", &["gc"]).ok();
    let mut after = (host.changes(), host.mounts());
    // The first slice mounts the promises' file system, which stays.
    after
        .1
        .retain(|point| before.1.contains(point) || !point.starts_with("/run/gpuslice/promises"));
    assert_eq!(after, before);
    assert!(
        !host.path("/run/evil-ran").exists(),
        "the image's code ran on the host"
    );
    assert_eq!(host.list("/opt/prey"), ["ld.so.conf"]);
    assert_nothing_left(&host);
    // At both stages some starts succeeded and some failed; otherwise there was no race.
    for started in started {
        assert!(
            (20..starts() - 20).contains(&started),
            "{started} of {} started",
            starts()
        );
    }
}
