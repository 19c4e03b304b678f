//! The handbook and the front pages: links lead somewhere, commands run, tables name every key.
//! Touches: the documents in the tree; runs the release build of `gpuslice` on simulated machines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const BOOK: &str = "packaging/handbook/src";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = workspace().join(path);
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The pages of the handbook, by their paths from the top of the repository.
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

/// The documents whose links are followed.
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

/// A page as mdBook reads it: with the files that it includes.
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

/// The text outside of code blocks, with paragraphs on one line each.
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

/// The targets of links and pictures: `](target)`.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose.split("](").skip(1);
    targets
        .filter_map(|rest| rest.split(')').next().map(str::to_owned))
        .collect()
}

/// What mdBook and GitHub make of a heading: `#a-pod-that-does-not-fit`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut block = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            block = !block;
        } else if !block && line.starts_with('#') {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter_map(|letter| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                letter => letter.is_alphanumeric().then_some(letter),
            });
            anchors.insert(kept.collect());
        }
    }
    anchors
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                assert!(plain.pop(), "{} leaves the repository", path.display());
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_to_a_heading_that_are_there() {
    let mut seen = 0;
    for page in documents() {
        let text = with_includes(&page);
        for link in links(&text) {
            if link.starts_with("https://") {
                continue;
            }
            seen += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => plain(&page.with_file_name(file)),
            };
            let name = format!("{}: ({link})", page.display());
            assert!(workspace().join(&target).exists(), "{name}: no such file");
            if page.starts_with(BOOK) {
                assert!(target.starts_with(BOOK), "{name} leaves the handbook");
            }
            if !anchor.is_empty() {
                let anchors = anchors(&with_includes(&target));
                assert!(anchors.contains(anchor), "{name}: no such heading");
            }
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn the_summary_lists_every_page_of_the_handbook_once() {
    let mut listed: Vec<PathBuf> = links(&read(Path::new(BOOK).join("SUMMARY.md")))
        .iter()
        .map(|link| Path::new(BOOK).join(link))
        .collect();
    listed.push(Path::new(BOOK).join("SUMMARY.md"));
    listed.sort();
    assert_eq!(listed, pages());
}

/// The commands in a document's shell blocks, without comments; `$ ` in front of a session's.
fn commands(text: &str) -> Vec<String> {
    let (mut commands, mut language) = (Vec::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("```") {
            language = match language.is_empty() {
                true => format!("{rest} "),
                false => String::new(),
            };
            continue;
        }
        let command = match language.as_str() {
            "sh " => Some(line),
            "console " => line.strip_prefix("$ "),
            _ => None,
        };
        let command = command.map(|line| line.split(" #").next().unwrap_or(line).trim());
        commands.extend(command.filter(|line| !line.is_empty()).map(str::to_owned));
    }
    commands
}

/// The release build of gpuslice.
fn program() -> PathBuf {
    let target = std::env::var_os("GPUSLICE_TARGET").map(PathBuf::from);
    let target = target.unwrap_or_else(|| workspace().join("target"));
    let program = target.join("release/gpuslice");
    fs::canonicalize(&program).unwrap_or_else(|_| panic!("run `make` first: {program:?}"))
}

/// Folders of its own for a command's slices, and for what it writes.
struct Home {
    runtime: TempDir,
    work: TempDir,
}

impl Home {
    fn new() -> Home {
        Home {
            runtime: tempfile::tempdir_in("/dev/shm").unwrap(),
            work: tempfile::tempdir().unwrap(),
        }
    }

    /// Runs the release build of gpuslice.
    fn gpuslice(&self, words: &[&str]) -> Output {
        Command::new(program())
            .args(words)
            .current_dir(self.work.path())
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .env("XDG_STATE_HOME", self.work.path())
            .env_remove("LD_PRELOAD")
            .env_remove("GPUSLICE_CONFIG")
            .env_remove("GPUSLICE_SIM_STATE")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .output()
            .unwrap()
    }
}

/// The machine on which a page's command runs, where the command names none.
fn machine(page: &Path, command: &str) -> &'static str {
    let unified = ["unified-memory.md", "page-cache.md"];
    match page.file_name().and_then(|name| name.to_str()) {
        _ if command.contains("--device 1=") => "2xh200",
        Some(name) if unified.contains(&name) => "gb10",
        _ if command.contains("--memory 40GiB") => "gb10",
        _ => "rtx3090",
    }
}

#[test]
fn every_run_that_the_pages_show_starts_on_a_simulated_machine() {
    let mut seen = 0;
    for page in documents() {
        for command in commands(&read(&page)) {
            let Some(rest) = command.strip_prefix("gpuslice run ") else {
                continue;
            };
            let (options, program) = rest.trim_end_matches(" &").split_once(" -- ").unwrap();
            let home = Home::new();
            // The file of `--config team.json`, as the page shows it, with a ledger of its own.
            let ledger = home.runtime.path().join("ledger");
            let team = format!(
                r#"{{"version":1,"name":"team","memory":17179869184,"ledger":"{}"}}"#,
                ledger.display()
            );
            fs::write(home.work.path().join("team.json"), team).unwrap();
            let mut words = vec!["run"];
            if !options.contains("--sim ") {
                words.extend(["--sim", machine(&page, options)]);
            }
            words.extend(options.split(' '));
            words.extend(["--", "true"]);
            let ran = home.gpuslice(&words);
            let errors = String::from_utf8_lossy(&ran.stderr);
            assert!(
                ran.status.success() && errors.is_empty(),
                "{}: {command} ({program}): {errors}",
                page.display()
            );
            seen += 1;
        }
    }
    assert!(seen > 15, "{seen}");
}

/// The options of `gpuslice run`, a script, and what the page on troubleshooting says is printed.
const ERRORS: &[(&str, &str, &[&str])] = &[
    (
        "--sim rtx3090 --memory 30GiB",
        "true",
        &[
            "--memory 30.00 GiB is more than GPU 0 (",
            "give at most 24259MiB",
        ],
    ),
    (
        "--sim rtx3090 --memory 8",
        "true",
        &["8 without a unit is 8 B, in which no program can live (did you mean 8GiB?)"],
    ),
    (
        "--sim rtx3090 --memory 8GiB",
        "$GPUSLICE run --memory 4GiB -- true",
        &["this program is in a slice already"],
    ),
    (
        "--sim rtx3090 --memory 8GiB",
        "env -u LD_PRELOAD $GPUSLICE check 2>&1",
        &["there is a slice, but libgpuslice.so is not loaded into any program"],
    ),
    (
        "--sim rtx3090 --bare",
        "$GPUSLICE check 2>&1; false",
        &["slice none"],
    ),
    (
        "--strict --sim 2xh200 --device 0=8GiB",
        "true",
        &["the program sees GPU 0 and GPU 1, and the slice does not limit GPU 1"],
    ),
    (
        "--sim rtx3090 --config mistyped.json",
        "true",
        &["unknown key \"memry\""],
    ),
    (
        "--sim gb10 --memory 120GiB",
        "true",
        &["does not fit on this host, which can promise"],
    ),
    (
        "--memory 8GiB",
        "true",
        &["no NVIDIA driver here: libcuda.so.1 cannot be loaded"],
    ),
];

#[test]
fn the_errors_on_the_page_are_those_that_gpuslice_prints() {
    let page = read(Path::new(BOOK).join("troubleshooting.md"));
    let has_driver = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ]
    .iter()
    .any(|folder| Path::new(folder).join("libcuda.so.1").exists());
    for (options, script, fragments) in ERRORS {
        if has_driver && !options.contains("--sim") {
            continue;
        }
        let home = Home::new();
        let mistyped = r#"{"version":1,"memry":1}"#;
        fs::write(home.work.path().join("mistyped.json"), mistyped).unwrap();
        let script = format!("GPUSLICE={}; {script}", program().display());
        let mut words = vec!["run"];
        words.extend(options.split(' '));
        words.extend(["--", "sh", "-c", &script]);
        let ran = home.gpuslice(&words);
        let printed = [ran.stdout, ran.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).replace("    ", " ");
        assert!(!ran.status.success(), "{options}: {printed}");
        for fragment in *fragments {
            assert!(printed.contains(fragment), "{options}: {printed}");
            assert!(page.contains(fragment), "troubleshooting.md: {fragment}");
        }
    }
}

/// The rows of the tables of a page: what stands between backticks in the first column.
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

/// The source file below `folder` that contains `text`.
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
    // Those of `model_files` stand in its own row.
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

#[test]
fn the_readme_is_short_and_wrapped() {
    let text = read("README.md");
    assert!(text.lines().count() <= 130, "{}", text.lines().count());
    for line in text.lines() {
        let is_wrapped = line.starts_with('|') || line.chars().count() <= 100;
        assert!(is_wrapped, "{line}");
    }
}
