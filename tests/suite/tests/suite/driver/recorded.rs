//! Compares the simulator with the recorded answers of real drivers, field by field. RESULTS.md
//! names the answers that no real driver has given.
//! Touches: the suite for real GPUs, which is run on the simulator; `tests/sim/recorded`.

use gpuslice_suite::place;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The values of a recording, by their paths in it: `errors/cuMemAlloc_v2 of 0 bytes`.
type Fields = BTreeMap<String, Value>;

fn fields(recording: &Value) -> Fields {
    let mut fields = Fields::new();
    flatten("", &recording["answers"], &mut fields);
    fields
}

fn flatten(path: &str, value: &Value, fields: &mut Fields) {
    match value {
        Value::Object(parts) => {
            for (name, part) in parts {
                let separator = if path.is_empty() { "" } else { "/" };
                flatten(&format!("{path}{separator}{name}"), part, fields);
            }
        }
        _ => {
            fields.insert(path.to_owned(), value.clone());
        }
    }
}

/// The differences, as text.
fn differences(recorded: &Fields, simulated: &Fields) -> Vec<String> {
    let names: BTreeSet<&String> = recorded.keys().chain(simulated.keys()).collect();
    let differs = |name: &&&String| recorded.get(**name) != simulated.get(**name);
    let shown = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    let said = |name: &String| {
        let (real, ours) = (shown(recorded.get(name)), shown(simulated.get(name)));
        format!("{name}: recorded {real}, simulated {ours}")
    };
    names
        .iter()
        .filter(differs)
        .map(|name| said(name))
        .collect()
}

/// The simulator's own answers to the questions of a recording.
fn simulated(scenario: &str) -> Value {
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(place::workspace().join("tests/gpu/run.sh"))
        .args(["--sim", scenario, "--only", "record", "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let entries = fs::read_dir(out.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_recording = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "json") && !path.ends_with("results.json")
    };
    let file = entries.into_iter().find(is_recording).unwrap();
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// All recordings.
fn recorded() -> Vec<(PathBuf, Value)> {
    let folder = place::workspace().join("tests/sim/recorded");
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let recording: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(recording["format"], 1, "{}", path.display());
        assert_eq!(
            recording["source"],
            "driver",
            "{} is of no real driver",
            path.display()
        );
        (path, recording)
    };
    files.map(read).collect()
}

#[test]
fn the_simulator_answers_as_real_drivers_have() {
    for (path, recording) in recorded() {
        let Some(scenario) = recording["scenario"].as_str() else {
            continue;
        };
        let found = differences(&fields(&recording), &fields(&simulated(scenario)));
        let count = found.len();
        assert!(
            found.is_empty(),
            "{} ({count}):\n{}",
            path.display(),
            found.join("\n")
        );
    }
}

/// The comparison itself: a recording of the simulator's is like it, and one other answer in it is found.
#[test]
fn a_field_that_differs_from_a_recording_is_named() {
    let (once, again) = (fields(&simulated("h200")), fields(&simulated("h200")));
    assert!(once.len() > 1000, "only {} fields", once.len());
    assert_eq!(differences(&once, &again), Vec::<String>::new());
    for name in [
        "errors/cuMemAlloc_v2 of 0 bytes",
        "attributes/18",
        "memory/cuDeviceTotalMem_v2",
    ] {
        let mut other = once.clone();
        let was = other.insert(name.to_owned(), 4711.into());
        let expected = format!("{name}: recorded 4711, simulated {}", was.unwrap());
        assert_eq!(differences(&other, &again), [expected]);
    }
    let mut more = once.clone();
    more.insert("exports/libcuda/cuNew".to_owned(), true.into());
    let expected = "exports/libcuda/cuNew: recorded true, simulated nothing";
    assert_eq!(differences(&more, &again), [expected]);
}

fn group(field: &str) -> String {
    let mut parts = field.split('/');
    match (parts.next(), parts.next()) {
        (Some("exports"), Some(library)) => format!("exports of {library}"),
        (first, _) => first.unwrap_or_default().to_owned(),
    }
}

#[test]
fn results_say_what_has_never_been_recorded() {
    let asked: BTreeSet<String> = fields(&simulated("h200"))
        .keys()
        .map(|name| group(name))
        .collect();
    let mut known = BTreeSet::new();
    for (_, recording) in recorded() {
        if recording["scenario"] == "h200" {
            known.extend(fields(&recording).keys().map(|name| group(name)));
        }
    }
    let text = fs::read_to_string(place::workspace().join("tests/gpu/RESULTS.md")).unwrap();
    let (_, rest) = text.split_once("<!-- never recorded -->\n").unwrap();
    let (list, _) = rest.split_once("<!-- end -->").unwrap();
    let listed: BTreeSet<String> = list
        .lines()
        .filter_map(|line| line.strip_prefix("- ").map(str::to_owned))
        .collect();
    assert_eq!(listed, asked.difference(&known).cloned().collect());
    let says_none = text.contains("No run on a real GPU has happened yet");
    assert_eq!(says_none, recorded().is_empty());
}
