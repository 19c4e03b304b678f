//! What a report contains.

use crate::support::Report;
use serde_json::Value;

/// Writes a line into the file that its variable names, when a program loads it.
const PEER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void loaded(void)
{
    FILE *file = fopen(getenv("PEER_PROOF"), "a");
    if (file && fputs("loaded\n", file) >= 0)
        fclose(file);
}
"#;

const VARIANTS: [&str; 5] = [
    "no preload",
    "an empty preload",
    "gpuslice, no slice",
    "gpuslice, in a slice",
    "peer: libpeer.so",
];

/// A number of a row.
fn number(row: &Value, name: &str) -> f64 {
    row[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name} in {row}"))
}

#[test]
fn every_figure_has_every_variant_and_a_peer() {
    let mut report = Report::of("query alive").peer(PEER);
    let proof = report.path("proof");
    report = report.env(
        "PEER_ENV",
        format!("PEER_PROOF={} OTHER=%d", proof.display()),
    );
    let written = report.written();
    let loaded = std::fs::read_to_string(proof).unwrap();
    assert!(
        loaded.lines().count() > 2,
        "the peer was not preloaded: {loaded}"
    );
    let sections = written.json["sections"].as_array().unwrap();
    let keys: Vec<&str> = sections
        .iter()
        .filter_map(|section| section["key"].as_str())
        .collect();
    assert_eq!(keys, ["query", "alive"]);
    let mut names = Vec::new();
    for figure in sections
        .iter()
        .flat_map(|section| section["figures"].as_array().unwrap())
    {
        let count = figure["count"].as_u64();
        names.push((figure["name"].as_str().unwrap(), count));
        let rows = figure["rows"].as_array().unwrap();
        let variants: Vec<&str> = rows
            .iter()
            .filter_map(|row| row["variant"].as_str())
            .collect();
        // Where there is cgroup v2, queries are also measured in a slice that the driver holds.
        assert_eq!(variants[..5], VARIANTS, "{figure}");
        for row in rows {
            let [low, median, high, most] =
                ["p25", "median", "p75", "p99"].map(|name| number(row, name));
            assert!(
                0.0 < low && low <= median && median <= high && high <= most,
                "{row}"
            );
            assert!(number(row, "samples") >= 30.0, "{row}");
        }
        assert!(
            rows[0]["added"].is_null() && rows[0]["ratio"].is_null(),
            "{figure}"
        );
        for row in &rows[1..] {
            assert!(number(&row["ratio"], "median") > 0.0, "{row}");
            assert!(
                row["added"]["p25"].is_f64() && row["added"]["p75"].is_f64(),
                "{row}"
            );
        }
    }
    let expected = [
        ("cuMemGetInfo_v2", None),
        ("cuDeviceTotalMem_v2", None),
        ("nvmlDeviceGetMemoryInfo", None),
        ("nvmlDeviceGetMemoryInfo_v2", None),
        ("cuMemGetInfo_v2 of a linked program", None),
        ("the oldest is freed", Some(0)),
        ("the newest is freed", Some(0)),
        ("any is freed", Some(0)),
        ("the oldest is freed", Some(20_000)),
        ("the newest is freed", Some(20_000)),
        ("any is freed", Some(20_000)),
    ];
    assert_eq!(names, expected);
    // The query of a program in a slice is not the driver's alone: it costs something.
    let query = &sections[0]["figures"][0]["rows"];
    assert!(number(&query[3]["added"], "median") > 0.0, "{query}");
    for name in VARIANTS {
        assert!(
            written.text.contains(name) && written.page.contains(name),
            "{name}"
        );
    }
    assert!(
        written.json["machine"]["processor"]
            .as_str()
            .is_some_and(|name| name.len() > 3)
    );
    assert!(written.text.contains("In short"), "{}", written.text);
}

#[test]
fn the_page_needs_no_script_and_no_other_file() {
    let mut report = Report::of("threads");
    let faults = r#"[{"row": "1", "title": "<SIGKILL> in a claim", "injected": 1000, "survived": 999,
        "wrong_answers": 0, "hangs": 0, "leaks": 1, "seconds": 2.5}]"#;
    std::fs::write(report.path("faults.json"), faults).unwrap();
    let page = report.written().page;
    for outside in [
        "<script", "<link", "<img", "src=", "http://", "https://", "@import", "url(",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("<svg") && page.contains("prefers-color-scheme: dark"));
    assert!(
        page.contains("1 &lt;SIGKILL&gt; in a claim") && page.contains("<td>999</td>"),
        "{page}"
    );
    for tag in ["svg", "g", "text", "table", "tr", "td", "details"] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}
