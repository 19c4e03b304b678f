//! Images of every kind: read-only, without glibc, with a volume at /etc, with a preload list of
//! their own.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Container, Host, is_root, text};
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn an_images_own_preload_list_is_kept_behind_ours() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    fs::write(
        container.rootfs().join("etc/ld.so.preload"),
        "/usr/lib/libjemalloc.so",
    )
    .unwrap();
    container.is_given_its_slice();
    assert_eq!(
        container.list(),
        "/.gpuslice/libgpuslice.so\n/usr/lib/libjemalloc.so\n"
    );
    let image = text(container.rootfs().join("etc/ld.so.preload"));
    assert_eq!(image, "/usr/lib/libjemalloc.so");
}

#[test]
fn etc_may_be_a_link_inside_the_image_and_may_be_missing() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("linked");
    fs::remove_dir(container.rootfs().join("etc")).unwrap();
    fs::create_dir_all(container.rootfs().join("usr/etc")).unwrap();
    symlink("usr/etc", container.rootfs().join("etc")).unwrap();
    container.is_given_its_slice();
    assert_eq!(
        text(container.inside("usr/etc/ld.so.preload")),
        "/.gpuslice/libgpuslice.so\n"
    );
    let container = host.container("missing");
    fs::remove_dir(container.rootfs().join("etc")).unwrap();
    container.is_given_its_slice();
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
}

/// Mounts a file system with the image in it over the container's root. `more` is the script that
/// continues on this file system.
fn on_own_file_system(container: &Container<'_>, more: &str) {
    let rootfs = container.rootfs().display().to_string();
    let script = format!(
        "set -e; mkdir {rootfs}.own; mount -t tmpfs t {rootfs}.own; cp -a {rootfs}/. {rootfs}.own; \
         mount --move {rootfs}.own {rootfs}; cd {rootfs}; {more}"
    );
    let said = container.run_inside(&["sh", "-c", &script]);
    assert!(said.status.success(), "{said:?}");
}

#[test]
fn a_root_that_is_mounted_read_only_is_served_and_stays_read_only() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    on_own_file_system(
        &container,
        &format!("mount -o remount,bind,ro {}", container.rootfs().display()),
    );
    container.is_given_its_slice();
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
    let tried = container.run_inside(&["touch", &format!("{}/x", container.rootfs().display())]);
    assert!(!tried.status.success(), "{tried:?}");
}

/// The same holds for EROFS, squashfs, and an overlay without an upper layer.
#[test]
fn a_read_only_file_system_gets_its_slice_in_dev_and_a_layer_over_etc() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    fs::write(container.rootfs().join("etc/passwd"), "root").unwrap();
    fs::write(container.rootfs().join("etc/hosts"), "image's").unwrap();
    let rootfs = container.rootfs().display().to_string();
    on_own_file_system(
        &container,
        &format!(
            "mount -o remount,ro {rootfs}; cd {rootfs}; mount -t tmpfs t dev; echo runtime > dev/hosts; \
             mount --bind dev/hosts etc/hosts"
        ),
    );
    container.is_given_its_slice();
    assert_eq!(container.list(), "/dev/gpuslice/libgpuslice.so\n");
    let slice = text(container.inside("dev/gpuslice/slice.json"));
    assert!(
        slice.contains("\"ledger\": \"/dev/gpuslice/ledger/ledger\""),
        "{slice}"
    );
    assert!(container.inside("dev/gpuslice/ledger/ledger").exists());
    assert_eq!(text(container.inside("etc/passwd")), "root");
    assert_eq!(text(container.inside("etc/hosts")), "runtime\n");
    // The next stage finds the slice in place and does not mount it again.
    let again = container.hook(&["prestart"]);
    assert!(
        again.status.success() && again.stderr.is_empty(),
        "{again:?}"
    );
    assert_eq!(container.list(), "/dev/gpuslice/libgpuslice.so\n");
}

#[test]
fn a_volume_at_etc_is_never_written_to() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let volume = host.path("volume");
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("hosts"), "volume's").unwrap();
    let mount = |container: &Container<'_>, more: &str| {
        let etc = container.rootfs().join("etc").display().to_string();
        let script = format!("mount --bind {} {etc}; {more} {etc}", volume.display());
        let said = container.run_inside(&["sh", "-c", &script]);
        assert!(said.status.success(), "{said:?}");
    };
    let writable = host.container("writable");
    mount(&writable, "true");
    let said = writable.is_refused();
    assert!(
        said.contains("/etc is a volume without ld.so.preload"),
        "{said}"
    );
    let read_only = host.container("read-only");
    mount(&read_only, "mount -o remount,bind,ro");
    read_only.is_given_its_slice();
    assert_eq!(read_only.list(), "/.gpuslice/libgpuslice.so\n");
    assert_eq!(text(read_only.inside("etc/hosts")), "volume's");
    let listed: Vec<_> = fs::read_dir(&volume).unwrap().collect();
    assert_eq!(listed.len(), 1, "{listed:?}");
}

/// Whoever can write to such a volume elsewhere could empty the list after the start.
#[test]
fn a_read_only_volume_with_our_line_is_not_taken_for_our_list() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let volume = host.path("volume");
    let container = host.container("c1");
    let list = container.rootfs().join("etc/ld.so.preload");
    fs::write(&list, "").unwrap();
    fs::write(&volume, "/.gpuslice/libgpuslice.so\n").unwrap();
    let (from, to) = (volume.display(), list.display());
    let script = format!("mount --bind {from} {to}; mount -o remount,bind,ro {to}");
    let said = container.run_inside(&["sh", "-c", &script]);
    assert!(said.status.success(), "{said:?}");
    container.is_given_its_slice();
    // The next stage finds the list in place.
    let again = container.hook(&["prestart"]);
    assert!(again.status.success(), "{again:?}");
    fs::write(&volume, "").unwrap();
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
}

/// Mounts a file of the host's over the container's list.
fn with_volume_as_list(container: &Container<'_>, volume: &std::path::Path) {
    let list = container.rootfs().join("etc/ld.so.preload");
    fs::write(&list, "").unwrap();
    let (from, to) = (volume.display().to_string(), list.display().to_string());
    let said = container.run_inside(&["mount", "--bind", &from, &to]);
    assert!(said.status.success(), "{said:?}");
}

/// The kernel detaches the mounts on a file that is removed from another mount namespace.
#[test]
fn a_volume_at_the_list_that_another_container_removes_leaves_the_list() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let volume = host.path("volume");
    fs::write(&volume, "/usr/lib/libjemalloc.so\n").unwrap();
    let container = host.container("c1");
    with_volume_as_list(&container, &volume);
    for stage in ["createRuntime", "prestart"] {
        let said = container.hook(&[stage]);
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    }
    fs::remove_file(&volume).unwrap();
    assert_eq!(
        container.list(),
        "/.gpuslice/libgpuslice.so\n/usr/lib/libjemalloc.so\n"
    );
}

#[test]
fn a_container_that_is_refused_has_its_volume_at_the_list_again() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let volume = host.path("volume");
    fs::write(&volume, "/usr/lib/libjemalloc.so\n").unwrap();
    let container = host.container("c1");
    with_volume_as_list(&container, &volume);
    let spec = serde_json::json!({
        "root": {"path": "rootfs"}, "annotations": {"gpuslice.io/memory": "8GiB"},
        "linux": {"maskedPaths": ["/etc"]},
    });
    fs::write(container.bundle.join("config.json"), spec.to_string()).unwrap();
    let said = container.is_refused();
    assert!(said.contains("mask /etc hides its slice"), "{said}");
    assert_eq!(container.list(), "/usr/lib/libjemalloc.so\n");
}

/// Another container could remove the volume's folder, and the slice with it.
#[test]
fn a_volume_where_the_slice_belongs_is_refused() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let volume = host.path("volume");
    fs::create_dir(&volume).unwrap();
    let container = host.container("c1");
    let place = container.rootfs().join(".gpuslice");
    fs::create_dir(&place).unwrap();
    let (from, to) = (volume.display().to_string(), place.display().to_string());
    let said = container.run_inside(&["mount", "--bind", &from, &to]);
    assert!(said.status.success(), "{said:?}");
    let said = container.is_refused();
    assert!(
        said.contains("the container has a volume at /.gpuslice or below, where its slice belongs"),
        "{said}"
    );
}

#[test]
fn a_volume_below_the_place_of_the_slice_is_not_covered() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    let spec = serde_json::json!({
        "root": {"path": "rootfs"},
        "annotations": {"gpuslice.io/memory": "8GiB"},
        "mounts": [{"destination": "/.gpuslice/data", "type": "bind", "source": "/srv"}],
    });
    fs::write(container.bundle.join("config.json"), spec.to_string()).unwrap();
    let said = container.is_refused();
    assert!(said.contains("volume at /.gpuslice or below"), "{said}");
}

/// The runtime mounts in the order of config.json, so a volume at /etc can cover a file's mount.
#[test]
fn a_mount_that_a_later_one_covers_does_not_keep_a_container_from_its_slice() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    for file in [true, false] {
        let container = host.container(&format!("covered-{file}"));
        let volume = host.path(&format!("volume-{file}"));
        fs::create_dir(&volume).unwrap();
        if file {
            fs::write(volume.join("hosts"), "of the volume").unwrap();
        }
        let (etc, volume) = (container.rootfs().join("etc"), volume.display());
        let script = format!(
            "cd {} && touch hosts && mount --bind hosts hosts && mount --bind {volume} . && \
             mount -o remount,bind,ro {}",
            etc.display(),
            etc.display()
        );
        let said = container.run_inside(&["sh", "-c", &script]);
        assert!(said.status.success(), "{said:?}");
        container.is_given_its_slice();
        assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
        let hosts = fs::read_to_string(container.inside("etc/hosts")).ok();
        assert_eq!(hosts.as_deref(), file.then_some("of the volume"));
    }
}

#[test]
fn images_that_cannot_load_the_library_start_without_it_or_not_at_all() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let loaders = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"];
    let without_loader = |container: &Container<'_>| {
        for loader in loaders {
            let _ = fs::remove_file(container.rootfs().join(loader));
        }
    };
    let scratch = host.container("scratch");
    without_loader(&scratch);
    let musl = host.container("musl");
    without_loader(&musl);
    fs::write(musl.rootfs().join("lib/ld-musl-x86_64.so.1"), "").unwrap();
    let old = host.container("old");
    let libc = format!("lib/{}-linux-gnu/libc.so.6", std::env::consts::ARCH);
    let libc = old.rootfs().join(libc);
    let mut bytes = fs::read(&libc).unwrap();
    // As if it had no such function: its hash is not in the table, whose last bit marks a chain's end.
    let step = |sum: u32, byte: &u8| sum.wrapping_mul(33).wrapping_add(u32::from(*byte));
    let hash = b"secure_getenv".iter().fold(5381, step);
    for entry in bytes.chunks_exact_mut(4) {
        let found = u32::from_le_bytes(entry.try_into().unwrap());
        if found | 1 == hash | 1 {
            entry.copy_from_slice(&(found ^ 0x8000_0000).to_le_bytes());
        }
    }
    // The other containers share this file, so it is replaced and not changed.
    fs::remove_file(&libc).unwrap();
    fs::write(&libc, bytes).unwrap();
    let cases = [
        (
            &scratch,
            "scratch starts without a slice: its image has no dynamic loader",
        ),
        (&musl, "musl starts without a slice: its image has musl"),
        (
            &old,
            "old starts without a slice: its image's glibc is too old: it has no secure_getenv",
        ),
    ];
    for (container, expected) in &cases {
        let said = container.hook(&["createRuntime"]);
        let told = String::from_utf8(said.stderr).unwrap();
        assert!(said.status.success(), "{told}");
        assert!(
            told.contains(expected) && told.lines().count() == 1,
            "{told}"
        );
        // Nothing is preloaded, and `gpuslice check` in the container finds only the reason.
        assert!(!container.inside("etc/ld.so.preload").exists(), "{told}");
        let seen = fs::read_dir(container.inside(".gpuslice")).unwrap();
        let seen: Vec<_> = seen.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(seen, ["no-slice"], "{told}");
        let why = fs::read_to_string(container.inside(".gpuslice/no-slice")).unwrap();
        assert!(
            told.ends_with(&format!(" without a slice: {why}")),
            "{told}"
        );
        let wrote = container.run_inside(&[
            "rm",
            "-f",
            &format!("{}/.gpuslice/no-slice", container.rootfs().display()),
        ]);
        assert!(!wrote.status.success(), "{wrote:?}");
        // The record keeps the reason, too.
        let record = text(host.run(&format!("slices/{}.json", container.id)));
        let record: serde_json::Value = serde_json::from_str(&record).unwrap();
        let why = record["containers"][0]["no_slice"].as_str().unwrap();
        assert!(told.contains(why), "{told}: {why}");
        assert!(container.hook(&["poststop"]).status.success());
    }
    host.policy("when-not-injectable = \"refuse\"");
    for (container, _) in &cases {
        let said = container.is_refused();
        assert!(
            said.contains("refuses containers that cannot load libgpuslice.so"),
            "{said}"
        );
    }
    // A sidecar that certainly has no GPU needs no library.
    let list = fs::read_to_string(host.run("devices.json")).unwrap();
    let list = list.replace("\"index\"", "\"minor\":0,\"index\"");
    fs::write(host.run("devices.json"), list).unwrap();
    for (container, _) in &cases {
        let spec = serde_json::json!({
            "root": {"path": "rootfs"}, "annotations": {"gpuslice.io/memory": "8GiB"},
            "linux": {"resources": {"devices": [{"allow": false, "access": "rwm"}]}},
        });
        fs::write(container.bundle.join("config.json"), spec.to_string()).unwrap();
        let said = container.hook(&["createRuntime"]);
        assert!(said.status.success(), "{said:?}");
        let told = String::from_utf8(said.stderr).unwrap();
        assert!(!told.contains("without a slice"), "{told}");
        assert!(container.hook(&["poststop"]).status.success());
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_static_program_is_named_in_one_line() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    let bin = container.rootfs().join("bin");
    fs::create_dir(&bin).unwrap();
    // A dynamic program without the name of its loader counts as a static one.
    let mut program = fs::read("/bin/true").unwrap();
    let headers = usize::try_from(u64::from_le_bytes(program[32..40].try_into().unwrap())).unwrap();
    let interp = (0..)
        .map(|index| headers + index * 56)
        .find(|at| program[*at] == 3)
        .unwrap();
    program[interp] = 0;
    fs::write(bin.join("static"), program).unwrap();
    fs::copy("/bin/true", bin.join("dynamic")).unwrap();
    let says = |program: &str| {
        let spec = serde_json::json!({
            "root": {"path": "rootfs"}, "annotations": {"gpuslice.io/memory": "8GiB"},
            "process": {"args": [program]},
        });
        fs::write(container.bundle.join("config.json"), spec.to_string()).unwrap();
        let said = container.hook(&["createRuntime"]);
        assert!(said.status.success(), "{said:?}");
        let record: serde_json::Value =
            serde_json::from_str(&text(host.run("slices/c1.json"))).unwrap();
        let member = &record["containers"][0];
        assert!(member["no_slice"].is_null(), "it has its slice: {record}");
        assert!(container.hook(&["poststop"]).status.success());
        for point in [".gpuslice", "etc/ld.so.preload"] {
            let point = container.rootfs().join(point).display().to_string();
            assert!(
                container
                    .run_inside(&["umount", "-l", &point])
                    .status
                    .success()
            );
        }
        let not_limited = member["not_limited"].as_str().map(str::to_owned);
        (String::from_utf8(said.stderr).unwrap(), not_limited)
    };
    let why =
        "its first program is static, so the slice limits only the dynamic programs that it starts";
    let expected = (
        format!("gpuslice: c1 starts, but {why}\n"),
        Some(why.to_owned()),
    );
    assert_eq!(says("/bin/static"), expected);
    assert_eq!(says("static"), expected);
    for dynamic in ["/bin/dynamic", "../../../../bin/true", "nowhere"] {
        assert_eq!(says(dynamic), (String::new(), None), "{dynamic}");
    }
}
