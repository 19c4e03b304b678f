//! `gpuslice doctor` of slices that are broken in one way each: the right cause comes first.
//! Touches: slices of their own, on simulated machines; root folders of their own.
//! Law: each set-up is a real one: a process that runs, a file that is damaged, a folder that is
//! mounted. The codes that have no set-up are listed, with the reason.

mod bench;
mod container;
mod driver;
mod environment;
mod healthy;
mod kernel;
mod ledger;
mod library;
mod node;
mod programs;
mod slice_file;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The codes that cannot be set up here, with the reason. Unit tests hold their rules.
const NOT_SET_UP: [(&str, &str); 3] = [
    (
        "other-processor",
        "another kind of processor would have to run it",
    ),
    ("kernel-too-old", "the kernel cannot be changed"),
    (
        "mps-daemon",
        "it counts on the whole machine, which the tests share",
    ),
];

/// The sources of the set-ups.
fn sources() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/doctor");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let set_ups = files.filter(|file| !file.ends_with("mod.rs"));
    set_ups
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// The codes in the order in which findings are shown.
pub(crate) fn codes() -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/doctor/codes.rs");
    let text = fs::read_to_string(source).unwrap();
    let names = text.lines().filter_map(|line| {
        let (_, rest) = line.strip_prefix("    ")?.split_once(" = \"")?;
        let (name, rest) = rest.split_once('"')?;
        (rest.starts_with(", Error,") || rest.starts_with(", Warning,")).then(|| name.to_owned())
    });
    names.collect()
}

#[test]
fn every_code_has_a_set_up_that_shows_it_first() {
    let (sources, codes) = (sources(), codes());
    let excused: BTreeSet<&str> = NOT_SET_UP.iter().map(|(code, _)| *code).collect();
    assert!(codes.len() > 50, "{codes:?}");
    for code in &codes {
        let is_set_up = sources.contains(&format!("\"{code}\""));
        assert!(
            is_set_up != excused.contains(code.as_str()),
            "{code}: {is_set_up}"
        );
    }
    let distinct: BTreeSet<&String> = codes.iter().collect();
    assert_eq!(distinct.len(), codes.len());
}

/// The page of the handbook with the codes.
const PAGE: &str = "../../packaging/handbook/src/troubleshooting.md";

#[test]
fn the_page_on_troubleshooting_lists_every_code_with_its_remedy() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(page).unwrap();
    let (_, tables) = page
        .split_once("## The codes of gpuslice doctor\n")
        .unwrap();
    let (tables, _) = tables.split_once("\n## ").unwrap();
    let rows: Vec<Vec<&str>> = tables
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"))
        .map(|row| row.split(" | ").collect())
        .collect();
    let listed = rows.iter().map(|row| row[0].trim_matches('`').to_owned());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/doctor/codes.rs");
    let source = fs::read_to_string(source).unwrap();
    let is_error = |code: &str| source.contains(&format!("= \"{code}\", Error,"));
    // The page has two tables, each in the order of the findings.
    let (errors, warnings): (Vec<_>, Vec<_>) = codes().into_iter().partition(|it| is_error(it));
    assert_eq!(listed.collect::<Vec<_>>(), [errors, warnings].concat());
    for row in &rows {
        assert!(row.len() == 3 && row[1].len() > 10, "{row:?}");
        let fix = row[2].replace('"', "\\\"");
        assert!(source.contains(&format!("\"{fix}\";")), "{row:?}");
    }
}
