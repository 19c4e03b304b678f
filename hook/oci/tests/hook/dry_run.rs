//! `gpuslice-hook --dry-run` reports the result of a real call.
//! Touches: mount namespaces of its own. Needs root.

use crate::support::{Container, Host, is_root};
use std::fs;

/// Returns the plan that a dry run prints, its messages, and whether it succeeds.
fn dry(container: &Container<'_>) -> (serde_json::Value, String, bool) {
    let said = container.hook(&["--dry-run", "createRuntime"]);
    let plan = match said.stdout.is_empty() {
        true => serde_json::Value::Null,
        false => serde_json::from_slice(&said.stdout).unwrap(),
    };
    let told = String::from_utf8(said.stderr).unwrap();
    (plan, told, said.status.success())
}

#[test]
fn a_dry_run_prints_the_plan_and_does_nothing() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let container: Container<'_> = host.container("c1");
    let said = container.hook(&["--dry-run", "createRuntime"]);
    let plan: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(plan["devices"][0]["memory"], 8u64 << 30);
    assert!(!container.inside(".gpuslice").exists());
    assert!(!host.run("slices").exists());
}

#[test]
fn a_dry_run_refuses_in_the_same_words_as_a_start() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    let mut first = host.asking("first", &[("gpuslice.io/memory", "20GiB")]);
    first.is_given_its_slice();
    let left = host.left();
    let second = host.container("second");
    let (plan, told, well) = dry(&second);
    assert_eq!((plan, well), (serde_json::Value::Null, false));
    assert!(
        told.contains("no room for second: GPU 0 (Card, 24.00 GiB) has 4.00 GiB left")
            && told.contains("held by first 20.00 GiB"),
        "{told}"
    );
    assert_eq!(second.is_refused(), told);
    let again = host.asking("first", &[("gpuslice.io/memory", "1GiB")]);
    let (_, told, well) = dry(&again);
    assert!(
        !well && told.contains("a container first is running already"),
        "{told}"
    );
    // A dry run also reports on a container that already runs, and on memory of a dead one. It
    // takes and frees no memory.
    let (plan, told, well) = dry(&first);
    assert_eq!(
        (plan.is_object(), told.as_str(), well),
        (true, "gpuslice: first already has its slice\n", true)
    );
    assert_eq!(host.left(), left);
    first.dies();
    let (plan, told, well) = dry(&second);
    assert_eq!((told.as_str(), well), ("", true));
    assert_eq!(plan["devices"][0]["memory"], 8u64 << 30);
    assert_eq!(host.left(), left);
    second.is_given_its_slice();
}

#[test]
fn a_dry_run_says_how_much_of_an_overcommitted_slice_would_be_promised() {
    if !is_root() {
        return;
    }
    let host = Host::spark();
    host.policy("overcommit = true");
    let container = host.asking("c1", &[("gpuslice.io/memory", "110GiB")]);
    let (plan, told, well) = dry(&container);
    assert!(well && told.contains("c1 is over-committed by "), "{told}");
    assert!(!host.run("promises").exists());
    let said = container.hook(&["createRuntime"]);
    assert_eq!(String::from_utf8(said.stderr).unwrap(), told);
    let made = fs::read_dir(host.run("promises"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let planned = plan["mounts"].as_array().unwrap().iter();
    let mut sources = planned.map(|mount| mount["source"].as_str().unwrap());
    assert!(
        sources.any(|source| source == made.path().to_str().unwrap()),
        "{plan}"
    );
}

#[test]
fn a_dry_run_says_what_the_policy_makes_of_an_error() {
    if !is_root() {
        return;
    }
    let host = Host::new();
    host.policy("[on-error]\nannotated = \"start\"");
    fs::write(host.run("devices.json"), "{").unwrap();
    let container = host.container("c1");
    let (plan, told, well) = dry(&container);
    assert_eq!((plan, well), (serde_json::Value::Null, true));
    assert!(
        told.starts_with("gpuslice: c1 starts without a slice: "),
        "{told}"
    );
    let said = container.hook(&["createRuntime"]);
    assert_eq!(String::from_utf8(said.stderr).unwrap(), told);
}
