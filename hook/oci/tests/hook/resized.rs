//! `gpuslice resize` of the slices of containers: their records, ledgers and promises.
//! Touches: mount namespaces of its own; gpuslice, as `make` has built it. Needs root.

use crate::support::{Container, Host, built_library, is_root};
use gpuslice_host::base::paths::HostPaths;
use gpuslice_host::slices::records;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const GIB: u64 = 1 << 30;
const POD: [(&str, &str); 3] = [
    ("gpuslice.io/share", "pod"),
    (
        "io.kubernetes.cri.sandbox-id",
        "0123456789abcdef0123456789abcdef",
    ),
    ("io.kubernetes.cri.sandbox-namespace", "team"),
];

/// Runs gpuslice. Returns its output, its messages and its exit status.
fn gpuslice(host: &Host, words: &[&str]) -> (String, String, i32) {
    let program = built_library().with_file_name("gpuslice");
    let home = tempfile::tempdir().unwrap();
    let said = Command::new(program)
        .args(words)
        .arg("--root")
        .arg(host.path(""))
        .env("HOME", home.path())
        .env("XDG_STATE_HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        text(said.stdout),
        text(said.stderr),
        said.status.code().unwrap(),
    )
}

pub fn resize(host: &Host, words: &[&str]) -> (String, String, i32) {
    gpuslice(host, &[&["resize"], words].concat())
}

/// The limit that `gpuslice status` shows.
pub fn limit(host: &Host, name: &str) -> u64 {
    let (out, err, status) = gpuslice(host, &["status", "--json", name]);
    assert_eq!((err.as_str(), status), ("", 0));
    let status: Value = serde_json::from_str(&out).unwrap();
    status["slices"][0]["devices"][0]["limit"].as_u64().unwrap()
}

fn asking<'a>(host: &'a Host, id: &str, memory: &str) -> Container<'a> {
    host.asking(id, &[("gpuslice.io/memory", memory)])
}

#[test]
fn the_limit_of_a_container_changes_until_it_is_started_again() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let (one, two) = (asking(&host, "one", "8GiB"), asking(&host, "two", "12GiB"));
    one.is_given_its_slice();
    two.is_given_its_slice();
    let card = "GPU 0 (Card, 24.00 GiB)";
    let larger = resize(&host, &["one", "12GiB"]);
    let said = format!(
        "one: 8.00 GiB -> 12.00 GiB on {card}\nafter a restart, a container has the limit of its \
         annotation or claim: 8.00 GiB on GPU 0\n"
    );
    assert_eq!(larger, (said, String::new(), 0));
    assert_eq!(limit(&host, "one"), 12 * GIB);
    let three = asking(&host, "three", "4GiB");
    let refused = three.is_refused();
    assert!(
        refused.contains(&format!("{card} has 0 B left")) && refused.contains("one 12.00 GiB"),
        "{refused}"
    );
    let (out, err, status) = resize(&host, &["one", "13GiB"]);
    assert!(
        err.contains("no room: ") && err.contains("held by two 12.00 GiB"),
        "{err}"
    );
    assert_eq!((out.as_str(), status), ("", 1));
    // The slice is also named by the container's id and by the pid of its first process.
    assert_eq!(resize(&host, &[&one.pid().to_string(), "8GiB"]).2, 0);
    three.is_given_its_slice();
    assert_eq!(limit(&host, "one"), 8 * GIB);
    assert_eq!(resize(&host, &["three", "1GiB", "--device=0"]).2, 0);
    assert_eq!(resize(&host, &["one", "11GiB"]).2, 0);
    assert!(one.hook(&["poststop"]).status.success());
    let again = asking(&host, "one", "8GiB");
    again.is_given_its_slice();
    assert_eq!(limit(&host, "one"), 8 * GIB);
    for container in [&again, &two, &three] {
        assert!(container.hook(&["poststop"]).status.success());
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_container_is_not_resized_beyond_its_maximum() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let annotations = [
        ("gpuslice.io/memory", "8GiB"),
        ("gpuslice.io/maximum", "12GiB"),
    ];
    let one = host.asking("one", &annotations);
    one.is_given_its_slice();
    let (_, err, status) = resize(&host, &["one", "13GiB"]);
    assert!(
        err.contains("13.00 GiB is more than the slice's maximum of 12.00 GiB"),
        "{err}"
    );
    assert_eq!(status, 125);
    assert_eq!(resize(&host, &["one", "12GiB"]).2, 0);
    assert!(one.hook(&["poststop"]).status.success());
}

#[test]
fn a_container_is_not_resized_beyond_the_policys_maximum() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy("[maximum]\ncontainer = \"12GiB\"");
    let one = asking(&host, "one", "8GiB");
    one.is_given_its_slice();
    let (_, err, status) = resize(&host, &["one", "13GiB"]);
    let said =
        "13.00 GiB is more than this host's policy allows a container to have of a GPU (12.00 GiB)";
    assert!(err.contains(said), "{err}");
    assert_eq!((limit(&host, "one"), status), (8 * GIB, 125));
    assert_eq!(resize(&host, &["one", "12GiB"]).2, 0);
    // A policy that has been tightened since does not keep the slice from becoming smaller.
    host.policy("[maximum]\ncontainer = \"4GiB\"");
    assert_eq!(resize(&host, &["one", "10GiB"]).2, 0);
    assert!(one.hook(&["poststop"]).status.success());
}

#[test]
fn a_container_joins_its_pod_after_the_pods_slice_was_resized() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let pod = |id: &str, memory: &str| {
        let own = [("gpuslice.io/memory", memory)];
        host.asking(id, &[&own[..], &POD].concat())
    };
    let (one, two, other) = (
        pod("one", "8GiB"),
        pod("two", "8GiB"),
        pod("other", "10GiB"),
    );
    one.is_given_its_slice();
    assert_eq!(resize(&host, &["one", "10GiB"]).2, 0);
    let said = other.is_refused();
    assert!(said.contains("which has another budget"), "{said}");
    two.is_given_its_slice();
    assert_eq!(limit(&host, "two"), 10 * GIB);
    let paths = HostPaths::below(host.path(""));
    let devices = |id: &str| {
        let records = records::records(&paths).unwrap();
        let mut with = records
            .iter()
            .filter(|record| record.containers.iter().any(|one| one.id == id));
        with.next().unwrap().devices[0].memory.get()
    };
    assert_eq!((devices("one"), devices("two")), (10 * GIB, 10 * GIB));
    for container in [&one, &two] {
        assert!(container.hook(&["poststop"]).status.success());
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

/// The names of the promises.
fn promises(host: &Host) -> Vec<String> {
    let listed = fs::read_dir(host.run("promises")).unwrap();
    let names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn on_unified_memory_the_promise_of_a_container_has_the_new_size() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    host.policy("reserve = \"8GiB\"");
    let (one, two) = (asking(&host, "one", "60GiB"), asking(&host, "two", "30GiB"));
    one.is_given_its_slice();
    let spent = (10 * GIB).to_le_bytes();
    fs::write(one.inside(".gpuslice/promise"), spent).unwrap();
    two.is_given_its_slice();
    // 100 GiB are available, less 8 for the host and 30 for the other container; the slice itself
    // holds 10 more.
    let (_, err, status) = resize(&host, &["one", "73GiB"]);
    assert!(
        err.contains("a slice of 73.00 GiB does not fit on this host, which can promise 72.00 GiB"),
        "{err}"
    );
    assert_eq!(status, 1);
    assert_eq!(resize(&host, &["one", "72GiB"]).2, 0);
    assert_eq!(
        promises(&host),
        [format!("{}.two", 30 * GIB), format!("{}.one", 72 * GIB)]
    );
    assert_eq!(limit(&host, "one"), 72 * GIB);
    assert_eq!(
        &fs::read(one.inside(".gpuslice/promise")).unwrap()[..8],
        spent
    );
    assert_eq!(resize(&host, &["two", "1GiB", "--json"]).2, 0);
    assert!(promises(&host).contains(&format!("{GIB}.two")));
    for container in [&one, &two] {
        assert!(container.hook(&["poststop"]).status.success());
    }
    assert_eq!(host.left(), Vec::<String>::new());
}

#[test]
fn a_killed_resize_leaves_one_promise_that_the_next_one_corrects() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    let one = asking(&host, "one", "20GiB");
    one.is_given_its_slice();
    // The command is killed between the promise and the record.
    let (from, to) = (format!("{}.one", 20 * GIB), format!("{}.one", 30 * GIB));
    let place = |name: &str| host.run("promises").join(name);
    fs::rename(place(&from), place(&to)).unwrap();
    assert!(one.hook(&["createRuntime"]).status.success());
    assert_eq!(promises(&host), std::slice::from_ref(&to));
    let (out, err, status) = resize(&host, &["one", "20GiB", "--json"]);
    assert_eq!((err.as_str(), status), ("", 0));
    let report: Value = serde_json::from_str(&out).unwrap();
    let device = &report["devices"][0];
    assert_eq!(
        (
            &device["limit"],
            &device["former_limit"],
            &device["restart_limit"]
        ),
        (&json!(20 * GIB), &json!(20 * GIB), &json!(20 * GIB))
    );
    assert_eq!(promises(&host), [from]);
    fs::rename(place(&format!("{}.one", 20 * GIB)), place(&to)).unwrap();
    assert!(one.hook(&["poststop"]).status.success());
    assert_eq!(host.left(), Vec::<String>::new());
}
