//! The man pages and completion scripts that packages ship match this command line; `make goldens`
//! writes them. Commands that the documents show can be typed as printed.

use crate::support::Installation;
use clap::CommandFactory;
use gpuslice_cli::cli::Cli;
use gpuslice_cli::commands::docs;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn packaging(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(folder)
}

fn expect(folder: &str, files: Vec<(String, Vec<u8>)>) {
    let folder = packaging(folder);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in &files {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    let names = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let read = fs::read_dir(&folder).unwrap();
    let mut there: Vec<String> = read.map(|entry| names(entry.unwrap())).collect();
    there.sort();
    let mut wanted: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
    wanted.sort();
    assert_eq!(there, wanted);
    for (name, text) in files {
        let shipped = fs::read(folder.join(&name)).unwrap();
        assert!(
            shipped == text,
            "packaging/{name} is out of date: run `make goldens`"
        );
    }
}

#[test]
fn golden_man_pages_are_those_of_this_command_line() {
    expect("man", docs::man_pages(&Cli::command()).unwrap());
}

#[test]
fn a_page_is_found_by_the_words_of_a_command_and_by_its_own_name() {
    let here = Installation::new("pages");
    let printed = |verbs: &[&str]| {
        let mut gpuslice = here.gpuslice();
        let out = gpuslice.arg("man").args(verbs).output().unwrap();
        assert!(out.status.success(), "{verbs:?}");
        out.stdout
    };
    let pages = docs::man_pages(&Cli::command()).unwrap();
    for (name, words) in [
        ("gpuslice-slices", ["slices"].as_slice()),
        ("gpuslice-cdi-generate", &["cdi", "generate"]),
        ("gpuslice", &[]),
    ] {
        let is_it = |file: &str| file.rsplit_once('.').is_some_and(|(stem, _)| stem == name);
        let (_, text) = pages.iter().find(|(file, _)| is_it(file)).unwrap();
        assert_eq!((&printed(&[name]), &printed(words)), (text, text), "{name}");
    }
}

#[test]
fn golden_completions_are_the_scripts_that_the_command_prints() {
    let script = |shell| docs::completion_script(shell).unwrap().as_bytes().to_vec();
    expect(
        "completions",
        vec![
            ("gpuslice.bash".to_owned(), script("bash")),
            ("_gpuslice".to_owned(), script("zsh")),
            ("gpuslice.fish".to_owned(), script("fish")),
        ],
    );
}

#[test]
fn no_page_names_what_is_not_for_people() {
    for (name, text) in docs::man_pages(&Cli::command()).unwrap() {
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("probe") && !text.contains("tidy"), "{name}");
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every document, and the files of the examples, because their comments show commands.
fn documents() -> Vec<(String, String)> {
    let mut paths = vec![PathBuf::from("CONTRIBUTING.md")];
    for folder in [
        "",
        "shim",
        "hook",
        "hook/cli",
        "hook/oci",
        "config",
        "packaging/examples",
        "packaging/handbook/src",
        "tests",
    ] {
        let listed = fs::read_dir(workspace().join(folder)).unwrap();
        let names = listed.map(|entry| Path::new(folder).join(entry.unwrap().file_name()));
        let examples = folder == "packaging/examples";
        paths
            .extend(names.filter(|path| examples || path.extension().is_some_and(|it| it == "md")));
    }
    for folder in fs::read_dir(workspace().join("tests")).unwrap() {
        paths.push(
            Path::new("tests")
                .join(folder.unwrap().file_name())
                .join("README.md"),
        );
    }
    // The changelog names files and commands that no longer exist.
    paths.retain(|path| path != Path::new("CHANGELOG.md"));
    let read = |path: PathBuf| {
        let text = fs::read_to_string(workspace().join(&path)).ok()?;
        Some((path.display().to_string(), text))
    };
    paths.into_iter().filter_map(read).collect()
}

/// Returns the code in a document: lines of code blocks, and words between backticks.
fn code(text: &str) -> Vec<String> {
    let (mut code, mut block) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if block {
            let line = line.trim_start().trim_start_matches("$ ");
            code.push(line.split(" #").next().unwrap().trim().to_owned());
        } else {
            code.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    code
}

/// Checks that the command line accepts the words: with `--help` appended, no error comes before
/// the help.
fn is_taken(words: &[&str]) -> Result<(), String> {
    let end = words
        .iter()
        .position(|word| *word == "--")
        .unwrap_or(words.len());
    let asked = Command::new(env!("CARGO_BIN_EXE_gpuslice"))
        .args(words.iter().take(end))
        .arg("--help")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&asked.stderr);
    // Prose names an option without its value. It is enough that the option exists.
    match asked.status.success() || said.contains("a value is required for") {
        true => Ok(()),
        false => Err(said.into_owned()),
    }
}

#[test]
fn the_commands_that_documents_show_are_taken_by_the_command_line() {
    let mut seen = 0;
    for (document, text) in documents() {
        for line in code(&text) {
            let Some(command) = line.strip_prefix("gpuslice ") else {
                continue;
            };
            // `[SLICE or PID] [--watch]`, `run|check` and `...` show a synopsis, not a command.
            if command.contains(['[', '|', '…', '<']) || command.contains("...") {
                continue;
            }
            // Where a shell operator or a closing bracket follows, only the words before it belong
            // to gpuslice.
            let command = command.split(['>', ';', '&', ')']).next().unwrap();
            let filled = command.replace("PID", "1").replace("SIZE", "8GiB");
            let words: Vec<&str> = filled.split_whitespace().collect();
            seen += 1;
            is_taken(&words)
                .unwrap_or_else(|why| panic!("{document}: `gpuslice {command}`: {why}"));
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn the_make_targets_that_documents_name_have_rules() {
    let makefile = fs::read_to_string(workspace().join("Makefile")).unwrap();
    let mut seen = 0;
    for (document, text) in documents() {
        for line in code(&text) {
            for command in line.split("&&").map(str::trim) {
                let Some(target) = command
                    .strip_prefix("make ")
                    .and_then(|it| it.split(' ').next())
                else {
                    continue;
                };
                seen += 1;
                let rule = format!("\n{target}:");
                assert!(
                    makefile.contains(&rule),
                    "{document}: `make {target}` has no rule"
                );
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn the_files_that_documents_name_are_there() {
    let parts = ["config/", "shim/", "hook/", "tests/", "packaging/"];
    let mut seen = 0;
    for (document, text) in documents() {
        for word in code(&text) {
            let is_path = parts.iter().any(|part| word.starts_with(part));
            if !is_path || word.contains(['*', ' ', '<', '{', '$']) {
                continue;
            }
            seen += 1;
            // The path is relative to the top of the repository, or to the document.
            let beside = Path::new(&document).with_file_name(&word);
            let there = [Path::new(&word), &beside].map(|path| workspace().join(path).exists());
            assert!(there.contains(&true), "{document}: there is no {word}");
        }
    }
    assert!(seen > 40, "{seen}");
}
