//! gpuslice's own commands, called inside a slice.

use crate::support::{Home, Installation, told};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("inside"));

/// Runs a script in a slice of 8 GiB, where `$0` is gpuslice. Returns its output.
fn inside(script: &str) -> (String, String, i32) {
    let home = Home::new();
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args(["run", "--sim=rtx3090", "--memory=8GiB", "--", "sh", "-c"])
        .arg(script)
        .arg(HERE.executable());
    told(&mut command)
}

#[test]
fn check_without_the_library_fails_and_names_the_cause_first() {
    let cause = "there is a slice, but libgpuslice.so is not loaded into any program";
    let (out, err, status) = inside("unset LD_PRELOAD; \"$0\" check");
    assert_eq!((err.as_str(), status), ("", 1));
    let first = out.lines().next();
    assert_eq!(first, Some(format!("INCONSISTENT: {cause}").as_str()));
    let (json, _, status) = inside("unset LD_PRELOAD; \"$0\" check --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(status, 1);
    let disagreements = json.get("disagreements").unwrap();
    assert_eq!(disagreements.get(0).unwrap(), cause);
}

#[test]
fn devices_shows_the_limit_of_the_slice_beside_the_gpus_memory() {
    let (out, err, status) = inside("\"$0\" devices");
    assert_eq!((err.as_str(), status), ("", 0));
    let words: Vec<Vec<&str>> = out
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let [head, gpu] = words.as_slice() else {
        panic!("{out}");
    };
    let expected = "INDEX CUDA UUID MEMORY USED IN SLICES LEFT TO GIVE SLICE FENCE KIND NAME";
    assert_eq!(head.join(" "), expected);
    // The slice is the only one on its machine, and holds nothing yet.
    let gpu = gpu.join(" ");
    let begin =
        "0 0 GPU-3090aaaa-1111-4222-8333-444455550000 23.69 GiB 0 B 0 B 15.69 GiB 8.00 GiB (";
    assert!(gpu.starts_with(begin), "{out}");
}
