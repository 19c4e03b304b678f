//! The tables of pages name every key of JSON, slice files, annotations and the policy.
//! Touches: the sources as text; the release build of `gpuslice`, on simulated machines.

use super::commands::{Home, commands};
use super::{BOOK, documents, read, workspace};
use std::collections::{BTreeMap, BTreeSet};
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

#[test]
fn the_page_on_json_names_the_keys_that_the_commands_print() {
    let home = Home::new();
    let model = home.work.path().join("model.safetensors");
    fs::write(&model, vec![1; 1 << 20]).unwrap();
    let model = model.to_str().unwrap();
    let asked: BTreeMap<&str, Vec<&str>> = [
        ("check", vec!["--sim", "rtx3090", "--memory", "8GiB"]),
        ("status", vec![]),
        ("doctor", vec!["--node"]),
        ("report", vec![]),
        ("devices", vec!["--sim", "rtx3090"]),
        ("residency", vec![model]),
        ("drop-cache", vec![model]),
    ]
    .into();
    let page = read(Path::new(BOOK).join("json.md"));
    let mut seen = 0;
    for line in page
        .lines()
        .filter_map(|line| line.strip_prefix("| `gpuslice "))
    {
        let (command, keys) = line.split_once(" --json` | ").unwrap();
        let Some(options) = asked.get(command) else {
            assert_eq!(command, "headroom");
            continue;
        };
        let written: BTreeSet<&str> = keys.split('`').skip(1).step_by(2).collect();
        let mut words = vec![command, "--json"];
        words.extend(options);
        let ran = home.gpuslice(&words);
        let value: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let printed = value.as_object().unwrap().keys().map(String::as_str);
        assert_eq!(
            written,
            printed.collect::<BTreeSet<_>>(),
            "gpuslice {command}"
        );
        seen += 1;
    }
    assert_eq!(seen, asked.len());
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
    let parser = source("config/src", "fn slice_key(");
    let keys = parser.lines().filter_map(|line| {
        let (key, number) = line.trim().strip_prefix('"')?.split_once("\" => ")?;
        let number = number.trim_end_matches(',');
        number
            .bytes()
            .all(|digit| digit.is_ascii_digit())
            .then(|| key.to_owned())
    });
    // The keys of `model_files` are in that key's own row.
    let mut known: BTreeSet<String> = keys.collect();
    known.insert("devices".to_owned());
    assert!(known.remove("suffixes") && known.remove("smallest"));
    let page = read(Path::new(BOOK).join("slice-file.md"));
    let written: BTreeSet<String> = first_column(&page).into_iter().flatten().collect();
    assert_eq!(written, known);
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
                if *option == "-f" && value.starts_with("packaging/") {
                    assert!(workspace().join(value).exists(), "{place}");
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
