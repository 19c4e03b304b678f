//! The scenario on a real cluster (`make cluster`): what can be checked without Kubernetes' programs.
//! Touches: runs `tests/cluster/run.sh` and `scenario.py`, which do nothing here.

use gpuslice_suite::place;
use std::path::PathBuf;
use std::process::{Command, Output};

fn folder() -> PathBuf {
    place::workspace().join("tests/cluster")
}

fn run(kube: Option<&str>) -> Output {
    let mut script = Command::new(folder().join("run.sh"));
    script.env_remove("KUBE_BIN");
    if let Some(kube) = kube {
        script.env("KUBE_BIN", kube);
    }
    script.output().expect("bash")
}

#[test]
fn without_the_programs_of_kubernetes_one_line_says_so() {
    let done = run(None);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("NOT RUN: the scenario on a real cluster: KUBE_BIN"),
        "{said}"
    );
    // A folder without the programs is a mistake, and not a reason to run nothing.
    let done = run(Some("/nonexistent"));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        !done.status.success() && said.contains("/nonexistent has no kube-apiserver"),
        "{said}"
    );
}

#[test]
fn the_page_of_the_scenario_names_every_step() {
    let scenario = folder().join("scenario.py");
    let done = Command::new("python3")
        .arg("-B")
        .arg(scenario)
        .arg("none")
        .output();
    let said = String::from_utf8(done.expect("python3").stderr).expect("text");
    let names = said.split_once("(there are ").expect("the steps").1;
    let names = names.trim_end().trim_end_matches(')').split(", ");
    let page = std::fs::read_to_string(folder().join("README.md")).expect("a page");
    let absent: Vec<&str> = names
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(absent, Vec::<&str>::new());
}
