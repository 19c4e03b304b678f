//! The commands that pages show do run, and gpuslice prints the errors that pages quote.
//! Touches: the release build of `gpuslice`, on simulated machines.

use super::{BOOK, documents, read, workspace};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The commands in the shell blocks of a document, without comments. In a recorded session, `$ `
/// precedes a command.
pub(super) fn commands(text: &str) -> Vec<String> {
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

/// The path of gpuslice's release build.
fn program() -> PathBuf {
    let target = std::env::var_os("GPUSLICE_TARGET").map(PathBuf::from);
    let target = target.unwrap_or_else(|| workspace().join("target"));
    let program = target.join("release/gpuslice");
    fs::canonicalize(&program).unwrap_or_else(|_| panic!("run `make` first: {program:?}"))
}

/// Folders for the slices of one command, and for the files that it writes.
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
        self.command(words).output().unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(words)
            .current_dir(self.work.path())
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .env("XDG_STATE_HOME", self.work.path())
            .env("XDG_CONFIG_HOME", self.work.path())
            .env_remove("LD_PRELOAD")
            .env_remove("GPUSLICE_CONFIG")
            .env_remove("GPUSLICE_SIM_STATE")
            .env_remove("CUDA_VISIBLE_DEVICES");
        command
    }
}

/// The simulated machine for a page's command that names none.
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
            let rest = rest.trim_end_matches(" &");
            // The slice of a file may have a command of its own.
            let (options, program) = rest.split_once(" -- ").unwrap_or((rest, ""));
            assert!(
                !program.is_empty() || options.contains("--slice "),
                "{rest}"
            );
            let home = Home::new();
            let slices = home.work.path().join("gpuslice");
            fs::create_dir(&slices).unwrap();
            let example = read("packaging/examples/slices.toml");
            fs::write(slices.join("slices.toml"), example).unwrap();
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

/// The README showed two engines of 12 GiB on a card of 24 GiB, of which the driver keeps some.
#[test]
fn engines_that_a_page_starts_in_the_background_fit_its_machine_together() {
    let mut seen = 0;
    for page in documents() {
        let all = commands(&read(&page));
        let is_run = |command: &&String| command.starts_with("gpuslice run ");
        let runs = all.iter().filter(is_run);
        let runs: Vec<&str> = runs
            .filter_map(|command| command.strip_suffix(" &"))
            .collect();
        if runs.len() < 2 {
            continue;
        }
        let home = Home::new();
        let mut running = Vec::new();
        for run in runs {
            let (options, _) = run.split_once(" -- ").unwrap();
            let sim = machine(&page, options);
            let words = format!("{options} --sim {sim} -- sh -c").replacen("gpuslice ", "", 1);
            let mut words: Vec<&str> = words.split(' ').collect();
            words.push("echo starts; read line");
            let mut child = home
                .command(&words)
                .env("GPUSLICE_SIM_STATE", home.work.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap())
                .read_line(&mut line)
                .unwrap();
            assert_eq!(line, "starts\n", "{}: {run}", page.display());
            running.push(child);
            seen += 1;
        }
        for mut child in running {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }
    assert!(seen >= 6, "{seen}");
}

/// The options of `gpuslice run`, a script, and the lines that the page on troubleshooting quotes.
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
        &["8 without a unit is 8 B, too little for any program (did you mean 8GiB?)"],
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
