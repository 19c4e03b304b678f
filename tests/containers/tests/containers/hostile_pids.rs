//! Containers that share a pid namespace with an attacker of the hook.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_sliced};
use gpuslice_containers::spec::Spec;
use serde_json::json;

/// Opens the executable of every hook in its pid namespace, and writes to the opened files.
const ATTACK: &str = r#"
while :; do
    for process in /proc/[0-9]*; do
        { read -r name <$process/comm; } 2>/dev/null
        [ "$name" = gpuslice-hook ] || continue
        { exec {open}<$process/exe; } 2>/dev/null || continue
        echo seen >>/state/attacks
        opened+=($open)
    done
    for open in "${opened[@]}"; do
        { printf x >>/proc/self/fd/$open; } 2>/dev/null && echo WRITTEN >>/state/attacks
    done
    if [ "${#opened[@]}" -gt 100 ]; then for open in "${opened[@]}"; do exec {open}<&-; done; opened=(); fi
done"#;

const STARTS: usize = 15;

/// Starts containers in the attacker's pid namespace. Returns the number that started, and the
/// result of the last one that did not start, or else of the last one.
fn attacked(host: &Host, binary: &'static str) -> (usize, Done) {
    let attacker = Oci::without_hooks(host, binary);
    let mut spec = Spec::new("attacker").running(&["/usr/bin/bash", "-c", ATTACK]);
    spec.capabilities.push("CAP_SYS_PTRACE".into());
    attacker.prepare(&spec);
    attacker.run("attacker").ok();
    let state = host.run(binary, &["state", "attacker"]).ok();
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    let mut victim = Oci::new(host, binary, "createContainer");
    let spec = Spec::new("victim").memory("1GiB");
    let mut config = victim.config(&spec);
    let namespaces = config["linux"]["namespaces"].as_array_mut().expect("them");
    namespaces.retain(|own| own["type"] != "pid");
    namespaces.push(json!({"type": "pid", "path": format!("/proc/{}/ns/pid", state["pid"])}));
    victim.prepare_as(&spec, &config);
    let mut started = 0;
    let mut last = None;
    for _ in 0..STARTS {
        let mut done = victim.run("victim");
        // The kernel counts a writer before it sees that the mount is read-only. While it refuses the
        // attacker, nobody can execute the file, and the container is not started.
        for _ in 0..STARTS {
            if !done.out.to_lowercase().contains("text file busy") {
                break;
            }
            let _ = host.run(binary, &["delete", "-f", "victim"]);
            done = victim.run("victim");
        }
        if done.code == 0 {
            started += 1;
            assert_sliced(&victim, "victim", GIB);
        }
        let _ = host.run(binary, &["delete", "-f", "victim"]);
        if last.as_ref().is_none_or(|last: &Done| last.code == 0) {
            last = Some(done);
        }
    }
    victim.remove("victim");
    let mut attacker = attacker;
    attacker.remove("attacker");
    (started, last.expect("one"))
}

/// CVE-2019-5736: a process that may trace the hook opens the hook's executable, and writes to it
/// after the hook has ended.
#[test]
fn cve_2019_5736_shared_pids_do_not_let_a_container_overwrite_the_hook() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let sum = || host.sh("sha256sum /usr/bin/gpuslice-hook").ok();
    let before = sum();
    host.sh("mount --bind /usr/bin/gpuslice-hook /usr/bin/gpuslice-hook && mount -o remount,bind,ro /usr/bin/gpuslice-hook")
        .ok();
    for binary in ["runc", "crun"] {
        host.sh("rm -f /run/sim/attacks; touch /run/sim/attacks; chmod 666 /run/sim/attacks")
            .ok();
        let (started, last) = attacked(&host, binary);
        let said = std::fs::read_to_string(host.path("/run/sim/attacks")).expect("its log");
        assert_eq!(started, STARTS, "{binary}: {last:?}");
        assert!(said.contains("seen"), "{binary}: the attacker saw no hook");
        assert!(!said.contains("WRITTEN"), "{binary}: {said}");
        assert_eq!(sum(), before, "{binary}");
    }
}

#[test]
fn at_create_container_a_shared_pid_namespace_takes_a_read_only_hook() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for binary in ["runc", "crun"] {
        let mut oci = Oci::new(&host, binary, "createContainer");
        let spec = Spec::new("shared").memory("1GiB");
        let mut config = oci.config(&spec);
        config["linux"]["namespaces"]
            .as_array_mut()
            .expect("them")
            .retain(|own| own["type"] != "pid");
        oci.prepare_as(&spec, &config);
        let done = oci.run("shared");
        assert_ne!(done.code, 0, "{binary}");
        if binary == "runc" {
            assert!(
                done.out.contains("refusing to run at createContainer"),
                "{done:?}"
            );
        }
        oci.remove("shared");
    }
}
