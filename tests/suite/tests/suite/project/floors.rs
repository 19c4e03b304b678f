//! The folders of each crate are its rooms, which stand on floors: a room imports rooms below it,
//! never one above.
//! Touches: the sources, as text. ARCHITECTURE.md shows the same pictures.
//! Law: a new folder gets its floor and its purpose here, or the test fails.

use gpuslice_suite::place;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A crate, and its rooms from the top floor down, each with its purpose.
struct Crate {
    folder: &'static str,
    rooms: &'static [(&'static str, &'static str)],
    /// The page that shows the rooms.
    page: &'static str,
}

const CRATES: &[Crate] = &[SHIM, CONFIG, LEDGER, CLI, OCI, KUBERNETES, HOST];

const SHIM: Crate = Crate {
    folder: "shim/src",
    page: "ARCHITECTURE.md",
    rooms: &[
        ("interpose", "how a call of the program reaches a hook"),
        ("hooks", "what each hooked function does"),
        ("account", "who pays: claims and releases of device memory"),
        ("answer", "facts become the one answer"),
        ("page_cache", "model files leave the page cache"),
        (
            "slice",
            "what this process was given: slice file and ledger",
        ),
        ("real", "the real functions, in each copy of their library"),
        ("state", "what this process holds: wiped in a forked child"),
        ("log", "log lines and failure counters"),
        ("loader", "loaded objects and their symbols"),
        ("sys", "system calls"),
    ],
};

const CLI: Crate = Crate {
    folder: "hook/cli/src",
    page: "ARCHITECTURE.md",
    rooms: &[
        (
            "commands",
            "the commands, each in a file or folder of its own",
        ),
        (
            "launch",
            "plans and prepares the start of a program in a slice",
        ),
        (
            "runs",
            "running slices: folders, watchers, records, admission",
        ),
        ("slice", "one slice: options, limits, slice file and ledger"),
        (
            "driver",
            "the GPUs: asks the driver in a child, or a simulated one",
        ),
        ("base", "standard streams, exit statuses, text and files"),
    ],
};

const CONFIG: Crate = Crate {
    folder: "config/src",
    page: "ARCHITECTURE.md",
    rooms: &[
        ("answer", "the one answer about memory, and what is granted"),
        ("slice", "what a slice is: its file, its limits"),
        ("ledger", "how much memory each process of a slice holds"),
        ("promises", "what each slice of a machine was promised"),
        ("host", "the host's memory, as the kernel's files report it"),
        ("words", "amounts, devices, texts, paths"),
        ("sys", "system calls, made directly"),
    ],
};

const LEDGER: Crate = Crate {
    folder: "config/src/ledger",
    page: "config/src/ledger/README.md",
    rooms: &[
        ("kernel", "mappings, locks, and hints of a thread's end"),
        ("protocol", "the words of the file, and how they change"),
    ],
};

const OCI: Crate = Crate {
    folder: "hook/oci/src",
    page: "ARCHITECTURE.md",
    rooms: &[
        ("stage", "what the hook does at each stage of a container"),
        (
            "wrapper",
            "gpuslice-runtime: adds the hook, becomes the runtime",
        ),
        ("apply", "carries the plan out on the host"),
        ("inject", "puts the slice into the container"),
        ("plan", "decides: budgets, neighbours, files, mounts"),
        (
            "request",
            "what the runtime, the annotations and config.json say",
        ),
        ("base", "outcomes, crash points, the allocator"),
    ],
};

const KUBERNETES: Crate = Crate {
    folder: "hook/kubernetes/src",
    page: "ARCHITECTURE.md",
    rooms: &[
        ("nri", "the engine's calls: containers without a claim"),
        (
            "kubelet",
            "the kubelet's calls: registration, claims, health",
        ),
        ("publish", "the node's ResourceSlices, with taints"),
        ("report", "the status of claims, and events of pods"),
        ("ready", "refuses to serve where a claim would get no slice"),
        ("claims", "a claim becomes a CDI file"),
        ("api", "the API server: credentials, requests, errors"),
        ("base", "settings, names, quantities, log lines"),
    ],
};

const HOST: Crate = Crate {
    folder: "hook/host/src",
    page: "ARCHITECTURE.md",
    rooms: &[
        (
            "engine",
            "how engines run the hook: its definitions, runtimes",
        ),
        (
            "slices",
            "the slices of this machine: records, admission, removal",
        ),
        ("events", "events of slices: their file, and the host's log"),
        ("machine", "GPUs, policy and processes of this machine"),
        ("base", "paths, times, files, mounts, ELF files"),
    ],
};

/// Most files that a folder holds without rooms of its own.
const FLAT: usize = 15;

/// Most lines of a source file.
const LINES: usize = 400;

/// All Rust files below a folder, without tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .flatten();
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") && name != "tests.rs" {
            files.push(path);
        }
    }
    files
}

/// A file's path in its crate: `hooks/cuda/info.rs` is hooks, cuda, info.
fn module(source: &Path, file: &Path) -> Vec<String> {
    let relative = file.strip_prefix(source).expect("a file of this crate");
    let mut parts: Vec<String> = relative
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// The first names of the paths at the beginning of a text: one name, or those of a `{...}` group.
fn heads(text: &str) -> Vec<String> {
    let ident = |text: &str| -> String {
        text.chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect()
    };
    let Some(group) = text.strip_prefix('{') else {
        return vec![ident(text)];
    };
    let (mut names, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                names.push(ident(group[start..at].trim_start()));
                return names;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(ident(group[start..at].trim_start()));
                start = at + 1;
            }
            _ => {}
        }
    }
    names
}

/// The path of a folder's modules: that of `config/src/ledger` is `crate::ledger::`.
fn root_path(folder: &str) -> String {
    let (_, within) = folder.split_once("src").unwrap_or_default();
    format!("crate{}::", within.replace('/', "::"))
}

/// The rooms that a file imports, by a path from the root or by enough `super::` to reach the root.
fn imports(text: &str, module: &[String], root: &str) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let code = code
        .split("\n#[cfg(test)]\nmod ")
        .next()
        .unwrap_or_default();
    let mut rooms = BTreeSet::new();
    for (at, _) in code.match_indices(root) {
        rooms.extend(heads(&code[at + root.len()..]));
    }
    let upward = "super::".repeat(module.len());
    for (at, _) in code.match_indices(&upward) {
        rooms.extend(heads(&code[at + upward.len()..]));
    }
    rooms
}

/// The imports between the rooms of a crate, each with one file that has it.
fn edges(folder: &Path, root: &str) -> BTreeMap<(String, String), PathBuf> {
    let mut edges = BTreeMap::new();
    for file in sources(folder) {
        let module = module(folder, &file);
        if file.parent() == Some(folder) {
            // A file of the root holds the exports and the entry point, and belongs to no room.
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a source file");
        for room in imports(&text, &module, root) {
            let edge = (module[0].clone(), room);
            edges.entry(edge).or_insert_with(|| file.clone());
        }
    }
    edges
}

/// The picture of a crate's rooms, as a page shows it.
fn picture(krate: &Crate) -> String {
    let mut picture = format!("{}/\n", krate.folder);
    for (room, purpose) in krate.rooms {
        writeln!(picture, "  {room:<12} {purpose}").expect("a text");
    }
    picture
}

#[test]
fn imports_point_downward_only() {
    let mut wrong = Vec::new();
    for krate in CRATES {
        let folder = place::workspace().join(krate.folder);
        let floor = |room: &str| krate.rooms.iter().position(|(name, _)| *name == room);
        for entry in std::fs::read_dir(&folder).expect("a crate").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() && name != "bin" && floor(&name).is_none() {
                wrong.push(format!("{}/{name} has no floor in floors.rs", krate.folder));
            }
        }
        for ((from, to), file) in edges(&folder, &root_path(krate.folder)) {
            let (Some(above), Some(below)) = (floor(&from), floor(&to)) else {
                continue;
            };
            if below < above {
                wrong.push(format!("{}: {from} is below {to}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the floors: {wrong:#?}");
}

#[test]
fn no_folder_is_a_heap_of_files() {
    let mut wrong = Vec::new();
    for krate in CRATES {
        let folder = place::workspace().join(krate.folder);
        let mut count: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for file in sources(&folder) {
            *count
                .entry(file.parent().unwrap_or(&folder).into())
                .or_default() += 1;
        }
        wrong.extend(count.into_iter().filter(|(_, files)| *files > FLAT));
    }
    assert!(wrong.is_empty(), "more than {FLAT} files: {wrong:#?}");
}

#[test]
fn no_source_file_has_more_than_400_lines() {
    let mut wrong = Vec::new();
    for krate in CRATES {
        for file in sources(&place::workspace().join(krate.folder)) {
            let text = std::fs::read_to_string(&file).expect("a source file");
            if text.lines().count() > LINES {
                wrong.push(file);
            }
        }
    }
    assert!(wrong.is_empty(), "more than {LINES} lines: {wrong:#?}");
}

#[test]
fn pages_show_the_rooms_as_they_are() {
    for krate in CRATES {
        let page = place::workspace().join(krate.page);
        let page = std::fs::read_to_string(page).expect("a page");
        let picture = picture(krate);
        assert!(
            page.contains(&picture),
            "{} lacks this picture:\n{picture}",
            krate.page
        );
    }
}

#[test]
fn a_group_of_imports_names_each_room() {
    let module = ["hooks".into(), "cuda".into(), "info".into()];
    let text =
        "use crate::{log, real::{self, Slot}};\nuse super::super::super::sys;\n// crate::none";
    let expected = ["log", "real", "sys"].map(String::from);
    assert_eq!(imports(text, &module, "crate::"), expected.into());
}

#[test]
fn a_room_within_a_room_is_named_by_its_whole_path() {
    let root = root_path("config/src/ledger");
    assert_eq!(root, "crate::ledger::");
    let module = ["protocol".into(), "totals".into()];
    let text = "use crate::ledger::kernel::map;\nuse crate::words::units;\nuse super::super::open;";
    let expected = ["kernel", "open"].map(String::from);
    assert_eq!(imports(text, &module, &root), expected.into());
}
