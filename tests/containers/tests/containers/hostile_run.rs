//! Containers that attack while they start and run: races, environments, propagation, annotations.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced};
use gpuslice_containers::spec::Spec;
use serde_json::json;

/// CVE-2025-23266: a hook runs with the image's environment, and so loads the image's code on the
/// host.
#[test]
fn cve_2025_23266_an_evil_library_in_the_images_environment() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut spec = Spec::new("evil").memory("2GiB");
    // The working directory of runc's createContainer hooks is the container's root.
    spec.env.push("LD_PRELOAD=/proc/self/cwd/evil.so".into());
    spec.env.push("LD_LIBRARY_PATH=/proc/self/cwd".into());
    spec.env.push("LD_AUDIT=/proc/self/cwd/evil.so".into());
    let starts = |oci: &mut Oci| {
        oci.prepare(&spec);
        let root = format!("{}/rootfs", Oci::bundle("evil"));
        host.sh(&format!("cp /run/build/containers/evil.so {root}/evil.so"))
            .ok();
        let done = oci.run("evil");
        let ran = host.path("/run/evil-ran").exists();
        let _ = std::fs::remove_file(host.path("/run/evil-ran"));
        (done.code, ran)
    };
    let careless = |program: &str, stage: &str| {
        let mut oci = Oci::without_hooks(&host, "runc");
        oci.hooks = json!({stage: [{"path": program, "args": [program, stage]}]});
        oci
    };
    // The attack works: a hook of another program without an environment of its own loads the
    // library.
    let mut trap = careless("/usr/bin/env", "createContainer");
    trap.hooks["createContainer"][0]["args"] = json!(["env"]);
    assert_eq!(
        starts(&mut trap),
        (0, true),
        "this runc has no such trap: the test shows nothing"
    );
    trap.remove("evil");
    // Our hook does not load it, neither as we ship it nor if an operator leaves out its
    // environment.
    for stage in ["prestart", "createRuntime", "createContainer"] {
        for mut oci in [
            Oci::new(&host, "runc", stage),
            Oci::new(&host, "crun", stage),
            careless("/usr/bin/gpuslice-hook", stage),
        ] {
            assert_eq!(starts(&mut oci), (0, false), "{stage} {}", oci.name());
            oci.remove("evil");
        }
    }
}

/// The hook is one static file, so no environment can make it load a library.
#[test]
fn the_hook_is_static_and_small() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let file = std::fs::read(host.path("/usr/bin/gpuslice-hook")).expect("the hook");
    assert!(file.len() <= 1172 << 10, "{} bytes", file.len());
    assert!(
        !file.windows(15).any(|text| text == b"/lib64/ld-linux"),
        "it has an interpreter"
    );
    let runtime = std::fs::read_link(host.path("/usr/bin/gpuslice-runtime"));
    assert_eq!(
        runtime.expect("a link"),
        std::path::Path::new("gpuslice-hook")
    );
}

/// A bug of toolkit 1.18 and of our own prototype: a mount propagates to the host.
#[test]
fn mounts_over_the_slice_by_a_privileged_container_stay_in_it() {
    if !ready() {
        return;
    }
    let host = Host::new();
    // systemd makes the host's mounts shared.
    host.sh("mount --make-rshared /").ok();
    for stage in ["createRuntime", "createContainer"] {
        for binary in ["runc", "crun"] {
            let mut oci = Oci::new(&host, binary, stage);
            let mut spec = Spec::new("spreader").memory("2GiB");
            spec.capabilities.push("CAP_SYS_ADMIN".into());
            let mut config = oci.config(&spec);
            config["linux"]["rootfsPropagation"] = json!("rslave");
            oci.prepare_as(&spec, &config);
            oci.run("spreader").ok();
            let mounts = host.mounts();
            let script = "set -e; mkdir /tmp/x; for at in /.gpuslice /etc/ld.so.preload; do
                if [ -d $at ]; then busybox mount -t tmpfs none $at; else echo evil > /tmp/x/f; busybox mount --bind /tmp/x/f $at; fi; done
                busybox grep -c gpuslice /proc/self/mountinfo";
            let done = oci.exec("spreader", &["sh", "-c", script]);
            assert_eq!(done.code, 0, "the mounts failed: {done:?}");
            assert_eq!(host.mounts(), mounts, "{binary} {stage}");
            let library = std::fs::metadata(host.path("/usr/lib/gpuslice/libgpuslice.so"));
            assert!(library.is_ok_and(|file| file.len() > 0));
            oci.remove("spreader");
        }
    }
    assert_nothing_left(&host);
}

/// The preload list of a container that shares the host's /etc appeared on the host, for its programs.
#[test]
fn a_shared_etc_never_gets_the_preload_list_of_a_container() {
    if !ready() {
        return;
    }
    let host = Host::new();
    host.sh("mount --make-rshared /; : > /etc/ld.so.preload")
        .ok();
    for binary in ["runc", "crun"] {
        for (stage, how, propagation) in [
            ("createRuntime", "rw", "rshared"),
            ("createContainer", "rw", "rshared"),
            ("createRuntime", "ro", "rshared"),
            ("createContainer", "ro", "rshared"),
            ("createRuntime", "rw", "rslave"),
            ("createContainer", "rw", "rprivate"),
        ] {
            let case = format!("{binary} {stage} {how} {propagation}");
            let mut oci = Oci::new(&host, binary, stage);
            let spec = Spec::new("spreader").memory("2GiB");
            let mut config = oci.config(&spec);
            config["linux"]["rootfsPropagation"] = json!("rshared");
            config["mounts"]
                .as_array_mut()
                .expect("mounts")
                .push(json!({
                    "destination": "/etc", "type": "bind", "source": "/etc",
                    "options": ["rbind", propagation, how],
                }));
            oci.prepare_as(&spec, &config);
            // The ledger is mounted on the host.
            let mounts = || {
                let mut mounts = host.mounts();
                mounts.retain(|point| !point.starts_with("/run/gpuslice/ledgers"));
                mounts
            };
            let before = mounts();
            let done = oci.run("spreader");
            assert_eq!(mounts(), before, "{case}");
            if propagation == "rshared" {
                assert_ne!(done.code, 0, "{case} started");
                let said = done.out.contains("shares its /etc with the host");
                // crun reports only the exit status of a hook.
                assert!(said || binary == "crun", "{case}: {done:?}");
            } else {
                assert_eq!(done.code, 0, "{case}: {done:?}");
                assert_sliced(&oci, "spreader", 2 * GIB);
            }
            oci.remove("spreader");
        }
    }
    assert_nothing_left(&host);
}

/// Podman before 4.6 copies an image's annotations into the container's.
#[test]
fn annotations_of_an_image_cannot_raise_the_limit_over_the_policy() {
    if !ready() {
        return;
    }
    let host = Host::new();
    host.write(
        "/etc/gpuslice/config.toml",
        "[maximum]\ncontainer = \"4GiB\"\n",
    );
    let mut podman = Podman::new(&host, "runc", "createRuntime");
    host.write("/run/Containerfile", "FROM localhost/debian:1\n");
    host.sh("cd /run && podman build -q --isolation=chroot --annotation gpuslice.io/memory=20GiB -t localhost/greedy:1 -f Containerfile . && podman tag localhost/greedy:1 localhost/debian:1").ok();
    let done = podman
        .start(&Spec::new("greedy"))
        .expect_err("over the maximum");
    assert!(
        done.err.contains("4.00 GiB") || done.err.contains("4GiB"),
        "{done:?}"
    );
    // The user's own value overrides the image's.
    let id = podman
        .start(&Spec::new("modest").memory("3GiB"))
        .expect("it starts");
    assert_sliced(&podman, &id, 3 * GIB);
    podman.remove(&id);
    assert_nothing_left(&host);
}

/// CVE-2024-21626: a descriptor leads out of the container.
#[test]
fn cve_2024_21626_no_descriptor_and_no_folder_of_the_host_is_left_open() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for binary in ["runc", "crun"] {
        for stage in ["createRuntime", "createContainer"] {
            let mut oci = Oci::new(&host, binary, stage);
            let id = oci
                .start(&Spec::new("leak").memory("2GiB"))
                .expect("it starts");
            let open = oci.exec(&id, &["sh", "-c", "cd /proc/1/fd && echo *"]).ok();
            assert_eq!(open.trim(), "0 1 2", "{binary} {stage}");
            assert_eq!(oci.exec(&id, &["readlink", "/proc/1/cwd"]).ok(), "/\n");
            oci.remove(&id);
        }
    }
}

/// The kernel reuses a dead container's pid. The owner of a slice is identified by pid and start
/// time.
#[test]
fn a_slice_of_a_dead_container_is_free_even_when_its_pid_lives_again() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    // No poststop runs, as after a crash of the runtime.
    oci.hooks.as_object_mut().expect("hooks").remove("poststop");
    oci.start(&Spec::new("first").memory("20GiB"))
        .expect("it starts");
    let denied = oci.start(&Spec::new("second").memory("20GiB"));
    assert!(denied.expect_err("there is no room").out.contains("first"));
    let state = host.run("runc", &["state", "first"]).ok();
    let state: serde_json::Value = serde_json::from_str(&state).expect("JSON");
    let pid = state["pid"].as_u64().expect("a pid");
    oci.remove("first");
    host.wait_for("its process is gone", || {
        !host.path(&format!("/proc/{pid}")).exists()
    });
    assert_ne!(
        host.list("/run/gpuslice/containers"),
        Vec::<String>::new(),
        "nobody said that it ended"
    );
    // Another process gets the pid and keeps it as long as the machine exists.
    host.sh(&format!(
        "echo {} > /proc/sys/kernel/ns_last_pid; sleep 1000000 >/dev/null 2>&1 </dev/null &",
        pid - 1
    ))
    .ok();
    host.wait_for("another process has the pid", || {
        let comm = std::fs::read_to_string(host.path(&format!("/proc/{pid}/comm")));
        comm.is_ok_and(|name| name == "sleep\n")
    });
    let id = oci
        .start(&Spec::new("third").memory("20GiB"))
        .expect("the memory is free again");
    assert_sliced(&oci, &id, 20 * GIB);
    oci.remove(&id);
    host.run("gpuslice", &["gc"]).ok();
    assert_nothing_left(&host);
}
