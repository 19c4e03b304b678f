//! The table of all rows that have run: for people on standard output, for the report as JSON.
//! Touches: `faults/` and `report/faults.json` in the build output.

use super::row;
use gpuslice_suite::place;
use serde_json::Value;

const COLUMNS: [&str; 5] = ["injected", "survived", "wrong_answers", "hangs", "leaks"];

/// The rows that were kept, by name.
fn rows() -> Vec<Value> {
    let listed = std::fs::read_dir(row::folder());
    let mut files: Vec<_> = listed
        .unwrap_or_else(|error| panic!("no row has run: {error}"))
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    let read = |path| std::fs::read_to_string(path).expect("a row");
    let rows = files.iter().map(read);
    rows.map(|text| serde_json::from_str(&text).expect("a row is JSON"))
        .collect()
}

/// The table as text. A row that was not run has its reason in place of numbers.
fn text(rows: &[Value]) -> String {
    let head = COLUMNS.map(|name| format!("{:>9}", name.trim_end_matches("_answers")));
    let mut lines = vec![format!("{:<66}{} {:>8}", "fault", head.concat(), "seconds")];
    for row in rows {
        let title = row["title"].as_str().unwrap_or_default();
        if let Some(why) = row["not_run"].as_str() {
            lines.push(format!("{title:<66} not run: {why}"));
            continue;
        }
        let counts = COLUMNS.map(|name| format!("{:>9}", row[name]));
        lines.push(format!(
            "{title:<66}{} {:>8}",
            counts.concat(),
            row["seconds"]
        ));
    }
    lines.join("\n")
}

/// `make faults` runs this after all rows.
#[test]
#[ignore = "shows what the other tests of this folder have counted"]
fn report() {
    let rows = rows();
    println!("{}", text(&rows));
    let folder = place::target().join("report");
    std::fs::create_dir_all(&folder).expect("the folder of the report");
    let json = serde_json::to_string_pretty(&rows).expect("JSON");
    std::fs::write(folder.join("faults.json"), json + "\n").expect("the report");
}

#[test]
fn a_row_that_was_not_run_is_not_shown_as_survived() {
    let row = serde_json::json!({
        "row": "eio-disk", "title": "EIO of a disk", "injected": 0, "survived": 0, "wrong_answers": 0,
        "hangs": 0, "leaks": 0, "seconds": 0.0, "not_run": "needs a loop device",
    });
    let text = text(&[row]);
    let line = text.lines().nth(1).unwrap();
    assert!(line.starts_with("EIO of a disk ") && line.ends_with("not run: needs a loop device"));
}
