//! Attacks by images, pods and broken runtimes: each is refused with a clear message, and the host
//! is unchanged.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Host, hook, is_root, patience};
use nix::sys::stat::Mode;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes a folder on the host that must never change.
fn canary(host: &Host) -> std::path::PathBuf {
    let folder = host.path("hosts-own");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn is_untouched(folder: &Path) {
    let found: Vec<_> = fs::read_dir(folder).unwrap().collect();
    assert!(found.is_empty(), "{found:?}");
}

/// CVE-2024-0132, CVE-2025-23359: a path in the image leads to the host.
#[test]
fn an_etc_that_leads_out_of_the_image_leads_nowhere() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let folder = canary(&host);
    let above = format!("{}{}", "../".repeat(32), &folder.display().to_string()[1..]);
    let magic = format!("/proc/1/root{}", folder.display());
    let own_magic = format!("/proc/self/root{}", folder.display());
    let absolute = folder.display().to_string();
    for (name, target) in [
        ("absolute", absolute.as_str()),
        ("above", &above),
        ("magic", &magic),
        ("own-magic", &own_magic),
        ("itself", "etc"),
        ("descriptor", "/proc/self/fd/0"),
    ] {
        let container = host.container(name);
        let rootfs = container.rootfs();
        fs::remove_dir(rootfs.join("etc")).unwrap();
        symlink(target, rootfs.join("etc")).unwrap();
        // The container needs the links of a real /proc.
        fs::create_dir(rootfs.join("proc")).unwrap();
        let point = rootfs.join("proc").display().to_string();
        assert!(
            container
                .run_inside(&["mount", "-t", "proc", "p", &point])
                .status
                .success()
        );
        let said = container.is_refused();
        assert!(said.contains("in the container"), "{name}: {said}");
        is_untouched(&folder);
        // The mounts of the failed call are removed again.
        assert!(!container.inside(".gpuslice/slice.json").exists(), "{name}");
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

/// CVE-2025-23267: the last part of a path is a link. A pipe would block any process that opens it.
#[test]
fn a_preload_list_that_is_a_link_a_pipe_or_a_folder_is_refused() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let folder = canary(&host);
    let outside = folder.join("list");
    type Make<'a> = (&'a str, &'a dyn Fn(&Path));
    let make: [Make<'_>; 4] = [
        ("link", &|at| symlink(&outside, at).unwrap()),
        ("inner-link", &|at| symlink("passwd", at).unwrap()),
        ("pipe", &|at| {
            nix::unistd::mkfifo(at, Mode::from_bits_truncate(0o666)).unwrap()
        }),
        ("folder", &|at| fs::create_dir(at).unwrap()),
    ];
    for (name, make) in make {
        let container = host.container(name);
        make(&container.rootfs().join("etc/ld.so.preload"));
        let said = container.is_refused();
        assert!(
            said.contains("the image's /etc/ld.so.preload is not a regular file"),
            "{name}: {said}"
        );
        is_untouched(&folder);
    }
    let long = host.container("long");
    fs::write(long.rootfs().join("etc/ld.so.preload"), vec![b'#'; 4097]).unwrap();
    let said = long.is_refused();
    assert!(said.contains("more than 4096 bytes"), "{said}");
}

/// CVE-2024-0133: a file made for an image must be inside the image.
#[test]
fn a_slice_folder_that_is_a_link_is_refused() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let folder = canary(&host);
    let container = host.container("c1");
    symlink(&folder, container.rootfs().join(".gpuslice")).unwrap();
    let said = container.is_refused();
    assert!(said.contains("cannot make /.gpuslice"), "{said}");
    is_untouched(&folder);
}

/// CVE-2021-30465, CVE-2026-24260: the owner of a volume swaps folders while the hook resolves a
/// path.
#[test]
fn a_folder_that_is_swapped_all_the_time_leads_nowhere_else() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let folder = canary(&host);
    let (mut injected, mut refused) = (0, 0);
    for round in 0..60 {
        let container = host.container("race");
        let rootfs = container.rootfs();
        let (etc, out) = (rootfs.join("etc"), rootfs.join("out"));
        if round == 0 {
            symlink(&folder, &out).unwrap();
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stops = patience::Stops(&stop);
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let exchange = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
                    let here = nix::fcntl::AT_FDCWD;
                    nix::fcntl::renameat2(here, &etc, here, &out, exchange).unwrap();
                }
            });
            let said = container.hook(&["createRuntime"]);
            drop(stops);
            match said.status.code() {
                Some(0) => injected += 1,
                Some(1) => refused += 1,
                _ => panic!("{said:?}"),
            }
        });
        is_untouched(&folder);
    }
    println!("{injected} injected, {refused} refused");
    assert!(
        injected > 0,
        "no start succeeded, so the race was not tested"
    );
}

/// CVE-2025-23266: an image's environment reaches the hook. The hook clears it, so it has no
/// effect.
#[test]
fn an_environment_says_nothing() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.asking("c1", &[]);
    let spec = r#"{"root":{"path":"rootfs"},"process":{"env":["GPUSLICE_CONFIG=/x","gpuslice.io/memory=1GiB"]}}"#;
    fs::write(container.bundle.join("config.json"), spec).unwrap();
    container.is_given_its_slice();
    assert!(!container.inside(".gpuslice").exists());
}

fn with_state(host: &Host, state: &str) -> String {
    let said = hook(host, &["createRuntime"], state);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    String::from_utf8(said.stderr).unwrap()
}

#[test]
fn broken_states_and_bundles_are_refused_in_clear_words() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let says = |state: &str, expected: &str| {
        let said = with_state(&host, state);
        assert!(
            said.contains(expected) && said.lines().count() == 1,
            "{said}"
        );
    };
    says("", "is not an OCI state");
    says(r#"{"id":"a","bundle":"/b""#, "is not an OCI state");
    says(
        r#"{"id":"../../etc","bundle":"/b"}"#,
        "\"../../etc\" is not a container id",
    );
    says(r#"{"id":"a","bundle":"b"}"#, "is not an absolute path");
    let annotated = r#"{"id":"a","pid":4711,"annotations":{"gpuslice.io/memory":"8GiB"}"#;
    says(&format!("{annotated}}}"), "names no bundle");
    says(
        &format!("{annotated},\"bundle\":\"/nowhere\"}}"),
        "cannot read /nowhere/config.json",
    );
    let container = host.container("c1");
    let config = container.bundle.join("config.json");
    let annotations = format!("{annotated},\"bundle\":{:?}}}", container.bundle);
    fs::write(&config, r#"{"root":{"path":"roo"#).unwrap();
    says(&annotations, "is not an OCI config.json");
    fs::File::create(&config).unwrap().set_len(1 << 30).unwrap();
    says(&annotations, "is not an OCI config.json: it is not JSON");
    let long = format!(
        r#"{{"mounts":[{{"destination":"{}"}}]}}"#,
        "x".repeat(9 << 20)
    );
    fs::write(&config, long).unwrap();
    says(
        &annotations,
        "the members that gpuslice needs exceed 8388608 bytes",
    );
    // It does not stop a container that requests no slice.
    let unannotated = format!(r#"{{"id":"a","pid":4711,"bundle":{:?}}}"#, container.bundle);
    let said = hook(&host, &["createRuntime"], &unannotated);
    assert!(said.status.success(), "{said:?}");
    assert!(
        String::from_utf8(said.stderr)
            .unwrap()
            .contains("a starts without a slice")
    );
}

#[test]
fn a_process_that_is_no_containers_is_refused() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    let state = |pid: u32| {
        container.state().replace(
            &format!("\"pid\":{}", container.pid()),
            &format!("\"pid\":{pid}"),
        )
    };
    for pid in [0, 1] {
        assert!(with_state(&host, &state(pid)).contains("which cannot be a container's"));
    }
    let said = with_state(&host, &state(std::process::id()));
    assert!(said.contains("has no mount namespace of its own"), "{said}");
    assert!(with_state(&host, &state(4_190_000)).contains("is gone"));
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn what_an_annotation_cannot_say_keeps_the_container_from_starting() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy("[maximum]\ncontainer = \"8GiB\"");
    let says = |id: &str, annotation: (&str, &str), expected: &str| {
        let said = host.asking(id, &[annotation]).is_refused();
        assert!(said.contains(expected), "{said}");
    };
    says(
        "typo",
        ("gpuslice.io/memroy", "8GiB"),
        "unknown annotation gpuslice.io/memroy",
    );
    says("unit", ("gpuslice.io/memory", "12Q"), "not a size");
    says(
        "more",
        ("gpuslice.io/memory", "9GiB"),
        "9.00 GiB is more than this host's policy allows",
    );
    host.policy("deny-unannotated = true");
    let said = host.asking("none", &[]).is_refused();
    assert!(
        said.contains("refuses containers that do not say how much"),
        "{said}"
    );
    host.policy("deny-unanotated = true");
    let said = host.container("typo-in-policy").is_refused();
    assert!(said.contains("unknown field `deny-unanotated`"), "{said}");
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn an_unknown_verb_is_no_error_and_poststart_does_nothing() {
    let host = Host::new();
    let said = hook(&host, &["startContainer"], "");
    assert!(said.status.success());
    assert_eq!(
        said.stderr,
        b"gpuslice: unknown stage startContainer: nothing is done\n"
    );
    let said = hook(&host, &["poststart"], "");
    assert!(said.status.success() && said.stderr.is_empty());
}

#[test]
fn a_runtime_can_write_its_state_also_where_nothing_is_done_with_it() {
    // The state is larger than a pipe's buffer. crun fails a container whose hook exits before crun
    // has written all of it.
    let state = [b' '; 256 << 10];
    for verb in ["poststart", "startContainer"] {
        let mut hook = std::process::Command::new(env!("CARGO_BIN_EXE_gpuslice-hook"))
            .arg(verb)
            .stdin(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let written = std::io::Write::write_all(&mut hook.stdin.take().unwrap(), &state);
        assert!(written.is_ok(), "{verb}: {written:?}");
        assert!(patience::ended(hook, verb).status.success());
    }
}

#[test]
fn the_policy_says_what_becomes_of_a_container_when_something_breaks() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let library = host.path("usr/lib/gpuslice/libgpuslice.so");
    fs::rename(&library, host.path("elsewhere")).unwrap();
    let annotated = host.container("annotated");
    assert!(annotated.is_refused().contains("cannot mount"));
    host.policy(
        "[on-error]\nannotated = \"start\"\nothers = \"refuse\"\n[default]\nmemory = \"1GiB\"",
    );
    let said = annotated.hook(&["createRuntime"]);
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(said.status.success(), "{told}");
    assert!(
        told.starts_with("gpuslice: annotated starts without a slice: cannot mount"),
        "{told}"
    );
    assert!(
        host.asking("other", &[])
            .is_refused()
            .contains("cannot mount")
    );
    // A container that does not fit never starts, whatever `on-error` says.
    let more = host.asking("more", &[("gpuslice.io/memory", "88GiB")]);
    assert!(more.is_refused().contains("88.00 GiB is more than GPU 0"));
    // `gpuslice status` shows this record.
    assert_eq!(host.left(), ["slices/annotated.json"]);
    assert!(annotated.hook(&["poststop"]).status.success());
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_container_that_starts_all_the_same_has_nothing_of_a_slice_in_it() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy("[on-error]\nannotated = \"start\"");
    let container = host.container("c1");
    // The hook mounts the slice before it looks at the preload list.
    symlink("elsewhere", container.rootfs().join("etc/ld.so.preload")).unwrap();
    let said = container.hook(&["createRuntime"]);
    assert!(said.status.success(), "{said:?}");
    assert!(container.inside(".gpuslice").exists());
    assert_eq!(
        fs::read_dir(container.inside(".gpuslice")).unwrap().count(),
        0
    );
    assert_eq!(host.left(), ["slices/c1.json"]);
}
