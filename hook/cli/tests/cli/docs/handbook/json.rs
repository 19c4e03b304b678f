//! The page on JSON names every key that the commands print, and none that they do not print.
//! Touches: gpuslice, on simulated machines; slices and folders of its own.

use super::{BOOK, read};
use crate::support::member::{GPU, Member};
use crate::support::{Home, Installation, start, told};
use clap::CommandFactory;
use gpuslice_cli::cli::Cli;
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("json-page"));

/// The commands, as the page's headings name them, and the words that make each print as many of
/// its keys as it can: `MODEL` is a file, `ROOT` the folder of a host, `PID` the process of a slice. A command that is not in
/// this list fails `every_command_with_json_is_on_the_page`.
const COMMANDS: [(&str, &str); 15] = [
    (
        "run --dry-run --json",
        "run --dry-run --json --sim rtx3090 --memory 8GiB -- true",
    ),
    ("plan --json", "plan ROOT/slices.toml --sim gb10 --json"),
    ("check --json", "check --json --sim rtx3090 --device 0=8GiB"),
    ("status --json", "status --json"),
    ("doctor --json", "doctor PID --json"),
    ("resize --json", "resize llama 5GiB --json"),
    ("report --json", "report --json"),
    ("events --json", "events --json"),
    ("history --json", "history llama --json"),
    ("headroom --json", "headroom --json"),
    ("devices --json", "devices --json --sim rtx3090"),
    ("residency --json", "residency --json MODEL"),
    ("drop-cache --json", "drop-cache --json MODEL"),
    ("gc --json", "gc --json --force --root ROOT"),
    (
        "runtime configure --json",
        "runtime configure --json --runtime docker --dry-run --config ROOT/daemon.json --hook ROOT/gpuslice-hook",
    ),
];

/// The table below each heading of the page: the key of each row, and the row.
fn tables() -> Vec<(String, Vec<(String, String)>)> {
    let page = read(Path::new(BOOK).join("json.md"));
    let sections = page.split("\n## `gpuslice ").skip(1);
    sections
        .map(|section| {
            let (title, rest) = section.split_once("`\n").unwrap();
            let rows = rest.lines().filter_map(|line| {
                let key = line.strip_prefix("| `")?.split_once("` |")?.0;
                Some((key.to_owned(), line.to_owned()))
            });
            (title.to_owned(), rows.collect())
        })
        .collect()
}

/// The paths of a document, such as `slices[].devices[].used`, and those of its objects.
#[derive(Default)]
struct Printed {
    keys: BTreeSet<String>,
    objects: BTreeSet<String>,
}

impl Printed {
    fn add(&mut self, value: &Value, at: &str) {
        match value {
            Value::Object(members) => {
                self.objects.insert(at.to_owned());
                for (key, value) in members {
                    let path = match at {
                        "" => key.clone(),
                        at => format!("{at}.{key}"),
                    };
                    self.add(value, &path);
                    self.keys.insert(path);
                }
            }
            Value::Array(items) => items
                .iter()
                .for_each(|item| self.add(item, &format!("{at}[]"))),
            _ => {}
        }
    }
}

/// The path of the object that has this key.
fn parent(key: &str) -> &str {
    key.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// Compares a table with documents. Returns the keys that only one of them has.
fn differences(rows: &[(String, String)], documents: &[Value]) -> Vec<String> {
    let mut printed = Printed::default();
    for document in documents {
        printed.add(document, "");
    }
    let is_written = |key: &str| {
        let any = format!("{}.*", parent(key));
        // An object whose row lists its keys, or that another page describes.
        let within = |row: &(String, String)| {
            let inner = key.strip_prefix(row.0.as_str());
            inner.is_some_and(|inner| {
                let name = inner.rsplit(['.', ']']).next().unwrap_or_default();
                let is_inner = inner.starts_with(['.', '[']);
                is_inner && (row.1.contains(&format!("`{name}`")) || row.1.contains(".md)"))
            })
        };
        rows.iter()
            .any(|row| row.0 == key || row.0 == any || within(row))
    };
    let missing = printed.keys.iter().filter(|key| !is_written(key));
    let missing = missing.map(|key| format!("the page does not name {key}"));
    let superfluous = rows.iter().filter(|(key, row)| {
        let is_any = key.ends_with(".*") || row.contains("absent");
        let is_seen = printed.objects.contains(parent(key));
        !is_any && is_seen && !printed.keys.contains(key)
    });
    let superfluous = superfluous.map(|(key, _)| format!("the command does not print {key}"));
    missing.chain(superfluous).collect()
}

#[test]
fn every_command_with_json_is_on_the_page() {
    let written: BTreeSet<String> = tables()
        .iter()
        .map(|(title, _)| {
            let words = title.split(' ').filter(|word| !word.starts_with("--"));
            words.collect::<Vec<_>>().join(" ")
        })
        .collect();
    let mut found = BTreeSet::new();
    let mut left = vec![(String::new(), Cli::command())];
    while let Some((name, command)) = left.pop() {
        if command
            .get_arguments()
            .any(|it| it.get_long() == Some("json"))
        {
            found.insert(name.clone());
        }
        for verb in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = format!("{name} {}", verb.get_name()).trim().to_owned();
            left.push((name, verb.clone()));
        }
    }
    assert_eq!(written, found);
    let tested = COMMANDS.map(|(title, _)| title.to_owned());
    let titles: BTreeSet<String> = tables().into_iter().map(|(title, _)| title).collect();
    assert_eq!(titles, tested.into());
}

#[test]
fn the_page_names_the_keys_that_the_commands_print() {
    let home = Home::new();
    let work = tempfile::tempdir().unwrap();
    let model = work.path().join("model.safetensors");
    fs::write(&model, vec![1; 1 << 20]).unwrap();
    let root = work.path().display().to_string();
    fs::create_dir_all(work.path().join("run/gpuslice/slices")).unwrap();
    fs::write(work.path().join("run/gpuslice/slices/gone.json"), "x").unwrap();
    let slices = "[llama]\nmemory = \"20GiB\"\ncommand = [\"vllm\", \"serve\", \"m\"]\n";
    fs::write(work.path().join("slices.toml"), slices).unwrap();
    for program in ["gpuslice-hook", "gpuslice-runtime"] {
        std::os::unix::fs::symlink("/bin/true", work.path().join(program)).unwrap();
    }
    fs::create_dir(home.state.path().join("gpuslice")).unwrap();
    let learned = format!("{{\"version\":1,\"slices\":{{\"llama\":{{\"{GPU}\":1048576}}}}}}");
    fs::write(home.state.path().join("gpuslice/headroom.json"), learned).unwrap();
    let mut run = HERE.run(
        &["--sim=rtx3090", "--memory=8GiB", "--name=llama"],
        "echo $GPUSLICE_CONFIG; read line",
    );
    let (mut child, config) = start(home.of(&mut run).stdin(Stdio::piped()));
    Member::of(&config).take(Bytes::mib(64), Kind::Linear);

    let tables = tables();
    let mut wrong = Vec::new();
    for (title, words) in COMMANDS {
        let model = model.to_str().unwrap();
        let words = words.replace("MODEL", model).replace("ROOT", &root);
        let words = words.replace("PID", &child.id().to_string());
        let mut command = HERE.gpuslice();
        let (out, err, _) = told(home.of(&mut command).args(words.split(' ')));
        let documents: Vec<Value> = serde_json::Deserializer::from_str(&out)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap_or_else(|error| panic!("gpuslice {words}: {error}: {out}{err}"));
        assert!(!documents.is_empty(), "gpuslice {words}: {err}");
        let is_versioned = ["{\n  \"schema\": 1,\n", "{\"schema\":1,"]
            .iter()
            .any(|start| out.starts_with(start));
        assert!(is_versioned, "{title}: {out}");
        let (_, rows) = tables.iter().find(|(one, _)| one == title).unwrap();
        let differences = differences(rows, &documents);
        wrong.extend(differences.into_iter().map(|it| format!("{title}: {it}")));
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(wrong.is_empty(), "json.md:\n{}", wrong.join("\n"));
}

#[test]
fn a_key_that_only_the_page_or_only_the_document_has_is_found() {
    let row = |key: &str, text: &str| (key.to_owned(), format!("| `{key}` | {text} |"));
    let rows = [
        row("a", "list"),
        row("a[].b", "number"),
        row("c", "object: `d`"),
        row("e", "number"),
        row("f", "number; absent without a GPU"),
    ];
    let value = serde_json::json!({"a": [{"b": 1, "x": 2}], "c": {"d": 1, "y": 2}});
    let expected = [
        "the page does not name a[].x",
        "the page does not name c.y",
        "the command does not print e",
    ];
    assert_eq!(differences(&rows, &[value]), expected);
}
