//! A pod enters its node's mounts, starts programs there, and removes gpuslice from it.
//! Touches: PID and mount namespaces of its own, which need root.

use std::path::Path;
use std::process::{Command, Output};

/// Runs shell commands as the first process of a node with an empty /mnt and /run.
fn on_a_node(commands: &str) -> Output {
    let start = format!(
        "set -e\nmount -t tmpfs -o mode=755 none /mnt\nmount -t tmpfs -o mode=755 none /run\n{commands}"
    );
    let node = env!("CARGO_BIN_EXE_gpuslice-node");
    // The program may lie below one of the hidden folders.
    assert!(!Path::new(node).starts_with("/mnt") && !Path::new(node).starts_with("/run"));
    // The commands wait for each other; a failure among them must not wait for ever.
    Command::new("timeout")
        .args([
            "120",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ])
        .args(["sh", "-c", &start])
        .env("NODE", node)
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap_or_else(|error| panic!("timeout of coreutils: {error}"))
}

fn printed(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_program_of_the_node_sees_the_mounts_of_the_node() {
    let output = on_a_node(
        "touch /mnt/of-the-node\n\
         unshare --mount sh -c 'mount -t tmpfs none /mnt; ls /mnt; $NODE on-host /bin/sh -c \"pwd; ls /mnt\"'",
    );
    let (said, complaint) = printed(&output);
    assert_eq!(said, "/\nof-the-node\n", "{complaint}");
}

#[test]
fn a_pod_that_stays_after_a_program_has_no_rights_left() {
    let output = on_a_node(
        "stay() { unshare --mount $NODE on-host --stay /bin/sh -c \"$1\" & }\n\
         stay 'exec >/mnt/done; id -u'; pod=$!\n\
         until grep -q Uid:.65534.65534.65534 /proc/$pod/status; do sleep 0.1; done\n\
         grep -E '^(Gid|CapPrm|CapEff|Groups)' /proc/$pod/status\n\
         cat /mnt/done\n\
         kill $pod",
    );
    let (said, complaint) = printed(&output);
    let words: Vec<&str> = said.split_whitespace().collect();
    let none = "0000000000000000";
    let nobody = ["65534"; 4];
    let expected = [
        &["Gid:"],
        nobody.as_slice(),
        &["Groups:", "CapPrm:", none, "CapEff:", none, "0"],
    ];
    assert_eq!(words, expected.concat(), "{complaint}");
}

#[test]
fn a_pod_ends_if_the_program_that_it_waits_for_fails() {
    let output = on_a_node(
        "unshare --mount $NODE on-host --stay /bin/sh -c 'echo no driver >&2; exit 2' || echo $?",
    );
    let (said, complaint) = printed(&output);
    let expected = "no driver\ngpuslice: /bin/sh failed (exit status: 2)\n";
    assert_eq!((said.as_str(), complaint.as_str()), ("1\n", expected));
}

#[test]
fn a_pod_without_the_nodes_processes_is_told_so() {
    let output = on_a_node("$NODE on-host /bin/true && true");
    let complaint =
        "gpuslice: this pod cannot see the processes of its node (it needs hostPID: true)\n";
    assert_eq!(
        (output.status.code(), printed(&output).1.as_str()),
        (Some(1), complaint)
    );
}

#[test]
fn the_folder_is_kept_while_an_engine_names_its_hook() {
    let output = on_a_node(
        "mkdir -p /mnt/gpuslice/bin /run/cdi\n\
         touch /mnt/gpuslice/bin/gpuslice-hook\n\
         echo '\"path\": \"/mnt/gpuslice/bin/gpuslice-hook\"' >/run/cdi/gpuslice.json\n\
         unshare --mount $NODE uninstall /mnt/gpuslice 2>/mnt/log &\n\
         until [ -s /mnt/log ]; do sleep 0.1; done\n\
         [ -e /mnt/gpuslice/bin/gpuslice-hook ]\n\
         rm /run/cdi/gpuslice.json\n\
         until unshare --mount $NODE uninstall /mnt/gpuslice --check; do sleep 0.1; done\n\
         until grep -q 'is removed' /mnt/log; do sleep 0.1; done\n\
         cat /mnt/log\n",
    );
    let (said, complaint) = printed(&output);
    let expected = "gpuslice: waiting for engine file /run/cdi/gpuslice.json\n\
                    gpuslice: /mnt/gpuslice is removed\n";
    assert_eq!(said, expected, "{complaint}");
}

#[test]
fn the_folder_is_removed_once_the_last_slice_has_ended() {
    let output = on_a_node(
        "mkdir -p /mnt/gpuslice/bin /run/gpuslice/slices\n\
         touch /mnt/gpuslice/bin/gpuslice-hook /run/gpuslice/slices/q8.json\n\
         check() { unshare --mount $NODE uninstall /mnt/gpuslice --check; }\n\
         unshare --mount $NODE uninstall /mnt/gpuslice 2>/mnt/log &\n\
         until [ -s /mnt/log ]; do sleep 0.1; done\n\
         [ -e /mnt/gpuslice/bin/gpuslice-hook ]\n\
         if check; then echo early; fi\n\
         rm /run/gpuslice/slices/q8.json\n\
         until check; do sleep 0.1; done\n\
         cat /mnt/log\n",
    );
    let (said, complaint) = printed(&output);
    let expected = "gpuslice: waiting for slice q8\ngpuslice: /mnt/gpuslice is removed\n";
    assert_eq!(said, expected, "{complaint}");
}
