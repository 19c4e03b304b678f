//! `gpuslice run` with a library of another release.

use crate::support::{Home, Installation, told};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("releases"));

const OURS: &str = env!("CARGO_PKG_VERSION");

/// A number of as many letters as this release has, so that it can replace this one in a library.
fn release(number: &str) -> String {
    format!("{number:0<length$}", length = OURS.len())
}

/// An installation under `root`, whose library states other bytes at one place.
fn installed(root: &Path, from: &[u8], to: &[u8]) -> PathBuf {
    fs::create_dir_all(root).unwrap();
    let copied = Command::new("cp")
        .arg("-rL")
        .args([&HERE.folder, &HERE.folder.with_file_name("sim"), root])
        .status();
    assert!(copied.unwrap().success());
    let library = root.join("release/libgpuslice.so");
    let mut bytes = fs::read(&library).unwrap();
    let mut places = bytes.windows(from.len());
    let place = places.position(|found| found == from).unwrap();
    assert_eq!(from.len(), to.len());
    bytes[place..][..to.len()].copy_from_slice(to);
    fs::write(&library, bytes).unwrap();
    library
}

fn run(library: &Path, options: &[&str]) -> (String, String, i32) {
    let home = Home::new();
    let mut command = Command::new(library.with_file_name("gpuslice"));
    for name in ["LD_PRELOAD", "GPUSLICE_CONFIG", "GPUSLICE_SIM"] {
        command.env_remove(name);
    }
    command.args(["run", "--sim=rtx3090"]).args(options);
    told(home.of(command.args(["--", "echo", "started"])))
}

/// The beginning of the statement in a library's file.
fn stated(release: &str, first_key: &str) -> Vec<u8> {
    format!("{release}\n{first_key}\n").into_bytes()
}

#[test]
fn a_library_of_another_release_that_understands_the_slice_is_named() {
    for number in ["0.0.1", "9.9.9"] {
        let place = tempfile::tempdir().unwrap();
        let other = release(number);
        let (from, to) = (stated(OURS, "version"), stated(&other, "version"));
        let library = installed(place.path(), &from, &to);
        let warning = format!(
            "gpuslice: warning: {} is from gpuslice {other}, and this command from {OURS}: the \
             library understands this slice, but install both from one package\n",
            library.display()
        );
        let seen = run(&library, &["--memory=8GiB"]);
        assert_eq!(seen, ("started\n".to_owned(), warning, 0));
        // Without a slice there is nothing to be understood.
        let started = ("started\n".to_owned(), String::new(), 0);
        assert_eq!(run(&library, &[]), started);
    }
}

#[test]
fn a_library_of_the_same_series_is_used_without_a_word() {
    let place = tempfile::tempdir().unwrap();
    let (series, _) = OURS.rsplit_once('.').unwrap();
    let (from, to) = (
        stated(OURS, "version"),
        stated(&release(&format!("{series}.9")), "version"),
    );
    let library = installed(place.path(), &from, &to);
    let started = ("started\n".to_owned(), String::new(), 0);
    assert_eq!(run(&library, &["--memory=8GiB"]), started);
}

#[test]
fn an_older_library_that_does_not_know_a_key_stops_the_run() {
    let place = tempfile::tempdir().unwrap();
    let library = installed(place.path(), b"\nledger_id\n", b"\nledger_ix\n");
    let refusal = format!(
        "gpuslice: {} is from gpuslice {OURS}, which does not understand \"ledger_id\" in a slice \
         file of gpuslice {OURS}: install both from one package\n",
        library.display()
    );
    let refused = (String::new(), refusal, 125);
    assert_eq!(run(&library, &["--memory=8GiB"]), refused);
    assert_eq!(run(&library, &["--memory=8GiB", "--dry-run"]), refused);
    // A word is looked at only where a slice uses it.
    let place = tempfile::tempdir().unwrap();
    let library = installed(place.path(), b"\ntotal=device\n", b"\ntotal=divide\n");
    let started = ("started\n".to_owned(), String::new(), 0);
    assert_eq!(run(&library, &["--memory=8GiB"]), started);
    let (_, refusal, status) = run(&library, &["--memory=8GiB", "--total=device"]);
    assert_eq!(status, 125);
    assert!(
        refusal.contains("does not understand \"total=device\""),
        "{refusal}"
    );
}

#[test]
fn a_library_of_other_ledgers_or_without_a_release_stops_the_run() {
    let begins = |ledger: u8| {
        let mut bytes = vec![ledger, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(stated(OURS, "version"));
        bytes
    };
    let of_ours = u8::try_from(gpuslice_config::ledger::VERSION).unwrap();
    for (from, to, why) in [
        (
            begins(of_ours),
            begins(of_ours + 1),
            format!("is from gpuslice {OURS}, which does not read the ledgers of gpuslice {OURS}"),
        ),
        (
            b"\0.gpuslice\0".to_vec(),
            b"\0.gpusslic\0".to_vec(),
            format!(
                "does not state its release, so it may not understand a slice of gpuslice {OURS}"
            ),
        ),
    ] {
        let place = tempfile::tempdir().unwrap();
        let library = installed(place.path(), &from, &to);
        let refusal = format!(
            "gpuslice: {} {why}: install both from one package\n",
            library.display()
        );
        let seen = run(&library, &["--memory=8GiB"]);
        assert_eq!(seen, (String::new(), refusal, 125));
    }
}
