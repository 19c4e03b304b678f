//! `gpuslice run --dry-run` prints the plan of a run, with the run's warnings, refusals and exit
//! status. It writes nothing and starts nothing.

use crate::support::machine::{Machine, end};
use crate::support::{Home, Installation, told};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("dry_run"));

/// All files and folders below a folder.
fn below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            below(&path, found);
        }
        found.insert(path);
    }
}

/// The files that a run could leave behind: in this test's home, and on the host.
fn files(home: &Home) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    below(home.runtime.path(), &mut found);
    below(home.state.path(), &mut found);
    below(Path::new("/run/gpuslice"), &mut found);
    // Other tests have folders of their own in /dev/shm, which this list leaves out.
    let shared = fs::read_dir("/dev/shm").unwrap().flatten();
    found.extend(shared.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("gpuslice")
    }));
    found
}

/// The processes whose command line names this home.
fn processes(home: &Home) -> Vec<String> {
    let name = home.runtime.path().to_str().unwrap().to_owned();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains(&name))
        .collect()
}

#[test]
fn a_dry_run_prints_the_plan_and_leaves_nothing() {
    for (sim, memory) in [("rtx3090", "8GiB"), ("gb10", "40GiB"), ("h200-mig", "8GiB")] {
        let home = Home::new();
        let before = files(&home);
        let memory = format!("--memory={memory}");
        let options = ["--dry-run", "--sim", sim, &memory, "--name=test"];
        let (out, err, status) = told(home.of(&mut HERE.run(&options, "touch /started")));
        assert_eq!((err.as_str(), status), ("", 0), "{sim}");
        assert_eq!(files(&home), before, "{sim}");
        assert_eq!(processes(&home), Vec::<String>::new(), "{sim}");
        assert!(!Path::new("/started").exists());
        let library = HERE.folder.join("libgpuslice.so").display().to_string();
        for part in [
            "program\n  sh -c 'touch /started'\n",
            &format!("\nlibrary\n  {library}\n"),
            &format!("  LD_PRELOAD={library}\n"),
            "\"name\": \"test\"",
            "The driver was queried. Nothing was written, locked or started.\n",
        ] {
            assert!(out.contains(part), "{sim}: no {part:?} in\n{out}");
        }
        assert_eq!(out.contains("promise of 40.00 GiB"), sim == "gb10", "{out}");
        assert_eq!(out.contains("tenant"), sim != "gb10", "{out}");
    }
}

#[test]
fn a_dry_run_prints_the_slice_file_that_the_run_writes() {
    let machine = Machine::new(&HERE, "rtx3090");
    let options = ["--memory=8GiB", "--name=test", "--headroom=1GiB"];
    let (written, _, _) = told(&mut machine.run(&options, "cat $GPUSLICE_CONFIG"));
    let dry = [&["--dry-run"], &options[..]].concat();
    let (out, _, _) = told(&mut machine.run(&dry, "true"));
    for line in written.lines().filter(|line| !line.contains("ledger")) {
        assert!(out.contains(line), "no {line:?} in\n{out}");
    }
}

#[test]
fn a_dry_run_refuses_in_the_words_of_the_run() {
    let machine = Machine::new(&HERE, "rtx3090");
    let (child, _) = machine.slice(&["--memory=12GiB", "--name=llama"]);
    // The dry run comes first, because the run's watcher may outlive the run for a moment.
    for options in [
        &["--memory=12GiB", "--name=qwen"][..],
        &["--memory=30GiB", "--name=qwen"],
        &["--device=7=8GiB", "--name=qwen"],
        &["--memory=12GiB", "--name=over", "--overcommit"],
        &["--memory=8GiB", "--name=llama"],
        &["--config=/no/such/file"],
    ] {
        let dry = [&["--dry-run"], options].concat();
        let (_, dry_err, dry_status) = told(&mut machine.run(&dry, "true"));
        let (_, err, status) = told(&mut machine.run(options, "true"));
        assert_eq!((dry_err, dry_status), (err, status), "{options:?}");
    }
    end(child);

    let machine = Machine::new(&HERE, "gb10");
    let (child, _) = machine.slice(&["--memory=60GiB", "--name=llama"]);
    for options in [
        &["--memory=60GiB", "--name=qwen"][..],
        &["--memory=60GiB", "--name=over", "--overcommit"],
    ] {
        let dry = [&["--dry-run"], options].concat();
        let (_, dry_err, dry_status) = told(&mut machine.run(&dry, "true"));
        let (_, err, status) = told(&mut machine.run(options, "true"));
        assert_eq!((dry_err, dry_status), (err, status), "{options:?}");
    }
    end(child);
}

#[test]
fn a_dry_run_reports_a_program_that_cannot_be_started() {
    for (command, expected) in [
        ("/no/such/program", 127),
        ("/etc/passwd", 126),
        ("no-such", 127),
    ] {
        let outcome = |options: &[&str]| {
            let home = Home::new();
            let mut run: Command = HERE.gpuslice();
            run.arg("run")
                .args(options)
                .args(["--sim=rtx3090", "--memory=8GiB", "--", command]);
            let (_, err, status) = told(home.of(&mut run));
            (err, status)
        };
        let seen = outcome(&[]);
        assert_eq!(seen.1, expected, "{command}");
        assert_eq!(outcome(&["--dry-run"]), seen, "{command}");
    }
}

#[test]
fn a_dry_run_without_a_limit_does_not_query_the_driver() {
    let home = Home::new();
    let (out, err, status) = told(home.of(&mut HERE.run(&["--dry-run"], "true")));
    assert_eq!((err.as_str(), status), ("", 0));
    let end = "The driver was not queried. Nothing was written, locked or started.\n";
    assert!(out.ends_with(end), "{out}");
}
