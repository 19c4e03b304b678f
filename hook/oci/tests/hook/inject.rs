//! The container sees its slice after the hook has run; the host sees none of it.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Container, Host, is_root, patience, text};
use gpuslice_test_programs::write_program;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Output};

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
    assert_eq!((ledger.len(), ledger.mode() & 0o777), (164 << 10, 0o666));
    // On the host, the image has only an empty folder and an empty file.
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

/// As oci.md says, root in a container can rename /opt/gpuslice, but not a mount in its root
/// folder.
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
    // Root tries every change without CAP_SYS_ADMIN, as runtimes start containers.
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
    // Another test's mounts are in the table too, because its container was started first.
    let target = format!(" {}/.gpuslice ", container.rootfs().display());
    let mounts = table.lines().filter(|line| line.contains(&target));
    assert_eq!(mounts.count(), 1, "{table}");
}

#[test]
fn a_second_hook_that_fails_leaves_what_the_first_one_has_mounted() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy("[on-error]\nannotated = \"start\"\n");
    let container = host.container("c1");
    container.is_given_its_slice();
    // Users other than root could write to the library.
    let library = host.path("usr/lib/gpuslice/libgpuslice.so");
    fs::set_permissions(&library, fs::Permissions::from_mode(0o666)).unwrap();
    let said = container.is_refused();
    assert!(said.contains("libgpuslice.so"), "{said}");
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
    assert!(container.inside(".gpuslice/slice.json").exists());
    let left = host.left();
    for part in ["slices/c1.json", "containers/c1", "ledgers/c1"] {
        assert!(left.iter().any(|name| name == part), "{part}: {left:?}");
    }
}

/// SELinux labels the files that the hook creates for containers. Plain files stand in for
/// /sys/fs/selinux and /proc/thread-self/attr.
#[test]
fn on_a_host_with_selinux_new_files_have_the_label_of_containers_files() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let attributes = host.path("proc/thread-self/attr");
    fs::create_dir_all(&attributes).unwrap();
    fs::create_dir_all(host.path("sys/fs/selinux")).unwrap();
    fs::write(host.path("sys/fs/selinux/enforce"), "1").unwrap();
    let said = host.container("without").hook(&["createRuntime"]);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("SELinux may hide the slice"), "{said}");
    fs::write(attributes.join("fscreate"), "").unwrap();
    host.container("with").is_given_its_slice();
    let label = text(attributes.join("fscreate"));
    assert_eq!(label, "\nystem_u:object_r:container_file_t:s0");
}

#[test]
fn a_user_namespace_is_entered_as_its_own_root() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.container("c1");
    container.dies();
    // Only a process outside the namespace can write its id maps.
    let mut child = Command::new("unshare")
        .args(["--user", "--mount", "sh", "-c", "read go; exec sleep 600"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let proc = format!("/proc/{}", child.id());
    let own = fs::read_link("/proc/self/ns/user").unwrap();
    patience::until("it has its own user namespace", || {
        fs::read_link(format!("{proc}/ns/user")).unwrap() != own
    });
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("{proc}/{map}"), "0 100000 65536\n").unwrap();
    }
    let go = child.stdin.take();
    let own = fs::read_link("/proc/self/ns/mnt").unwrap();
    patience::until("it has its own mount namespace", || {
        fs::read_link(format!("{proc}/ns/mnt")).unwrap() != own
    });
    std::mem::swap(&mut container.process, &mut child);
    let mut chown = Command::new("chown");
    let chown = chown.args(["-R", "100000:100000"]).arg(container.rootfs());
    assert!(patience::output(chown).status.success());
    container.is_given_its_slice();
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
    assert!(container.inside(".gpuslice/ledger/ledger").exists());
    drop(go);
}

#[test]
fn the_library_must_be_roots_alone_and_readable_for_all() {
    if !is_root() {
        return;
    }
    for (mode, why) in [
        (0o666, "users other than root may write to it"),
        (0o640, "users other than root cannot read it (chmod o+r)"),
        (0o600, "users other than root cannot read it (chmod o+r)"),
    ] {
        let host = Host::new();
        let library = host.path("usr/lib/gpuslice/libgpuslice.so");
        fs::set_permissions(&library, fs::Permissions::from_mode(mode)).unwrap();
        let container = host.container("c1");
        let said = container.is_refused();
        assert!(said.contains(why), "{said}");
        assert_eq!(host.left(), Vec::<String>::new());
        assert!(!container.inside(".gpuslice").exists());
    }
}

/// Runs the hook at createContainer, in the container's mount namespace.
fn create_container(container: &Container<'_>) -> Output {
    let state = container.state().replace(&container.pid().to_string(), "1");
    let file = container.host.path("state.json");
    fs::write(&file, state).unwrap();
    let hook = env!("CARGO_BIN_EXE_gpuslice-hook");
    let root = container.host.path("");
    let command = format!(
        "exec {hook} --root {} createContainer < {}",
        root.display(),
        file.display()
    );
    container.run_inside(&["sh", "-c", &command])
}

/// Some configurations have only this stage. The hook then already runs in the container's mount
/// namespace, where the pid in its state means another process.
#[test]
fn at_create_container_alone_the_whole_work_is_done() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    for _ in 0..2 {
        let said = create_container(&container);
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
    }
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
    assert!(container.inside(".gpuslice/ledger/ledger").exists());
    // After createRuntime this stage has nothing left to do.
    let container = host.container("c2");
    container.is_given_its_slice();
    let own = container.bundle.display().to_string();
    let mounts = || {
        let table = text(format!("/proc/{}/mountinfo", container.pid()).into());
        table.lines().filter(|line| line.contains(&own)).count()
    };
    let before = mounts();
    let said = create_container(&container);
    assert!(
        !said.status.success(),
        "another process asked for the container's slice: {said:?}"
    );
    assert_eq!(mounts(), before);
}

/// A mount made at that stage is visible only in the container, so no other slice would know of its
/// promise.
#[test]
fn unified_memory_is_refused_at_create_container() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let container = host.container("c1");
    let said = create_container(&container);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(
        said.contains("c1 requests unified memory, which requires the hook at createRuntime"),
        "{said}"
    );
    assert_eq!(host.left(), Vec::<String>::new());
    assert!(!container.inside(".gpuslice").exists());
    container.is_given_its_slice();
}

/// A CVE of the toolkit 1.18: a mount that a container makes must not appear on the host.
#[test]
fn what_a_container_mounts_over_its_slice_does_not_appear_on_the_host() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut container = host.container("c1");
    container.dies();
    // The host shares its mounts, as systemd does, and the container receives them.
    let run = host.path("run").display().to_string();
    let shared = ["--bind", &run, &run];
    let mut mount = Command::new("mount");
    assert!(patience::output(mount.args(shared)).status.success());
    let mut mount = Command::new("mount");
    assert!(
        patience::output(mount.args(["--make-shared", &run]))
            .status
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
    let _ = patience::lines(&mut child, "a container's first process").next();
    std::mem::swap(&mut container.process, &mut child);
    container.is_given_its_slice();
    // Count only this host's mounts, because other tests mount at the same time.
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
    let mut umount = Command::new("umount");
    assert!(patience::output(umount.args(["-l", &run])).status.success());
}

/// The static hook cannot query the driver. It lets the host's own command do so, in an environment
/// that nothing else can influence.
#[test]
fn a_list_of_gpus_that_is_not_there_is_made_first() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let list = host.run("devices.json");
    let kept = host.path("kept.json");
    fs::rename(&list, &kept).unwrap();
    let command = host.path("gpuslice");
    let said = host.path("said");
    let script = format!(
        "#!/bin/sh\ntr '\\0' '\\n' < /proc/$$/environ > {said}\necho \"$@\" >> {said}\npwd >> {said}\ncp {} {}\n",
        kept.display(),
        list.display(),
        said = said.display()
    );
    write_program(&command, script);
    let allow = |mode| fs::set_permissions(&command, fs::Permissions::from_mode(mode)).unwrap();
    host.policy(&format!("command = {:?}", command.display().to_string()));
    // A container that requests no slice does not wait for the driver.
    let none = host.asking("none", &[]);
    none.is_given_its_slice();
    assert!(!said.exists());
    let container = host.container("c1");
    allow(0o777);
    let refused = container.is_refused();
    assert!(
        refused.contains("users other than root may write to it"),
        "{refused}"
    );
    allow(0o755);
    container.is_given_its_slice();
    let expected = format!(
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin\ndevices --write={}\n/\n",
        list.display()
    );
    assert_eq!(text(said), expected);
    assert_eq!(container.list(), "/.gpuslice/libgpuslice.so\n");
}

#[test]
fn a_driver_that_hangs_keeps_nobody_waiting_for_long() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    fs::remove_file(host.run("devices.json")).unwrap();
    let (command, pid) = (host.path("gpuslice"), host.path("pid"));
    // The command hangs as one does that queries the driver in a child process.
    let script = format!(
        "#!/bin/sh\ntrap '' TERM\nsleep 1000 &\necho $! > {}\nwhile :; do wait; done\n",
        pid.display()
    );
    write_program(&command, script);
    host.policy(&format!("command = {:?}", command.display().to_string()));
    host.asking("none", &[]).is_given_its_slice();
    assert!(
        !pid.exists(),
        "a container without a request queried the driver"
    );
    let start = std::time::Instant::now();
    let refused = host.container("c1").is_refused();
    assert!(start.elapsed().as_secs() < 60, "{refused}");
    for part in [
        "gpuslice: no list of GPUs exists, and gpuslice devices --write fails now",
        "has not ended after 10 s: the NVIDIA driver hangs or is still loading",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(host.left(), Vec::<String>::new());
    let asks = text(pid);
    let stat = || fs::read_to_string(format!("/proc/{}/stat", asks.trim()));
    while stat().is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(start.elapsed().as_secs() < 60, "the command was not killed");
        std::thread::yield_now();
    }
}
