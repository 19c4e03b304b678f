//! The handbook and the front pages: links have targets, commands run, tables name every key.
//! Touches: the documents in the tree; runs the release build of `gpuslice` on simulated machines.

mod commands;
mod keys;
mod links;

use std::fs;
use std::path::{Path, PathBuf};

const BOOK: &str = "packaging/handbook/src";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = workspace().join(path);
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The pages of the handbook, as paths relative to the top of the repository.
fn pages() -> Vec<PathBuf> {
    let listed = fs::read_dir(workspace().join(BOOK)).unwrap();
    let names = listed.map(|entry| Path::new(BOOK).join(entry.unwrap().file_name()));
    let mut pages: Vec<PathBuf> = names
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .collect();
    pages.sort();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// The documents whose links are checked.
fn documents() -> Vec<PathBuf> {
    let top = [
        "README.md",
        "LIMITS.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "hook/oci/README.md",
        "tests/engines/README.md",
        "packaging/examples/README.md",
    ];
    top.iter().map(PathBuf::from).chain(pages()).collect()
}

/// A page as mdBook reads it, with the included files.
fn with_includes(path: &Path) -> String {
    let text = read(path);
    let mut whole = String::new();
    for line in text.lines() {
        match line
            .strip_prefix("{{#include ")
            .and_then(|rest| rest.strip_suffix("}}"))
        {
            Some(file) => whole += &read(path.with_file_name(file)),
            None => whole += line,
        }
        whole.push('\n');
    }
    whole
}

/// The text outside code blocks, with each paragraph on one line.
fn prose(text: &str) -> String {
    let (mut prose, mut block) = (String::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if !block {
            prose += line.trim();
            prose.push(if line.trim().is_empty() { '\n' } else { ' ' });
        }
    }
    prose
}
