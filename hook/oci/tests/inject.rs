//! What a container sees after the hook, and what the host sees: nothing.
//! Touches: mount namespaces of its own. Needs root.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use support::{Container, Host, SPARK, is_root};

fn text(path: std::path::PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_container_has_its_slice_and_the_host_sees_none_of_it() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    container.is_given_its_slice();
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
    let slice = text(container.inside(".gpuslice/slice.json"));
    assert!(slice.contains("\"memory\": 8589934592"), "{slice}");
    assert!(text(container.inside(".gpuslice/meminfo")).starts_with("MemTotal:"));
    let library = fs::read(container.inside(".gpuslice/libgpuslice.so")).unwrap();
    assert_eq!(
        library,
        fs::read(host.path("usr/lib/gpuslice/libgpuslice.so")).unwrap()
    );
    let ledger = fs::metadata(container.inside(".gpuslice/ledger/ledger")).unwrap();
    assert_eq!((ledger.len(), ledger.mode() & 0o777), (64 << 10, 0o666));
    // The host's side of the image has an empty folder and an empty file.
    let rootfs = container.rootfs();
    assert_eq!(fs::read_dir(rootfs.join(".gpuslice")).unwrap().count(), 0);
    assert_eq!(text(rootfs.join("etc/ld.so.preload")), "");
    let left = |said: std::process::Output| {
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
        host.left()
    };
    assert!(!host.left().is_empty());
    assert_eq!(left(container.hook(&["poststop"])), Vec::<String>::new());
    assert_eq!(left(container.hook(&["poststop"])), Vec::<String>::new());
}

/// oci.md: container root can rename /opt/gpuslice away. Not so a mount in the root.
#[test]
fn the_containers_root_cannot_change_what_it_is_given() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    container.is_given_its_slice();
    let rootfs = container.rootfs().display().to_string();
    let tries = format!(
        "cd {rootfs}; echo x > .gpuslice/slice.json; echo x > .gpuslice/libgpuslice.so; \
         echo x > etc/ld.so.preload; echo x > .gpuslice/meminfo; rm -rf .gpuslice; mv .gpuslice g; \
         rm -f etc/ld.so.preload; mv etc/ld.so.preload x; rm -f .gpuslice/ledger/ledger; umount -l .gpuslice; \
         mount -t tmpfs t .gpuslice; mount -o remount,rw,bind .gpuslice; true"
    );
    // Everything that root may without CAP_SYS_ADMIN, as runtimes start containers.
    let said = container.run_inside(&[
        "setpriv",
        "--bounding-set",
        "-sys_admin",
        "--inh-caps",
        "-sys_admin",
        "sh",
        "-c",
        &tries,
    ]);
    assert!(said.status.success(), "{said:?}");
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
    assert!(text(container.inside(".gpuslice/slice.json")).starts_with('{'));
    assert!(container.inside(".gpuslice/ledger/ledger").exists());
    assert!(
        fs::metadata(container.inside(".gpuslice/libgpuslice.so"))
            .unwrap()
            .len()
            > 1000
    );
}

#[test]
fn configured_twice_it_does_its_work_once() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    for verb in ["prestart", "createRuntime", "prestart"] {
        let said = container.hook(&[verb]);
        assert!(
            said.status.success() && said.stderr.is_empty(),
            "{verb}: {said:?}"
        );
    }
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
    let table = text(format!("/proc/{}/mountinfo", container.pid()).into());
    let mounts = table
        .lines()
        .filter(|line| line.contains("/rootfs/.gpuslice "));
    assert_eq!(mounts.count(), 1, "{table}");
}

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

/// Mounts a file system of its own over the container's root, with the image in it, for which
/// `remount` is then asked.
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

/// EROFS, squashfs, an overlay without an upper layer.
#[test]
fn a_file_system_that_nobody_can_write_to_is_served_by_dev_and_a_layer_over_etc() {
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
    // At the next stage it is still there, and not there twice.
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
    // As if it had none of its versions.
    for at in 0..bytes.len().saturating_sub(8) {
        if bytes[at..].starts_with(b"GLIBC_2.") {
            bytes[at + 6] = b'1';
        }
    }
    fs::write(&libc, bytes).unwrap();
    let cases = [
        (
            &scratch,
            "scratch starts without a slice: its image has no dynamic loader",
        ),
        (&musl, "musl starts without a slice: its image has musl"),
        (
            &old,
            "old starts without a slice: its image's glibc is too old: it has no GLIBC_2.",
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
        assert!(!container.inside(".gpuslice").exists(), "{told}");
        assert!(container.hook(&["poststop"]).status.success());
    }
    host.policy("when-not-injectable = \"refuse\"");
    for (container, _) in &cases {
        let said = container.is_refused();
        assert!(said.contains("no slice can be put into"), "{said}");
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn the_containers_of_a_pod_share_one_ledger_until_the_last_is_gone() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let pod = |id: &str, memory: &str| {
        let annotations = [
            ("gpuslice.io/memory", memory),
            ("gpuslice.io/share", "pod"),
            ("io.kubernetes.cri.container-name", id),
            (
                "io.kubernetes.cri.sandbox-id",
                "0123456789abcdef0123456789abcdef",
            ),
        ];
        host.asking(id, &annotations)
    };
    let (one, two, other) = (
        pod("one", "20GiB"),
        pod("two", "20GiB"),
        pod("other", "4GiB"),
    );
    one.is_given_its_slice();
    two.is_given_its_slice();
    let ledger = |container: &Container<'_>| {
        let facts = fs::metadata(container.inside(".gpuslice/ledger/ledger")).unwrap();
        (facts.dev(), facts.ino())
    };
    assert_eq!(ledger(&one), ledger(&two));
    let said = other.is_refused();
    assert!(
        said.contains("slice pod-0123456789abcdef is shared, and one has it with another budget"),
        "{said}"
    );
    assert!(one.hook(&["poststop"]).status.success());
    assert!(host.run("ledgers/pod-0123456789abcdef/ledger").exists());
    assert!(two.hook(&["poststop"]).status.success());
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn on_unified_memory_a_container_has_its_own_promise_and_reads_the_others() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.devices(&format!(
        r#"{{"uuid":"{SPARK}","index":0,"name":"NVIDIA GB10","memory":130663165952,"integrated":true}}"#
    ));
    fs::create_dir(host.path("proc")).unwrap();
    let meminfo = "MemTotal: 127600748 kB\nMemFree: 1000 kB\nMemAvailable: 104857600 kB\n";
    fs::write(host.path("proc/meminfo"), meminfo).unwrap();
    host.policy("reserve = \"8GiB\"");
    let asking = |id: &str, memory: &str| host.asking(id, &[("gpuslice.io/memory", memory)]);
    let one = asking("one", "60GiB");
    one.is_given_its_slice();
    assert_eq!(text(one.inside(".gpuslice/meminfo")), meminfo);
    // 100 - 8 - 60 = 32 are left, and not more until the first has spent some.
    let two = asking("two", "40GiB");
    let said = two.is_refused();
    assert!(
        said.contains(
            "32.00 GiB are left, 40.00 GiB are asked for; of the promises, held by one 60.00 GiB"
        ),
        "{said}"
    );
    let spent = (10u64 << 30).to_le_bytes();
    fs::write(one.inside(".gpuslice/promise"), spent).unwrap();
    two.is_given_its_slice();
    let promise = two
        .inside(".gpuslice/promises")
        .join(format!("{}.one", 60u64 << 30));
    assert_eq!(fs::read(&promise).unwrap(), spent);
    assert!(
        fs::write(&promise, "lies").is_err(),
        "another's promise was written to"
    );
    assert_eq!(
        fs::metadata(two.inside(".gpuslice/promise")).unwrap().len(),
        4096
    );
    for container in [&one, &two] {
        assert!(container.hook(&["poststop"]).status.success());
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

/// A tenant may make its own promise longer than promises are; there is room for others all
/// the same.
#[test]
fn a_tenant_cannot_fill_the_promises() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.devices(&format!(
        r#"{{"uuid":"{SPARK}","index":0,"name":"NVIDIA GB10","memory":130663165952,"integrated":true}}"#
    ));
    host.policy("overcommit = true");
    let (liar, honest) = (host.container("liar"), host.container("honest"));
    liar.is_given_its_slice();
    let filled = fs::write(liar.inside(".gpuslice/promise"), vec![1; 8 << 20]);
    assert!(
        filled.is_err(),
        "the promises are not in a file system of their own"
    );
    honest.is_given_its_slice();
    assert_eq!(
        fs::metadata(honest.inside(".gpuslice/promise"))
            .unwrap()
            .len(),
        4096
    );
}

#[test]
fn a_user_namespace_is_entered_as_its_own_root() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.container("c1");
    container.dies();
    // The maps of a namespace are written from outside of it.
    let mut child = Command::new("unshare")
        .args(["--user", "--mount", "sh", "-c", "read go; exec sleep 600"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let proc = format!("/proc/{}", child.id());
    let own = fs::read_link("/proc/self/ns/user").unwrap();
    while fs::read_link(format!("{proc}/ns/user")).unwrap() == own {
        std::thread::yield_now();
    }
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("{proc}/{map}"), "0 100000 65536\n").unwrap();
    }
    let go = child.stdin.take();
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    while fs::read_link(format!("{proc}/ns/mnt")).unwrap() == own {
        std::thread::yield_now();
    }
    std::mem::swap(&mut container.process, &mut child);
    let said = Command::new("chown")
        .args(["-R", "100000:100000"])
        .arg(container.rootfs())
        .output();
    assert!(said.unwrap().status.success());
    container.is_given_its_slice();
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
    assert!(container.inside(".gpuslice/ledger/ledger").exists());
    drop(go);
}

#[test]
fn the_library_must_be_roots_alone() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let library = host.path("usr/lib/gpuslice/libgpuslice.so");
    fs::set_permissions(&library, fs::Permissions::from_mode(0o666)).unwrap();
    let container = host.container("c1");
    let said = container.is_refused();
    assert!(said.contains("others than root may write to it"), "{said}");
    assert_eq!(host.left(), Vec::<String>::new());
    assert!(!container.inside(".gpuslice").exists());
}

/// Some runtimes' configurations have only this stage. The hook is then in the container's mount
/// namespace already, and the number that it is told means another process.
#[test]
fn at_create_container_alone_the_whole_work_is_done() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    let in_its_namespace = |container: &Container<'_>, verb: &str| {
        let state = container.state().replace(&container.pid().to_string(), "1");
        let file = host.path("state.json");
        fs::write(&file, state).unwrap();
        let hook = env!("CARGO_BIN_EXE_gpuslice-hook");
        let root = host.path("");
        let command = format!(
            "exec {hook} --root {} {verb} < {}",
            root.display(),
            file.display()
        );
        container.run_inside(&["sh", "-c", &command])
    };
    for _ in 0..2 {
        let said = in_its_namespace(&container, "createContainer");
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    }
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
    assert!(container.inside(".gpuslice/ledger/ledger").exists());
    // After createRuntime it has nothing to do, and does nothing.
    let container = host.container("c2");
    container.is_given_its_slice();
    let own = container.bundle.display().to_string();
    let mounts = || {
        let table = text(format!("/proc/{}/mountinfo", container.pid()).into());
        table.lines().filter(|line| line.contains(&own)).count()
    };
    let before = mounts();
    let said = in_its_namespace(&container, "createContainer");
    assert!(
        !said.status.success(),
        "another process asked for the container's slice: {said:?}"
    );
    assert_eq!(mounts(), before);
}

/// CVE of the toolkit 1.18: what a container mounts must not appear on the host.
#[test]
fn what_a_container_mounts_over_its_slice_does_not_appear_on_the_host() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.container("c1");
    container.dies();
    // The host's own mounts, shared as systemd makes them, and a container that receives them.
    let run = host.path("run").display().to_string();
    let shared = ["--bind", &run, &run];
    assert!(
        Command::new("mount")
            .args(shared)
            .status()
            .unwrap()
            .success()
    );
    assert!(
        Command::new("mount")
            .args(["--make-shared", &run])
            .status()
            .unwrap()
            .success()
    );
    let mut child = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "unchanged",
            "sh",
            "-c",
            "echo; exec sleep 600",
        ])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0];
    std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut ready).unwrap();
    std::mem::swap(&mut container.process, &mut child);
    container.is_given_its_slice();
    // Other tests mount things at the same time.
    let own = host.path("").display().to_string();
    let count = || {
        let table = text("/proc/self/mountinfo".into());
        table.lines().filter(|line| line.contains(&own)).count()
    };
    let before = count();
    for point in [
        "etc/ld.so.preload",
        ".gpuslice/slice.json",
        ".gpuslice/ledger/ledger",
        ".gpuslice",
    ] {
        let point = container.rootfs().join(point).display().to_string();
        let kind = if point.ends_with(".gpuslice") {
            ["-t", "tmpfs", "t"]
        } else {
            ["--bind", "/etc/hostname", ""]
        };
        let kind: Vec<&str> = kind.into_iter().filter(|word| !word.is_empty()).collect();
        let said = container.run_inside(&[&["mount"], &kind[..], &[&point]].concat());
        assert!(said.status.success(), "{said:?}");
    }
    assert_eq!(
        count(),
        before,
        "a mount of the container's appeared on the host"
    );
    container.dies();
    host.collect();
    assert!(
        Command::new("umount")
            .args(["-l", &run])
            .status()
            .unwrap()
            .success()
    );
}
