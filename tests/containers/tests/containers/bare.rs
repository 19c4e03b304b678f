//! The machine and the runtimes without a hook. The other tests rely on these properties.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::check::Check;
use gpuslice_containers::cri::Cri;
use gpuslice_containers::docker::Docker;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::patience;
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::spec::Spec;

/// The memory of the simulated card, as CUDA and as NVML report it.
const CARD: [u64; 2] = [25_438_126_080, 25_769_803_776];

fn sees_the_whole_card(engine: &mut dyn Engine) {
    let id = engine.start(&Spec::new("bare")).expect("it starts");
    let check = Check::run(engine, &id);
    assert!(check.consistent(), "{}: {}", engine.name(), check.json());
    assert_eq!(check.library(), None, "{}", engine.name());
    assert_eq!(check.totals(), CARD, "{}", engine.name());
    engine.remove(&id);
}

#[test]
fn containers_without_annotation_see_the_whole_card_on_every_runtime() {
    if !ready() {
        return;
    }
    let host = Host::new();
    sees_the_whole_card(&mut Oci::without_hooks(&host, "runc"));
    sees_the_whole_card(&mut Oci::without_hooks(&host, "crun"));
    sees_the_whole_card(&mut Podman::new(&host, "runc", "createRuntime"));
    sees_the_whole_card(&mut Podman::new(&host, "crun", "createRuntime"));
    sees_the_whole_card(&mut Docker::new(&host, "runc"));
    sees_the_whole_card(&mut Cri::new(&host, "runc", "true"));
}

#[test]
fn a_machine_changes_nothing_below_it_and_leaves_nothing() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let name = host.name().to_owned();
    let before = host.changes();
    host.sh("echo x >/etc/gpuslice-was-here; rm /etc/passwd")
        .ok();
    let after = host.changes();
    assert!(after.contains("etc/gpuslice-was-here"), "{after}");
    assert!(
        after.contains("etc/passwd c"),
        "the removal is not listed: {after}"
    );
    assert_ne!(before, after);
    let sleeper = host.spawn("sleep", &["1000000"], "/run/log");
    drop(host);
    let mut sleeper = sleeper;
    assert!(
        patience::ends(&mut sleeper),
        "the process outlives its machine"
    );
    assert!(!std::path::Path::new("/etc/gpuslice-was-here").exists());
    assert!(std::path::Path::new("/etc/passwd").exists());
    let mut find = std::process::Command::new("find");
    let groups = find.args(["/sys/fs/cgroup", "-maxdepth", "2", "-name", &name]);
    let groups = patience::output(groups);
    assert_eq!(String::from_utf8_lossy(&groups.stdout), "");
}
