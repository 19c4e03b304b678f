//! The host's log gives the reason for which a container was refused, because crun does not show
//! it.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Host, is_root};
use std::fs;
use std::os::unix::net::UnixDatagram;

/// Opens the log of the host. It receives what the hook writes.
fn log(host: &Host) -> UnixDatagram {
    fs::create_dir(host.path("dev")).unwrap();
    let log = UnixDatagram::bind(host.path("dev/log")).unwrap();
    log.set_nonblocking(true).unwrap();
    log
}

/// The next message. None: there is no further one.
fn message(log: &UnixDatagram) -> Option<String> {
    let mut bytes = [0; 2048];
    let length = log.recv(&mut bytes).ok()?;
    Some(std::str::from_utf8(&bytes[..length]).unwrap().to_owned())
}

#[test]
fn a_refusal_is_in_the_hosts_log() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let log = log(&host);
    let next = || {
        let message = message(&log)?;
        let (_, said) = message.split_once("]: ")?;
        Some(said.to_owned())
    };
    let big = host.asking("big", &[("gpuslice.io/memory", "20GiB")]);
    big.is_given_its_slice();
    assert_eq!(next(), None, "a success is not logged");

    let other = host.asking("other", &[("gpuslice.io/memory", "8GiB")]);
    let said = other.is_refused();
    let said = said
        .trim_end()
        .strip_prefix("gpuslice: ")
        .unwrap()
        .to_owned();
    assert!(said.contains("big"), "the holder is not named: {said}");
    assert_eq!(next(), Some(format!("other is refused: {said}")));

    // The log also names a container that starts without its slice.
    let old = host.container("old");
    fs::remove_dir_all(old.rootfs().join("lib64")).unwrap();
    let _ = fs::remove_file(old.rootfs().join("lib/ld-linux-aarch64.so.1"));
    host.policy("overcommit = true");
    assert!(old.hook(&["createRuntime"]).status.success());
    let said = next().unwrap();
    assert!(
        said.starts_with("old starts without a slice: its image has no dynamic loader"),
        "{said}"
    );
    host.policy("");

    // At createContainer /dev is the container's, and --dry-run refuses no container. So neither
    // writes to the log.
    for arguments in [&["createContainer"][..], &["--dry-run", "createRuntime"]] {
        other.hook(arguments);
        assert_eq!(next(), None, "{arguments:?}");
    }
}

/// NVIDIA's toolkit takes its limit from a variable that an image may set, and ignores ours.
#[test]
fn a_driver_limit_that_the_toolkit_raises_is_in_the_hosts_log() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let log = log(&host);
    fs::write(host.path("etc/gpuslice/config.toml"), "").unwrap();
    let container = host.container("raised");
    let file = container.bundle.join("config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["process"] = serde_json::json!({"env": [
        "NVIDIA_GPU_MEMORY_REQUEST=0", "NVIDIA_GPU_MEMORY_LIMIT=1000000",
    ]});
    config["hooks"] = serde_json::json!({"createRuntime": [
        {"path": "/usr/bin/gpuslice-hook", "args": ["gpuslice-hook", "createRuntime"]},
        {"path": "/usr/bin/nvidia-cdi-hook",
         "args": ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--gpu-id", crate::support::CARD]},
    ]});
    fs::write(&file, config.to_string()).unwrap();
    assert!(container.hook(&["createRuntime"]).status.success());
    let said = message(&log).unwrap();
    let expected = "]: raised: nvidia-cdi-hook runs after gpuslice-hook and raises the driver's limit to \
                    976.56 GiB (NVIDIA_GPU_MEMORY_LIMIT), so only the library enforces the slice";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_container_that_other_users_runs_do_not_count_is_in_the_hosts_log() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let log = log(&host);
    // No file can be made in it. A user can cause this by filling the folder.
    fs::write(host.path("run/gpuslice/tenants"), "").unwrap();
    let container = host.asking("llama", &[("gpuslice.io/memory", "8GiB")]);
    assert!(container.hook(&["createRuntime"]).status.success());
    let said = message(&log).unwrap();
    let expected = format!(
        "]: llama: the runs of other users do not count its memory: cannot write to {}: Not a \
         directory (os error 20)",
        host.path("run/gpuslice/tenants").display()
    );
    assert!(said.contains(&expected), "{said}");
}

/// Runtimes do not show what a hook says that succeeds. Go programs saw the whole host, and no log said
/// why.
#[test]
fn a_meminfo_page_that_cannot_be_made_is_in_the_hosts_log() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let log = log(&host);
    // No gpusliced writes pages here.
    let annotations = [
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/meminfo", "mount"),
    ];
    let said = host.asking("c1", &annotations).hook(&["createRuntime"]);
    assert!(said.status.success(), "{said:?}");
    let message = message(&log).unwrap();
    let line = "c1: /proc/meminfo shows the slice only to programs that load the library: ";
    assert!(message.contains(line), "{message}");
}
