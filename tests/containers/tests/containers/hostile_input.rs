//! States and configurations that no honest runtime writes. The hook reports the error in one line,
//! at once, and leaves no state behind.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::host::{Done, Host};
use gpuslice_containers::patience;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::assert_nothing_left;
use gpuslice_containers::spec::Spec;
use serde_json::{Value, json};
use std::time::Instant;

/// Makes a machine with a valid bundle.
fn machine() -> Host {
    let host = Host::new();
    Oci::new(&host, "runc", "createRuntime").prepare(&Spec::new("good").memory("2GiB"));
    host
}

fn state(id: &str, pid: i64, bundle: &str) -> Value {
    json!({
        "ociVersion": "1.0.2", "id": id, "status": "creating", "pid": pid, "bundle": bundle,
        "annotations": {"gpuslice.io/memory": "2GiB"},
    })
}

/// Calls the hook as a runtime does.
fn hook(host: &Host, stage: &str, state: impl AsRef<[u8]>) -> Done {
    let start = Instant::now();
    let done = host.run_with("gpuslice-hook", &[stage], state.as_ref());
    // The hook must not wait for anything. Its shortest time limit is 10 s.
    assert!(
        start.elapsed().as_secs() < 9,
        "the hook took too long: {done:?}"
    );
    assert_eq!(done.out, "", "nothing on standard output");
    done
}

/// Asserts that the hook failed with a line that contains this word, and left no state behind.
fn refused(host: &Host, done: &Done, word: &str) {
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.err.contains(word), "no {word:?}: {}", done.err);
    assert!(
        done.err.len() < 1000,
        "a clear error is short: {}",
        done.err
    );
    assert_nothing_left(host);
}

/// CVE-2025-23267 and similar: an id is used as a path.
#[test]
fn ids_that_are_paths_are_refused() {
    if !ready() {
        return;
    }
    let host = machine();
    let before = host.changes();
    for id in [
        "../../etc/x",
        "a/b",
        "..",
        ".",
        "",
        ".hidden",
        "a b",
        "a\n",
        "a\u{0}b",
        &"x".repeat(2000),
    ] {
        let state = state(id, 2, "/run/bundles/good").to_string();
        for stage in ["createRuntime", "createContainer", "poststop"] {
            let done = hook(&host, stage, &state);
            // A container that has already ended cannot be refused.
            assert_eq!(
                done.code == 0,
                stage == "poststop",
                "{id:?} {stage}: {done:?}"
            );
            assert!(
                done.err.contains("container id"),
                "{id:?} {stage}: {done:?}"
            );
            assert_nothing_left(&host);
        }
    }
    assert_eq!(host.changes(), before);
}

#[test]
fn state_that_is_cut_or_endless_or_not_json_is_refused() {
    if !ready() {
        return;
    }
    let host = machine();
    let good = state("good", 2, "/run/bundles/good").to_string();
    for cut in [0, 1, good.len() / 2, good.len() - 1] {
        refused(&host, &hook(&host, "createRuntime", &good[..cut]), "state");
    }
    refused(&host, &hook(&host, "createRuntime", "[1, 2]"), "state");
    let endless = vec![b' '; 64 << 20];
    refused(&host, &hook(&host, "createRuntime", endless), "state");
    let deep = "[".repeat(100_000);
    refused(&host, &hook(&host, "createRuntime", deep), "state");
}

#[test]
fn configurations_that_are_missing_cut_huge_or_no_files_are_refused() {
    if !ready() {
        return;
    }
    let host = machine();
    let stage = "createRuntime";
    let say = |bundle: &str| hook(&host, stage, state("good", 2, bundle).to_string());
    refused(&host, &say("/run/bundles/missing"), "/run/bundles/missing");
    refused(&host, &say("relative"), "relative");
    let config = std::fs::read(host.path("/run/bundles/good/config.json")).expect("it");
    host.write("/run/bundles/cut/config.json", &config[..config.len() / 2]);
    refused(&host, &say("/run/bundles/cut"), "config.json");
    host.write("/run/bundles/none/config.json", "");
    refused(&host, &say("/run/bundles/none"), "config.json");
    // The file is sparse: it has the size but takes no disk space.
    host.write("/run/bundles/huge/config.json", "{");
    host.sh("truncate -s 1G /run/bundles/huge/config.json").ok();
    refused(&host, &say("/run/bundles/huge"), "config.json");
    host.sh("mkdir -p /run/bundles/pipe && mkfifo /run/bundles/pipe/config.json")
        .ok();
    refused(&host, &say("/run/bundles/pipe"), "config.json");
    // An error of ours does not stop a container that requests no slice.
    let mut other = state("other", 2, "/run/bundles/cut");
    other
        .as_object_mut()
        .expect("an object")
        .remove("annotations");
    let done = hook(&host, stage, other.to_string());
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("config.json"), "{done:?}");
    assert_nothing_left(&host);
}

/// CVE-2019-5736, and a pitfall of runc's createContainer: the pid is not the container's.
#[test]
fn pids_of_the_host_itself_are_refused() {
    if !ready() {
        return;
    }
    let host = machine();
    // -1 and 0 mean all processes, and 1 is the host's init. No process has the last pid.
    for pid in [-1, 0, 1, 4_000_000] {
        let done = hook(
            &host,
            "createRuntime",
            state("good", pid, "/run/bundles/good").to_string(),
        );
        refused(&host, &done, "process");
    }
    // The process is in the host's own namespace. A mount there would be a mount on the host.
    let mounts = host.mounts();
    let mut other = host.spawn("sleep", &["1000000"], "/run/log");
    host.wait_for("it runs", || host.run("pidof", &["sleep"]).code == 0);
    let pid = host.run("pidof", &["sleep"]).ok();
    let pid: i64 = pid.trim().parse().expect("one");
    let done = hook(
        &host,
        "createRuntime",
        state("good", pid, "/run/bundles/good").to_string(),
    );
    refused(&host, &done, "namespace");
    assert_eq!(host.mounts(), mounts);
    patience::kill(&mut other);
}

#[test]
fn an_unknown_stage_warns_and_does_not_stop_the_container() {
    if !ready() {
        return;
    }
    let host = machine();
    let done = hook(
        &host,
        "createDream",
        state("good", 2, "/run/bundles/good").to_string(),
    );
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.err.contains("createDream"), "{done:?}");
    assert_nothing_left(&host);
}

#[test]
fn the_end_of_a_container_can_be_told_twice_and_for_one_that_never_was() {
    if !ready() {
        return;
    }
    let host = machine();
    for _ in 0..2 {
        let done = hook(
            &host,
            "poststop",
            state("never", 0, "/run/bundles/good").to_string(),
        );
        assert_eq!(done.code, 0, "{done:?}");
    }
    // The bundle may be gone when the runtime calls poststop.
    let done = hook(
        &host,
        "poststop",
        state("never", 0, "/run/bundles/gone").to_string(),
    );
    assert_eq!(done.code, 0, "{done:?}");
    assert_nothing_left(&host);
}
