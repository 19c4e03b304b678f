//! Whether a container starts when something fails. A container cannot switch off its host's
//! policy, and `on-error` decides about failures of the host.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{CARD, Container, Host, is_root};
use std::fs;
use std::os::unix::fs::symlink;

const DENY: &str = "deny-unannotated = true\n";
const DEFAULT: &str = "[default]\nmemory = \"2GiB\"\n";
const MAXIMUM: &str = "[maximum]\ncontainer = \"2GiB\"\n";
const START: &str = "[on-error]\nannotated = \"start\"\n";
const NAMESPACE: &str = "[namespaces.team]\ncontainer = \"2GiB\"\n";

/// Writes the configuration of an unannotated container whose environment is 16 MB in JSON.
fn with_a_large_environment(container: &Container<'_>) {
    let variable = "\\u003c".repeat(50_000);
    let env: Vec<String> = (0..54).map(|at| format!("\"X{at}={variable}\"")).collect();
    let text = format!(
        r#"{{"root":{{"path":"rootfs"}},"process":{{"args":["true"],"env":[{}]}}}}"#,
        env.join(",")
    );
    assert!(text.len() > 16_000_000);
    fs::write(container.bundle.join("config.json"), text).unwrap();
}

/// Asserts that the hook lets the container start without a slice. Returns the reason that it
/// reports.
fn starts_without(container: &Container<'_>) -> String {
    let said = container.hook(&["createRuntime"]);
    assert!(said.status.success(), "{said:?}");
    assert!(!container.inside(".gpuslice/slice.json").exists());
    String::from_utf8(said.stderr).unwrap()
}

#[test]
fn a_large_environment_switches_off_neither_deny_nor_the_default_slice() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.asking("c1", &[]);
    with_a_large_environment(&container);
    host.policy(DENY);
    let said = container.is_refused();
    assert!(
        said.contains("refuses containers that do not say"),
        "{said}"
    );
    host.policy(DEFAULT);
    container.is_given_its_slice();
    assert!(container.inside(".gpuslice/slice.json").exists());
}

type Block = (&'static str, fn(&Container<'_>));

/// The means by which a container's user can make the hook fail.
fn stumbling_blocks() -> Vec<Block> {
    vec![
        ("a link as its list", |one| {
            symlink("/nowhere", one.rootfs().join("etc/ld.so.preload")).unwrap();
        }),
        ("a folder as its list", |one| {
            fs::create_dir(one.rootfs().join("etc/ld.so.preload")).unwrap();
        }),
        ("a list without end", |one| {
            fs::write(one.rootfs().join("etc/ld.so.preload"), [b'x'; 5000]).unwrap();
        }),
        ("a volume as its /etc", |one| {
            let etc = one.rootfs().join("etc");
            let done = one.run_inside(&["mount", "-t", "tmpfs", "none", etc.to_str().unwrap()]);
            assert!(done.status.success(), "{done:?}");
        }),
        ("a file as its /etc", |one| {
            fs::remove_dir(one.rootfs().join("etc")).unwrap();
            fs::write(one.rootfs().join("etc"), "").unwrap();
        }),
        ("a pipe as its slice's place", |one| {
            nix::unistd::mkfifo(
                &one.rootfs().join(".gpuslice"),
                nix::sys::stat::Mode::S_IRWXU,
            )
            .unwrap();
        }),
        ("a configuration that is cut", |one| {
            fs::write(one.bundle.join("config.json"), "{\"root\":").unwrap();
        }),
        ("a configuration without end", |one| {
            let text = format!("{{\"mounts\":[{}", "[".repeat(9 << 20));
            fs::write(one.bundle.join("config.json"), text).unwrap();
        }),
        ("an annotation that nobody knows", |one| {
            let text = r#"{"root":{"path":"rootfs"},"annotations":{"gpuslice.io/memroy":"1GiB"}}"#;
            fs::write(one.bundle.join("config.json"), text).unwrap();
        }),
    ]
}

#[test]
fn what_a_container_brings_does_not_switch_off_the_default_slice() {
    if !is_root() {
        return;
    }
    for (case, bring) in stumbling_blocks() {
        let host = Host::new();
        let container = host.asking("c1", &[]);
        bring(&container);
        // This holds even where the operator lets containers start when something fails.
        for errors in [
            "",
            "[on-error]\nannotated = \"start\"\nothers = \"start\"\n",
        ] {
            host.policy(&format!("{DEFAULT}{errors}"));
            let said = container.hook(&["createRuntime"]);
            assert_eq!(said.status.code(), Some(1), "{case}: {said:?}");
            assert_eq!(host.left(), Vec::<String>::new(), "{case}");
        }
        // Without a default slice such a container is none of the hook's concern.
        if !case.contains("annotation") {
            host.policy("");
            assert!(
                container.hook(&["createRuntime"]).status.success(),
                "{case}"
            );
        }
    }
}

#[test]
fn what_a_container_brings_does_not_switch_off_deny_unannotated() {
    if !is_root() {
        return;
    }
    for (case, bring) in stumbling_blocks() {
        let host = Host::new();
        host.policy(&format!("{DENY}{START}"));
        for annotations in [&[][..], &[("gpuslice.io/memory", "1GiB")]] {
            let container = host.asking(&format!("c{}", annotations.len()), annotations);
            bring(&container);
            let said = container.hook(&["createRuntime"]);
            assert_eq!(said.status.code(), Some(1), "{case}: {said:?}");
        }
    }
}

#[test]
fn what_a_container_brings_does_not_switch_off_a_maximum() {
    if !is_root() {
        return;
    }
    for (case, bring) in stumbling_blocks() {
        for maximum in [MAXIMUM, NAMESPACE] {
            let host = Host::new();
            host.policy(&format!("{maximum}{START}"));
            let annotated = ("gpuslice.io/memory", "1GiB");
            let container = host.asking("c1", &[annotated, ("gpuslice.io/namespace", "team")]);
            bring(&container);
            let said = container.hook(&["createRuntime"]);
            assert_eq!(said.status.code(), Some(1), "{case}, {maximum}: {said:?}");
        }
    }
}

#[test]
fn without_a_list_of_gpus_deny_unannotated_still_holds() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy(DENY);
    for list in ["", "garbage"] {
        match list {
            "" => fs::remove_file(host.run("devices.json")).unwrap(),
            text => fs::write(host.run("devices.json"), text).unwrap(),
        }
        let said = host.asking("c1", &[]).is_refused();
        assert!(
            said.contains("refuses containers that do not say"),
            "{said}"
        );
    }
}

/// A container without annotations that is given the host's GPU.
fn with_a_gpu<'a>(host: &'a Host, id: &str) -> Container<'a> {
    host.devices(&format!(
        r#"{{"uuid":"{CARD}","index":0,"minor":0,"name":"Card","memory":{}}}"#,
        24u64 << 30
    ));
    let container = host.asking(id, &[]);
    let spec = serde_json::json!({"root": {"path": "rootfs"}, "linux": {
        "namespaces": [{"type": "pid"}],
        "devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}],
    }});
    fs::write(container.bundle.join("config.json"), spec.to_string()).unwrap();
    container
}

#[test]
fn a_container_that_asks_for_nothing_has_no_more_than_the_maximum() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy("[maximum]\ncontainer = \"16GiB\"\n");
    let first = with_a_gpu(&host, "first");
    assert!(first.hook(&["createRuntime"]).status.success());
    let slice = fs::read_to_string(first.inside(".gpuslice/slice.json")).unwrap();
    assert!(slice.contains(&(16u64 << 30).to_string()), "{slice}");
    // It grants no memory, so a second one starts on the same GPU.
    let second = with_a_gpu(&host, "second");
    assert!(second.hook(&["createRuntime"]).status.success());
    // Without a list of GPUs, a container that is given none starts.
    fs::write(host.run("devices.json"), "garbage").unwrap();
    let sidecar = host.asking("sidecar", &[]);
    let spec = serde_json::json!({"root": {"path": "rootfs"}, "linux": {
        "resources": {"devices": [{"allow": false, "access": "rwm"}]},
    }});
    fs::write(sidecar.bundle.join("config.json"), spec.to_string()).unwrap();
    assert_eq!(starts_without(&sidecar), "");
}

type HostFailure = (&'static str, fn(&Host));

/// The possible failures of the host, each with a word of its message.
fn failures_of_the_host() -> Vec<HostFailure> {
    vec![
        ("devices.json", |host| {
            fs::write(host.run("devices.json"), "garbage").unwrap();
        }),
        ("list of GPUs", |host| {
            fs::remove_file(host.run("devices.json")).unwrap();
        }),
        ("is not a valid slice record", |host| {
            fs::create_dir_all(host.run("slices")).unwrap();
            fs::write(host.run("slices/other.json"), "\0").unwrap();
        }),
        ("libgpuslice.so", |host| {
            fs::remove_file(host.path("usr/lib/gpuslice/libgpuslice.so")).unwrap();
        }),
        (
            "which does not understand \"enforce\" in a slice file",
            |host| {
                host.change_library(b"\nenforce\n", b"\nenforcx\n");
            },
        ),
        ("does not state its release", |host| {
            host.change_library(b"\0.gpuslice\0", b"\0.gpusslic\0");
        }),
        ("cannot make", |host| {
            fs::write(host.run("ledgers"), "no folder").unwrap();
        }),
    ]
}

#[test]
fn on_error_decides_about_a_failure_of_the_host() {
    if !is_root() {
        return;
    }
    for (word, fail) in failures_of_the_host() {
        let host = Host::new();
        fail(&host);
        for policy in ["", DEFAULT] {
            host.policy(policy);
            let said = host.container("asks").is_refused();
            assert!(said.contains(word), "{word}: {said}");
            host.policy(&format!("{policy}[on-error]\nannotated = \"start\"\n"));
            let said = starts_without(&host.container("asks"));
            assert!(said.contains(word), "{word}: {said}");
        }
        host.policy(DEFAULT);
        let said = starts_without(&host.asking("default", &[]));
        assert!(said.contains(word), "{word}: {said}");
        host.policy(&format!("{DEFAULT}[on-error]\nothers = \"refuse\"\n"));
        let said = host.asking("default", &[]).is_refused();
        assert!(said.contains(word), "{word}: {said}");
        // A container without a slice needs nothing from the host.
        host.policy("[on-error]\nothers = \"refuse\"\n");
        host.asking("plain", &[]).is_given_its_slice();
        for made in ["slices/other.json", "ledgers"] {
            let _ = fs::remove_file(host.run(made));
        }
    }
}

#[test]
fn a_library_of_another_release_that_understands_the_slice_is_reported() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let ours = env!("CARGO_PKG_VERSION");
    let other = format!("{:0<length$}", "9.9.9", length = ours.len());
    let stated = |release: &str| format!("{release}\nversion\n").into_bytes();
    host.change_library(&stated(ours), &stated(&other));
    let container = host.container("c1");
    let said = container.hook(&["createRuntime"]);
    assert!(said.status.success(), "{said:?}");
    let line = format!("libgpuslice.so is from gpuslice {other}, this hook from {ours}");
    assert!(
        String::from_utf8_lossy(&said.stderr).contains(&line),
        "{said:?}"
    );
    assert!(container.inside(".gpuslice/slice.json").exists());
}

#[test]
fn a_start_that_a_full_run_refuses_leaves_no_file_behind() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    fs::create_dir(host.run("slices")).unwrap();
    let flags = nix::mount::MsFlags::empty();
    let none: Option<&str> = None;
    let full = Some("size=4k,nr_inodes=9");
    nix::mount::mount(none, &host.run("slices"), Some("tmpfs"), flags, full).unwrap();
    fs::write(host.run("slices/filler"), [0; 4096]).unwrap();
    let said = container.is_refused();
    assert!(
        said.contains("cannot write") && said.contains("No space left"),
        "{said}"
    );
    assert_eq!(host.left(), ["slices/filler"]);
    fs::remove_file(host.run("slices/filler")).unwrap();
    // The unfinished record of a hook that was killed.
    fs::write(host.run("slices/c9.new"), "").unwrap();
    host.collect();
    assert_eq!(host.left(), Vec::<String>::new());
    nix::mount::umount(&host.run("slices")).unwrap();
}

#[test]
fn the_end_of_a_refused_container_waits_for_no_lock() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let other = host.asking("other", &[("gpuslice.io/memory", "20GiB")]);
    other.is_given_its_slice();
    let refused = host.asking("refused", &[("gpuslice.io/memory", "20GiB")]);
    refused.is_refused();
    let lock = fs::File::open(host.run("lock")).unwrap();
    lock.lock().unwrap();
    let start = std::time::Instant::now();
    assert!(refused.hook(&["poststop"]).status.success());
    assert!(start.elapsed().as_secs() < 4, "{:?}", start.elapsed());
}

/// A process that is stopped while it holds the lock delays the start of containers.
#[test]
fn a_start_waits_half_a_minute_for_a_lock_that_another_process_holds() {
    if !is_root() {
        return;
    }
    let start = |policy: &str, is_refused: bool| {
        let host = Host::new();
        host.asking("other", &[("gpuslice.io/memory", "2GiB")])
            .is_given_its_slice();
        host.policy(policy);
        let lock = fs::File::open(host.run("lock")).unwrap();
        lock.lock().unwrap();
        let container = host.asking("c1", &[("gpuslice.io/memory", "2GiB")]);
        let start = std::time::Instant::now();
        let said = match is_refused {
            true => container.is_refused(),
            false => starts_without(&container),
        };
        assert!(
            said.contains("another gpuslice process has not released the lock"),
            "{said}"
        );
        // Half a minute for the slice, and five seconds for a record of why there is none.
        let waited = start.elapsed().as_secs();
        assert!((30..50).contains(&waited), "{waited} s");
    };
    std::thread::scope(|threads| {
        threads.spawn(|| start("", true));
        threads.spawn(|| start(START, false));
    });
}
