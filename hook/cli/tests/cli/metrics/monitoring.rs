//! The files of packaging/monitoring: alerts, a dashboard, a configuration of Prometheus.

use super::program;
use gpuslice_cli::commands::metrics::families;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn shipped(name: &str) -> String {
    fs::read_to_string(folder("../../packaging/monitoring").join(name)).unwrap()
}

/// The names of gpuslice's metrics in a text.
fn named(text: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter: char| !is_name(letter));
    let words = words.filter(|word| word.starts_with("gpuslice_"));
    words.map(str::to_owned).collect()
}

fn promtool(arguments: &[&str], files: &[PathBuf]) {
    let place = tempfile::tempdir().unwrap();
    for file in files {
        fs::copy(file, place.path().join(file.file_name().unwrap())).unwrap();
    }
    let mut promtool = Command::new(program("promtool"));
    let output = promtool
        .args(arguments)
        .current_dir(place.path())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&said)
    );
}

#[test]
fn prometheus_accepts_the_alerts_and_each_fires_when_it_should() {
    let alerts = folder("../../packaging/monitoring/gpuslice-alerts.yaml");
    let tests = folder("tests/monitoring/alerts_test.yaml");
    promtool(
        &["check", "rules", "gpuslice-alerts.yaml"],
        std::slice::from_ref(&alerts),
    );
    promtool(
        &["test", "rules", "alerts_test.yaml"],
        &[alerts, tests.clone()],
    );
    // No alert is without a test, in which it fires and in which it does not.
    let tests = fs::read_to_string(tests).unwrap();
    let alerts = shipped("gpuslice-alerts.yaml");
    let names = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let mut seen = 0;
    for name in names {
        assert!(tests.matches(name).count() >= 2, "{name} has no test");
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
}

#[test]
fn every_metric_that_a_dashboard_or_alert_names_exists() {
    let known: BTreeSet<String> = families::ALL
        .iter()
        .map(|family| family.full_name())
        .collect();
    let mut used = BTreeSet::new();
    for file in ["gpuslice-alerts.yaml", "gpuslice-dashboard.json"] {
        for name in named(&shipped(file)) {
            assert!(known.contains(&name), "{file}: there is no {name}");
            used.insert(name);
        }
    }
    assert!(used.len() > 20, "{used:?}");
}

/// The queries of a dashboard's panels, variables and annotations.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(
                members
                    .get("expr")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            members.values().for_each(|member| queries(member, found));
        }
        Value::Array(elements) => elements.iter().for_each(|one| queries(one, found)),
        _ => {}
    }
}

#[test]
fn every_query_of_the_dashboard_is_one_of_prometheus() {
    let dashboard: Value = serde_json::from_str(&shipped("gpuslice-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels
        .iter()
        .map(|one| one["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids.len(), panels.len());
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    assert!(found.len() > 25, "{}", found.len());
    // promtool reads queries as those of rules; variables are Grafana's.
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, query) in found.iter().enumerate() {
        let query = query
            .replace("$__rate_interval", "1m")
            .replace("$__range", "6h");
        let query = query.replace("$slice", ".*").replace("$instance", ".*");
        let quoted = serde_json::to_string(&query).unwrap();
        rules.push_str(&format!(
            "      - {{record: \"a:{number}\", expr: {quoted}}}\n"
        ));
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("dashboard.yaml");
    fs::write(&file, rules).unwrap();
    promtool(&["check", "rules", "dashboard.yaml"], &[file]);
}

#[test]
fn the_files_are_installed() {
    let makefile = fs::read_to_string(folder("../../Makefile")).unwrap();
    assert!(makefile.contains("packaging/monitoring/*"));
    let readme = shipped("README.md");
    for entry in fs::read_dir(folder("../../packaging/monitoring")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            name == "README.md" || readme.contains(&format!("`{name}`")),
            "{name}"
        );
    }
}
