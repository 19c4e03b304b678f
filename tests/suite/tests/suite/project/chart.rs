//! The Helm chart and the plain manifests: helm renders them, Kubernetes' schemas know every field,
//! and the policies refuse what they describe.
//! Touches: runs `tests/chart/check.py` with the tools that `tests/setup.sh examples` installs.

use gpuslice_suite::place;
use std::process::Command;

fn check(what: &str) {
    let python = place::target().join("examples-venv/bin/python");
    assert!(
        python.exists() && place::target().join("kube-tools/installed").exists(),
        "run tests/setup.sh examples first"
    );
    let checked = Command::new(python)
        .arg(place::workspace().join("tests/chart/check.py"))
        .arg(what)
        .env("GPUSLICE_TARGET", place::target())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{said}");
}

#[test]
fn kubernetes_knows_every_field_that_the_chart_renders() {
    check("rendered");
}

#[test]
fn wrong_values_are_refused_and_named() {
    check("values");
}

#[test]
fn the_notes_name_what_the_values_need_next() {
    check("notes");
}

#[test]
fn during_the_removal_a_pod_is_ready_once_the_removal_is_done() {
    check("removal");
}

#[test]
fn the_driver_has_no_right_that_is_not_listed() {
    check("permissions");
}

#[test]
fn each_rule_of_the_policies_accepts_and_refuses() {
    check("policies");
}

#[test]
fn the_plain_manifests_are_those_of_the_chart() {
    check("kustomize");
}
