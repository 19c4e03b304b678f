//! The meminfo page over the /proc of a container.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Host, is_root, patience, text};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::meminfo_page;
use std::process::{Command, Stdio};

#[test]
fn the_page_does_not_appear_in_a_proc_that_the_container_shares() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let paths = HostPaths::below(host.path(""));
    let _daemon = meminfo_page::claim(&paths).unwrap().unwrap();
    let asked = [
        ("gpuslice.io/memory", "40GiB"),
        ("gpuslice.io/meminfo", "mount"),
    ];
    let mut container = host.asking("c1", &asked);
    container.dies();
    let proc = container.rootfs().join("proc");
    std::fs::create_dir(&proc).unwrap();
    let proc = proc.display().to_string();
    for words in [
        &["-t", "proc", "proc", &proc][..],
        &["--make-shared", &proc],
    ] {
        assert!(
            patience::output(Command::new("mount").args(words))
                .status
                .success()
        );
    }
    let mut child = Command::new("unshare")
        .args(["--mount", "--propagation", "unchanged"])
        .args(["sh", "-c", "echo; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = patience::lines(&mut child, "a container's first process").next();
    std::mem::swap(&mut container.process, &mut child);
    let said = container.hook(&["createRuntime"]);
    let table = text("/proc/self/mountinfo".into());
    let umount = patience::output(Command::new("umount").args(["--recursive", &proc]));
    assert!(umount.status.success(), "{umount:?}");
    let meminfo = format!("{proc}/meminfo");
    assert!(!table.contains(&meminfo), "{table}");
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(
        said.contains("the container shares its /proc with the host (rshared)"),
        "{said}"
    );
}
