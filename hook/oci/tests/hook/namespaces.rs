//! Slices seen from another pid or time namespace: a process that cannot be seen is not considered
//! dead.
//! Touches: namespaces of its own. Needs root.

use crate::support::{Container, Host, is_root, patience};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs the hook for a container in new namespaces.
fn hook_in(host: &Host, unshare: &[&str], container: &Container<'_>) -> Output {
    let mut hook = Command::new("unshare")
        .args(unshare)
        .args([
            "--fork",
            "--",
            env!("CARGO_BIN_EXE_gpuslice-hook"),
            "--root",
        ])
        .arg(host.path(""))
        .arg("createRuntime")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let state = container.state();
    hook.stdin
        .take()
        .unwrap()
        .write_all(state.as_bytes())
        .unwrap();
    patience::ended(hook, "gpuslice-hook in other namespaces")
}

#[test]
fn a_hook_in_another_pid_namespace_frees_no_living_container_and_says_so() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let first = host.asking("first", &[("gpuslice.io/memory", "20GiB")]);
    first.is_given_its_slice();
    let left = host.left();
    let second = host.asking("second", &[("gpuslice.io/memory", "20GiB")]);
    // That namespace has no process with the container's pid.
    let done = hook_in(&host, &["--pid", "--mount-proc"], &second);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success(), "{said}");
    assert_eq!(host.left(), left);
    let script = format!(
        "sleep 600 >/dev/null 2>&1 & echo '{{\"id\":\"third\",\"pid\":'$!',\"bundle\":{:?}}}' | {} --root {} createRuntime",
        second.bundle,
        env!("CARGO_BIN_EXE_gpuslice-hook"),
        host.path("").display()
    );
    let mut unshare = Command::new("unshare");
    let own = ["--pid", "--mount-proc", "--fork", "--kill-child"];
    let done = patience::output(unshare.args(own).args(["sh", "-c", &script]));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        said.contains("no room for third") && said.contains("held by first 20.00 GiB"),
        "{said}"
    );
    assert!(
        said.contains("container first stays: its process"),
        "{said}"
    );
    assert_eq!(host.left(), left);
}

#[test]
fn a_hook_in_another_time_namespace_sees_who_lives() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut first = host.asking("first", &[("gpuslice.io/memory", "20GiB")]);
    let days = &["--time", "--boottime", "864000"];
    let done = hook_in(&host, days, &first);
    assert!(done.status.success(), "{done:?}");
    let second = host.asking("second", &[("gpuslice.io/memory", "20GiB")]);
    assert!(second.is_refused().contains("held by first 20.00 GiB"));
    let done = hook_in(&host, days, &second);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("held by first 20.00 GiB"), "{said}");
    first.dies();
    let done = hook_in(&host, days, &second);
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn below_a_rootless_engine_one_line_says_what_works_instead() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    let user = [
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
    ];
    let run = |container: &Container<'_>| {
        let mut hook = Command::new("setpriv")
            .args(user)
            .args([env!("CARGO_BIN_EXE_gpuslice-hook"), "--root"])
            .arg(host.path(""))
            .arg("createRuntime")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let state = container.state();
        let _ = hook.stdin.take().unwrap().write_all(state.as_bytes());
        patience::ended(hook, "gpuslice-hook without rights")
    };
    let done = run(&container);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(
        said.contains("rootless podman") && said.contains("gpuslice run"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let done = run(&host.asking("c2", &[]));
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_hook_at_the_wrong_stage_mounts_nothing_onto_the_host() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.asking("first", &[("gpuslice.io/memory", "8GiB")]);
    let left = host.left();
    // Process 1 and the hook have one mount namespace. At createContainer they never do.
    let script = format!(
        "echo {:?} | {} --root {} createContainer; exit $?",
        container.state(),
        env!("CARGO_BIN_EXE_gpuslice-hook"),
        host.path("").display()
    );
    let mut unshare = Command::new("unshare");
    let own = ["--pid", "--mount-proc", "--fork", "--kill-child"];
    let done = patience::output(unshare.args(own).args(["sh", "-c", &script]));
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success(), "{said}");
    assert!(
        said.contains("refusing createContainer in the host's mount namespace"),
        "{said}"
    );
    assert_eq!(host.left(), left);
    assert!(!container.rootfs().join(".gpuslice").exists());
    assert!(!container.inside(".gpuslice").exists());
}

/// As that of a service with `PrivateTmp=`. Runs on the host do not see what is mounted there.
#[test]
fn a_promise_in_an_engines_own_mount_namespace_is_reported() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let says = |id: &str, engine: &str| {
        let container = host.container(id);
        // The shell is process 1, and stands for the host.
        let script = format!(
            "unshare --mount sh -c 'echo; exec sleep 600' >{:?} & until [ -s {:?} ]; do :; done; \
             echo '{{\"id\":\"{id}\",\"pid\":'$!',\"bundle\":{:?}}}' | {engine} {} --root {} createRuntime",
            host.path(id),
            host.path(id),
            container.bundle,
            env!("CARGO_BIN_EXE_gpuslice-hook"),
            host.path("").display()
        );
        let mut unshare = Command::new("unshare");
        let own = ["--pid", "--mount-proc", "--fork", "--kill-child"];
        let done = patience::output(unshare.args(own).args(["sh", "-c", &script]));
        assert!(done.status.success(), "{done:?}");
        assert!(container.hook(&["poststop"]).status.success());
        String::from_utf8(done.stderr).unwrap()
    };
    assert_eq!(says("usual", ""), "");
    assert_eq!(
        says("private", "unshare --mount"),
        "gpuslice: private: runs on the host do not count this promise, nor this hook theirs, because the \
         engine has a mount namespace of its own (start it without PrivateTmp= and the like)\n"
    );
    // A file system that the host's first run has mounted is the engine's, too.
    let mounted = host.run("promises").display().to_string();
    let mount = format!("mount -t tmpfs none {mounted} && exec unshare --mount \"$@\"");
    assert_eq!(says("seen", &format!("sh -c '{mount}' sh")), "");
}
