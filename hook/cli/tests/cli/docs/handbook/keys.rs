//! The tables of pages name every key of slice files, annotations and the policy.
//! Touches: the sources as text.

use super::commands::commands;
use super::{BOOK, documents, read, workspace};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The rows of a page's tables: for each row, the words between backticks in its first column.
fn first_column(text: &str) -> Vec<Vec<String>> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
    let first = rows.filter_map(|row| row.split(" | ").next());
    first
        .map(|cell| {
            let words = cell.split('`').skip(1).step_by(2);
            words.map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|words| !words.is_empty())
        .collect()
}

/// Returns the source file below `folder` that contains `text`.
fn source(folder: &str, text: &str) -> String {
    let mut folders = vec![workspace().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let source = fs::read_to_string(path).unwrap();
                if source.contains(text) {
                    return source;
                }
            }
        }
    }
    panic!("no file in {folder} has {text}");
}

#[test]
fn the_page_on_slice_files_names_every_key() {
    let terms = gpuslice_config::slice::TERMS.concat();
    // Words are in the column of meanings, and the keys of `model_files` in its own row.
    let keys = terms
        .lines()
        .filter(|term| !term.contains('=') && !term.starts_with("model_files."));
    let keys = keys.map(|key| key.trim_start_matches("devices."));
    let known: BTreeSet<String> = keys.map(str::to_owned).collect();
    let page = read(Path::new(BOOK).join("slice-file.md"));
    let written: BTreeSet<String> = first_column(&page).into_iter().flatten().collect();
    assert_eq!(written, known);
}

#[test]
fn the_page_on_slices_files_has_the_keys_of_the_man_page() {
    let page = read(Path::new(BOOK).join("slices.md"));
    let keys = page.split("\n## Keys\n").nth(1).unwrap();
    let keys = keys.split("\n## ").next().unwrap();
    let rows = keys.lines().filter(|line| line.starts_with("| `"));
    let known = gpuslice_cli::commands::docs::files::slice_keys();
    let known = known.into_iter();
    let known = known.map(|(name, value, meaning)| format!("| `{name}` | {value} | {meaning} |"));
    assert_eq!(rows.collect::<Vec<_>>(), known.collect::<Vec<_>>());
}

#[test]
fn the_page_on_annotations_names_every_key() {
    let parser = source("hook/oci/src", "pub const KEYS: &str");
    let list = parser.split("pub const KEYS: &str = \"").nth(1).unwrap();
    let list = list.split('"').next().unwrap().replace("\\\n", " ");
    let keys = list.split(',').map(|key| key.trim().split('<').next());
    let page = read(Path::new(BOOK).join("annotations.md"));
    let written = first_column(&page).concat();
    let mut seen = 0;
    for key in keys {
        let name = format!("gpuslice.io/{}", key.unwrap());
        let known = written.iter().any(|row| row.starts_with(&name));
        assert!(known, "annotations.md does not name {name}");
        seen += 1;
    }
    for row in written {
        let key = row.trim_start_matches("gpuslice.io/");
        let key = key.split([':', '.']).next().unwrap();
        assert!(list.contains(key), "there is no annotation {row}");
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn the_annotations_of_the_commands_for_engines_are_on_the_page() {
    let page = read(Path::new(BOOK).join("annotations.md"));
    let known = first_column(&page).concat();
    let mut seen = 0;
    for document in documents() {
        for command in commands(&read(&document)) {
            let words: Vec<&str> = command.split(' ').collect();
            for pair in words.windows(2) {
                let [option, value] = pair else { continue };
                let place = format!("{}: {command}", document.display());
                if *option == "--annotation" {
                    let key = value.split('=').next().unwrap();
                    let is_known = known.iter().any(|row| row.split(':').next() == Some(key));
                    assert!(is_known, "{place}");
                    seen += 1;
                }
                // Where packages install the examples.
                let installed = value.strip_prefix("/usr/share/doc/gpuslice/examples/");
                let source = installed.map(|name| format!("packaging/examples/{name}"));
                let source = source.as_deref().unwrap_or(value);
                if *option == "-f" && source.starts_with("packaging/") {
                    assert!(workspace().join(source).exists(), "{place}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 5, "{seen}");
}

#[test]
fn the_page_on_the_policy_names_every_key_of_the_packaged_file() {
    let packaged = read("packaging/etc/config.toml");
    let mut keys = BTreeSet::new();
    for line in packaged.lines().filter_map(|line| line.strip_prefix('#')) {
        let section = line.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        match (section, line.split_once(" = ")) {
            (Some(name), _) => {
                let name = name.split('.').next().unwrap();
                keys.insert(name.to_owned());
            }
            (None, Some((key, _))) if !key.contains(' ') => {
                keys.insert(key.to_owned());
            }
            _ => {}
        }
    }
    assert!(keys.len() > 15, "{keys:?}");
    let page = read(Path::new(BOOK).join("policy.md"));
    for key in &keys {
        let names = [
            format!("`{key}`"),
            format!("`[{key}]`"),
            format!("`[{key}.NAME]`"),
        ];
        let known = names.iter().any(|name| page.contains(name.as_str()));
        assert!(known, "policy.md does not name {key}");
    }
    let table = page.split("\n## ").next().unwrap();
    for name in first_column(table).concat() {
        let key = name.trim_matches(['[', ']']).split('.').next().unwrap();
        assert!(keys.contains(key), "the packaged policy has no {name}");
    }
}

#[test]
fn the_page_on_other_systems_names_every_key_of_the_table() {
    let table = source("hook/oci/src", "pub const TABLE: &[Row]");
    let rows = table
        .lines()
        .filter(|line| line.trim_start().starts_with("row("));
    let keys = rows.map(|row| {
        let words: Vec<&str> = row.split('"').skip(1).step_by(2).collect();
        match (row.contains("Container("), row.contains("Numbered(")) {
            (true, _) => format!("{}NAME{}", words[0], words[1]),
            (_, true) => format!("{}N", words[0]),
            (false, false) => words[0].to_owned(),
        }
    });
    let known: BTreeSet<String> = keys.collect();
    assert!(known.len() > 20, "{known:?}");
    let page = read(Path::new(BOOK).join("dialects.md"));
    let written: BTreeSet<String> = first_column(&page).into_iter().flatten().collect();
    assert_eq!(written, known);
}
