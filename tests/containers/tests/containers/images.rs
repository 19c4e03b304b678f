//! Container roots of every kind: another libc, no libc, read-only in every way, shifted ids, a
//! meminfo that is not the host's.

use gpuslice_containers::bundle::Oci;
use gpuslice_containers::check::Check;
use gpuslice_containers::engine::Engine;
use gpuslice_containers::host::Host;
use gpuslice_containers::podman::Podman;
use gpuslice_containers::ready::ready;
use gpuslice_containers::slice::{GIB, assert_nothing_left, assert_sliced, assert_sliced_from};
use gpuslice_containers::spec::{Image, Spec};
use serde_json::json;

/// The stages at which a hook runs outside the container.
const OUTSIDE: [&str; 2] = ["prestart", "createRuntime"];
const STAGES: [&str; 3] = ["prestart", "createRuntime", "createContainer"];

#[test]
fn the_policy_decides_whether_unreachable_roots_start_with_a_warning() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for (image, word) in [(Image::Musl, "musl"), (Image::Static, "static")] {
        for binary in ["runc", "crun"] {
            for stage in STAGES {
                let case = format!("{word} {binary} {stage}");
                let mut oci = Oci::new(&host, binary, stage);
                let mut spec = Spec::new("other")
                    .memory("2GiB")
                    .annotated("run.oci.hooks.stderr", "/run/hook.err")
                    .running(&["/bin/hello", "wait"]);
                spec.image = image;
                host.write("/etc/gpuslice/config.toml", "");
                host.sh("rm -f /run/hook.err").ok();
                let id = oci
                    .start(&spec)
                    .unwrap_or_else(|done| panic!("{case}: {done:?}"));
                let said = oci.exec(&id, &["/bin/hello"]);
                assert_eq!(
                    (said.code, said.out.as_str(), said.err.as_str()),
                    (0, "hello from the image\n", ""),
                    "{case}"
                );
                oci.remove(&id);
                assert_nothing_left(&host);
                // runc discards the output of a hook that succeeds. crun writes it to the file that
                // an annotation names.
                if binary == "crun" {
                    let warned = std::fs::read_to_string(host.path("/run/hook.err"));
                    let warned = warned.expect("the output of the hook");
                    let lines: Vec<&str> =
                        warned.lines().filter(|line| line.contains(word)).collect();
                    assert_eq!(lines.len(), 1, "{case}: {warned}");
                }

                host.write(
                    "/etc/gpuslice/config.toml",
                    "when-not-injectable = \"refuse\"\n",
                );
                let done = oci.start(&spec).expect_err(&case);
                if binary == "runc" {
                    assert!(done.out.contains(word), "{case}: {done:?}");
                }
                assert_nothing_left(&host);
            }
        }
    }
}

/// Copies the loader and the libraries that `gpuslice` needs into a container, as `docker cp` does.
fn copy_glibc(host: &Host, name: &str) {
    let root = format!("{}/rootfs", Oci::bundle(name));
    host.sh(&format!(
        "mkdir -p {root}/bin && cp -n $(command -v busybox) {root}/bin/ &&
         cd /run/build/containers/debian && mkdir -p {root}/lib64 {root}/lib/x86_64-linux-gnu &&
         cp -L lib64/ld-linux-x86-64.so.2 {root}/lib64/ &&
         cp -L lib64/ld-linux-x86-64.so.2 {root}/lib/x86_64-linux-gnu/ &&
         cp -L lib/x86_64-linux-gnu/lib{{c,m}}.so.6 lib/x86_64-linux-gnu/libgcc_s.so.1 {root}/lib/x86_64-linux-gnu/ &&
         for name in libcuda.so.1 libnvidia-ml.so.1; do ln -s /sim/$name {root}/lib/x86_64-linux-gnu/$name; done"
    ))
    .ok();
}

#[test]
fn check_in_a_container_that_started_without_its_slice_names_the_reason() {
    if !ready() {
        return;
    }
    let host = Host::new();
    for (image, why) in [
        (
            Image::Musl,
            "its image has musl, whose loader reads no /etc/ld.so.preload",
        ),
        (
            Image::Static,
            "its image has no dynamic loader (static programs cannot be reached)",
        ),
    ] {
        for binary in ["runc", "crun"] {
            let own_ids = STAGES.map(|stage| (stage, false));
            for (stage, users) in own_ids.into_iter().chain([("createRuntime", true)]) {
                let case = format!("{image:?} {binary} {stage} {users}");
                let mut oci = Oci::new(&host, binary, stage);
                let mut spec = Spec::new("other").memory("2GiB");
                spec = spec.running(&["/bin/hello", "wait"]);
                spec.image = image;
                spec.user_namespace = users;
                oci.prepare(&spec);
                // With shifted ids a runtime may lack the right to create mount points.
                let root = format!("{}/rootfs", Oci::bundle("other"));
                let points = "mkdir -p opt sim state && touch opt/gpuslice";
                host.sh(&format!("cd {root} && {points}")).ok();
                let done = oci.run("other");
                assert_eq!(done.code, 0, "{case}: {done:?}");
                copy_glibc(&host, "other");
                let done = oci.exec("other", &["/opt/gpuslice", "check", "--timeout=60"]);
                let first =
                    format!("INCONSISTENT: this container started without its slice: {why}");
                let said = done.out.replace("\n  ", " ");
                assert_eq!(done.code, 1, "{case}: {done:?}");
                assert!(said.starts_with(&first), "{case}: {said}");
                // Root in the container cannot remove the file.
                let gone = oci.exec("other", &["/bin/busybox", "rm", "/.gpuslice/no-slice"]);
                assert_ne!(gone.code, 0, "{case}: {gone:?}");
                oci.remove("other");
                assert_nothing_left(&host);
            }
        }
    }
}

#[test]
fn check_notes_that_a_containers_first_program_is_static() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut oci = Oci::new(&host, "runc", "createRuntime");
    let spec = Spec::new("mixed").memory("2GiB");
    let id = oci.start(&spec.running(&["/usr/bin/busybox", "sleep", "1000000"]));
    let id = id.expect("it starts");
    assert_sliced(&oci, &id, 2 * GIB);
    let check = Check::run(&oci, &id);
    let notes = check.json()["notes"].to_string();
    let note = "its first program is static, so the slice limits only the dynamic programs";
    assert!(notes.contains(note), "{notes}");
    // `docker run --init`: everything but the first program is limited, and the host shows that.
    let status = host.run("gpuslice", &["status", "--json"]).ok();
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let slice = &status["slices"][0];
    assert_eq!(slice["fence"], "preload", "{status}");
    assert!(slice["no_slice"].is_null(), "{status}");
    let not_limited = slice["containers"][0]["not_limited"].to_string();
    assert!(not_limited.contains(note), "{status}");
    assert_eq!(status["warnings"], json!([]), "{status}");
    let shown = host.run("gpuslice", &["status", "mixed"]).ok();
    assert!(shown.contains("limit 2.00 GiB, used 0 B"), "{shown}");
    assert!(
        shown.contains(&format!("container {id}: {note}")),
        "{shown}"
    );
    let doctor = host.run("gpuslice", &["doctor", &id, "--json"]);
    assert!(!doctor.out.contains("without its slice"), "{doctor:?}");
    oci.remove(&id);
    assert_nothing_left(&host);
}

#[test]
fn a_root_whose_file_system_is_read_only_gets_its_slice() {
    if !ready() {
        return;
    }
    let host = Host::new();
    host.sh("mkdir /run/empty && echo volume > /run/volume && chmod 666 /run/volume")
        .ok();
    for (binary, stage, users) in [
        ("runc", "prestart", false),
        ("runc", "createRuntime", false),
        ("runc", "createRuntime", true),
        ("runc", "createContainer", false),
        ("crun", "createRuntime", false),
        ("crun", "createRuntime", true),
        ("crun", "createContainer", false),
    ] {
        let case = format!("{binary} {stage} {users}");
        let mut oci = Oci::new(&host, binary, stage);
        let mut spec = Spec::new("hard").memory("2GiB");
        spec.user_namespace = users;
        spec.mounts.push(("/etc/hosts".into(), "/etc/hosts".into()));
        let mut config = oci.config(&spec);
        config["mounts"]
            .as_array_mut()
            .expect("mounts")
            .push(json!({
                "destination": "/etc/debian_version", "type": "bind",
                "source": "/run/volume", "options": ["rbind", "ro"],
            }));
        oci.prepare_as(&spec, &config);
        let root = format!("{}/rootfs", Oci::bundle("hard"));
        host.sh(&format!(
            "umount {root} && mount -t overlay -o lowerdir=/run/empty:/run/build/containers/debian overlay {root} && ! touch {root}/etc/x 2>/dev/null"
        ))
        .ok();
        let done = oci.run("hard");
        assert_eq!(done.code, 0, "{case}: {done:?}");
        // The root has no writable place, so the slice is in the /dev that the runtime makes.
        assert_sliced_from(&oci, "hard", 2 * GIB, "/dev/gpuslice/libgpuslice.so");
        // The engine's mounts in /etc are still there, and so are all files of /etc.
        let hosts = std::fs::read_to_string(host.path("/etc/hosts")).expect("hosts");
        assert_eq!(
            oci.exec("hard", &["cat", "/etc/hosts"]).out,
            hosts,
            "{case}"
        );
        assert!(
            oci.exec("hard", &["cat", "/etc/passwd"])
                .out
                .contains("/tmp:/bin/bash")
        );
        let wrote = oci.exec("hard", &["sh", "-c", "echo x > /etc/x"]);
        assert_ne!(wrote.code, 0, "{case}: /etc can be written");
        let script = "cat /etc/debian_version && echo x > /etc/debian_version";
        let wrote = oci.exec("hard", &["sh", "-c", script]);
        assert_eq!(wrote.out, "volume\n", "{case}: {wrote:?}");
        assert_ne!(
            wrote.code, 0,
            "{case}: a read-only volume can be written to"
        );
        oci.remove("hard");
        assert_nothing_left(&host);
    }
}

/// The volume is moved away before the runtime makes it read-only.
#[test]
fn a_volume_at_the_list_stays_with_the_container_and_the_slice_is_listed() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let library = "/lib/x86_64-linux-gnu/libacl.so.1";
    for (binary, stage, users) in [
        ("runc", "createRuntime", false),
        ("runc", "createRuntime", true),
        ("runc", "createContainer", false),
        ("crun", "createRuntime", false),
        ("crun", "createRuntime", true),
        ("crun", "createContainer", false),
    ] {
        for how in ["rw", "ro"] {
            let case = format!("{binary} {stage} {users} {how}");
            host.sh(&format!(
                "mkdir -p /run/volume && echo {library} > /run/volume/list"
            ))
            .ok();
            let mut oci = Oci::new(&host, binary, stage);
            let mut spec = Spec::new("volume").memory("2GiB");
            spec.user_namespace = users;
            let mut config = oci.config(&spec);
            config["mounts"]
                .as_array_mut()
                .expect("mounts")
                .push(json!({
                    "destination": "/etc/ld.so.preload", "type": "bind",
                    "source": "/run/volume/list", "options": ["rbind", how],
                }));
            oci.prepare_as(&spec, &config);
            // With shifted ids a runtime may lack the right to create mount points.
            let root = format!("{}/rootfs", Oci::bundle("volume"));
            host.sh(&format!("touch {root}/etc/ld.so.preload")).ok();
            let done = oci.run("volume");
            assert_eq!(done.code, 0, "{case}: {done:?}");
            // Another container of the pod removes the file of the volume.
            host.sh("rm /run/volume/list").ok();
            let list = oci.exec("volume", &["cat", "/etc/ld.so.preload"]).ok();
            let words: Vec<&str> = list.split_whitespace().collect();
            assert_eq!(words, ["/.gpuslice/libgpuslice.so", library], "{case}");
            assert_sliced(&oci, "volume", 2 * GIB);
            let script = "echo x > /.gpuslice/etc/ld.so.preload";
            let wrote = oci.exec("volume", &["sh", "-c", script]);
            assert_eq!(wrote.code == 0, how == "rw" && !users, "{case}: {wrote:?}");
            oci.remove("volume");
            assert_nothing_left(&host);
        }
    }
}

/// The mask makes the hook fail after it has attached everything. The policy lets the container start
/// all the same, without its slice.
#[test]
fn a_hook_that_fails_puts_the_volumes_back_where_they_were() {
    if !ready() {
        return;
    }
    let host = Host::new();
    host.write(
        "/etc/gpuslice/config.toml",
        "[on-error]\nannotated = \"start\"\n",
    );
    host.sh("mkdir /run/empty && echo volume > /run/volume && chmod 666 /run/volume")
        .ok();
    for (binary, stage) in [
        ("runc", "createRuntime"),
        ("runc", "createContainer"),
        ("crun", "createRuntime"),
        ("crun", "createContainer"),
    ] {
        for (root_is, place, mask) in [
            ("read-only", "/etc/debian_version", "/dev/gpuslice"),
            ("writable", "/etc/ld.so.preload", "/.gpuslice"),
        ] {
            let case = format!("{binary} {stage} {place}");
            let mut oci = Oci::new(&host, binary, stage);
            let spec = Spec::new("back").memory("2GiB");
            let mut config = oci.config(&spec);
            config["linux"]["maskedPaths"] = json!([mask]);
            config["mounts"]
                .as_array_mut()
                .expect("mounts")
                .push(json!({
                    "destination": place, "type": "bind",
                    "source": "/run/volume", "options": ["rbind", "ro"],
                }));
            oci.prepare_as(&spec, &config);
            let root = format!("{}/rootfs", Oci::bundle("back"));
            if root_is == "read-only" {
                host.sh(&format!(
                    "umount {root} && mount -t overlay -o lowerdir=/run/empty:/run/build/containers/debian overlay {root}"
                ))
                .ok();
            }
            let done = oci.run("back");
            assert_eq!(done.code, 0, "{case}: {done:?}");
            let mounts = oci.exec("back", &["cat", "/proc/self/mounts"]).ok();
            assert!(!mounts.contains("libgpuslice"), "{case}: {mounts}");
            let at_place = |line: &&str| line.split(' ').nth(1) == Some(place);
            assert_eq!(
                mounts.lines().filter(at_place).count(),
                1,
                "{case}: {mounts}"
            );
            let script = format!("cat {place} && echo x > {place}");
            let wrote = oci.exec("back", &["sh", "-c", &script]);
            assert_eq!(wrote.out, "volume\n", "{case}: {wrote:?}");
            assert_ne!(wrote.code, 0, "{case}: the volume can be written to");
            oci.remove("back");
            assert_nothing_left(&host);
        }
    }
}

#[test]
fn a_container_with_other_ids_gets_its_slice_from_the_stages_outside_it() {
    if !ready() {
        return;
    }
    let host = Host::new();
    let mut spec = Spec::new("mapped").memory("2GiB");
    spec.user_namespace = true;
    for binary in ["runc", "crun"] {
        for stage in OUTSIDE {
            let mut oci = Oci::new(&host, binary, stage);
            let id = oci
                .start(&spec)
                .unwrap_or_else(|done| panic!("{binary} {stage}: {done:?}"));
            assert_sliced(&oci, &id, 2 * GIB);
            let map = oci.exec(&id, &["cat", "/proc/self/uid_map"]).ok();
            assert!(map.contains("100000"), "{map}");
            oci.remove(&id);
        }
        // Inside the container the hook lacks the rights. It reports this, and the container does
        // not start.
        let mut oci = Oci::new(&host, binary, "createContainer");
        let done = oci.start(&spec).expect_err("no rights");
        assert_ne!(done.code, 0);
        assert_nothing_left(&host);
    }
    let mut podman = Podman::new(&host, "crun", "createRuntime");
    let id = podman.start(&spec).expect("it starts");
    assert_sliced(&podman, &id, 2 * GIB);
    podman.remove(&id);
}

#[test]
fn on_unified_memory_the_hosts_meminfo_is_asked_not_the_containers_copy() {
    if !ready() {
        return;
    }
    let host = Host::with("gb10");
    // lxcfs shows such a file, with the numbers of the cgroup.
    host.write(
        "/run/fake-meminfo",
        "MemTotal:        1048576 kB\nMemFree:          524288 kB\nMemAvailable:     524288 kB\n",
    );
    for binary in ["runc", "crun"] {
        // At createContainer the hook refuses unified memory.
        for stage in OUTSIDE {
            let mut oci = Oci::new(&host, binary, stage);
            let mut spec = Spec::new("spark").memory("40GiB");
            spec.gpus = "gb10";
            let mut config = oci.config(&spec);
            config["mounts"].as_array_mut().expect("mounts").push(json!({
                "destination": "/proc/meminfo", "type": "bind", "source": "/run/fake-meminfo", "options": ["bind", "ro"],
            }));
            oci.prepare_as(&spec, &config);
            oci.run("spark").ok();
            assert_sliced(&oci, "spark", 40 * GIB);
            let check = Check::run(&oci, "spark");
            let free = check.free().first().copied().unwrap_or_default();
            assert!(
                free > 39 * GIB,
                "{binary} {stage}: {free} free: {}",
                check.json()
            );
            oci.remove("spark");
            assert_nothing_left(&host);
        }
    }
}
