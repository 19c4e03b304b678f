//! A member that appears twice in a container's config.json, with two values. Runtimes and parsers
//! disagree about which value counts.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Container, Host, is_root};
use std::fs;

const TWICE: &str = r#""gpuslice.io/memory":"8GiB","a":"b","gpuslice.io\/memory":"20GiB""#;

/// Writes a config.json for the container: its root, and these members.
fn configured(container: &Container<'_>, members: &str) {
    let text = format!(r#"{{"root":{{"path":"rootfs"}},{members}}}"#);
    fs::write(container.bundle.join("config.json"), text).unwrap();
}

#[test]
fn an_annotation_with_two_sizes_is_refused_and_both_are_named() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.asking("c1", &[]);
    // The state on standard input has no annotation: the configuration alone says that a slice is
    // requested.
    for (members, expected) in [
        (
            format!(r#""annotations":{{{TWICE}}}"#),
            r#"gpuslice.io/memory appears twice, as "8GiB" and as "20GiB""#,
        ),
        (
            r#""annotations":{"gpuslice.io/memory":"8GiB"},"annotations":{"gpuslice.io/memory":"20GiB"}"#
                .to_owned(),
            r#"annotations appears twice, as {"gpuslice.io/memory":"8GiB"} and as {"gpuslice.io/memory":"20GiB"}"#,
        ),
    ] {
        configured(&container, &members);
        let said = container.is_refused();
        assert!(said.contains(expected), "{said}");
        assert_eq!(host.left(), Vec::<String>::new());
    }
}

#[test]
fn an_annotation_that_appears_twice_with_one_size_is_used() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.asking("c1", &[]);
    let same = r#""annotations":{"gpuslice.io/memory":"8GiB","gpuslice.io/memory":"8GiB"}"#;
    configured(&container, same);
    container.is_given_its_slice();
    let slice = fs::read_to_string(container.inside(".gpuslice/slice.json")).unwrap();
    assert!(
        slice.contains("8589934592") || slice.contains("8GiB"),
        "{slice}"
    );
}

#[test]
fn a_container_without_a_request_starts_although_a_member_appears_twice() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.asking("c1", &[]);
    configured(
        &container,
        r#""annotations":{"other":"1","other":"2"},"hooks":{"prestart":[],"prestart":null}"#,
    );
    let said = container.hook(&["createRuntime"]);
    assert!(said.status.success(), "{said:?}");
    assert!(!container.inside(".gpuslice").exists());
}

#[test]
fn a_state_with_two_sizes_is_refused() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container = host.container("c1");
    let state = container.state();
    let state = format!(
        r#"{},"annotations":{{{TWICE}}}}}"#,
        state.strip_suffix('}').unwrap()
    );
    let said = crate::support::hook(&host, &["createRuntime"], &state);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let told = String::from_utf8(said.stderr).unwrap();
    assert!(told.contains(r#"as "8GiB" and as "20GiB""#), "{told}");
}
