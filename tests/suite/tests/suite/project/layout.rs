//! Every pattern of `shim/layout.ld` still matches code, so a renamed or moved function keeps its
//! place among the code that a starting process touches.
//! Touches: the linker's map of the release build, and `shim/layout.ld`.

use gpuslice_suite::place;
use std::path::PathBuf;

/// The linker's map of the newest release build.
fn map() -> String {
    let build = place::target().join("release/build");
    let folders = std::fs::read_dir(&build)
        .unwrap_or_else(|error| panic!("{}: {error}: run make first", build.display()));
    let newest = folders
        .flatten()
        .map(|folder| folder.path().join("out/libgpuslice.map"))
        .filter_map(|map| Some((map.metadata().ok()?.modified().ok()?, map)))
        .max()
        .map(|(_, map): (_, PathBuf)| map)
        .expect("no libgpuslice.map in release/build: run make first");
    std::fs::read_to_string(newest).expect("the linker's map")
}

/// Whether a pattern of the linker matches the whole text. `*` is the only wildcard in use.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn every_pattern_of_the_layout_matches_a_function() {
    let map = map();
    let (_, placed) = map
        .split_once("Linker script and memory map")
        .expect("a map of GNU ld");
    let sections: Vec<&str> = placed
        .lines()
        .filter(|line| !line.trim_start().starts_with('*'))
        .flat_map(str::split_whitespace)
        .filter(|word| word.starts_with(".text."))
        .collect();
    let layout = place::workspace().join("shim/layout.ld");
    let layout = std::fs::read_to_string(layout).expect("shim/layout.ld");
    let unmatched: Vec<&str> = layout
        .split(['(', ')', ' ', '\n'])
        .filter(|word| word.starts_with(".text.") && *word != ".text.*")
        .filter(|pattern| !sections.iter().any(|section| matches(pattern, section)))
        .collect();
    assert!(
        unmatched.is_empty(),
        "shim/layout.ld names code that the release build does not have: {unmatched:#?}"
    );
}

#[test]
fn a_pattern_matches_as_the_linker_does() {
    assert!(matches(".text.*5entry*", ".text._ZN5entry17h0E"));
    assert!(!matches(".text.*6entrée*", ".text._ZN5entry17h0E"));
    assert!(matches(".text.cu*", ".text.cuInit") && !matches(".text.cu*", ".text.nvmlInit"));
}
