//! The man pages and completion scripts that packages ship are those of this command line.
//! `make goldens` writes them.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

use gpuslice_hook::pages;
use std::fs;
use std::path::{Path, PathBuf};

fn packaging(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../packaging")
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
    expect("man", pages::man_pages().unwrap());
}

#[test]
fn golden_completions_are_those_of_this_command_line() {
    let script = |shell| pages::completion_script(shell).unwrap();
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
    for (name, text) in pages::man_pages().unwrap() {
        let text = String::from_utf8(text).unwrap();
        assert!(!text.contains("probe") && !text.contains("tidy"), "{name}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let text = String::from_utf8(pages::completion_script(shell).unwrap()).unwrap();
        assert!(!text.contains("probe") && !text.contains("tidy"), "{shell}");
    }
}
