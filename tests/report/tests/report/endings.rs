//! Sections and variants that fail, and reports that are ended.

use crate::support::{Report, folders_of, processes_in};
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

/// The build output.
fn target() -> std::path::PathBuf {
    let named = std::env::var_os("GPUSLICE_TARGET").map(std::path::PathBuf::from);
    named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"))
}

#[test]
fn a_section_that_cannot_run_says_why() {
    let report = Report::of("unified threads");
    // A build output without the simulated driver.
    let partial = report.path("target");
    fs::create_dir_all(partial.join("release")).unwrap();
    let library = target()
        .canonicalize()
        .unwrap()
        .join("release/libgpuslice.so");
    symlink(library, partial.join("release/libgpuslice.so")).unwrap();
    let written = report.env("GPUSLICE_TARGET", partial).written();
    let [unified, threads] = &written.json["sections"].as_array().unwrap()[..] else {
        panic!("{}", written.json);
    };
    let reason = unified["not_run"].as_str().unwrap();
    assert!(
        reason.contains("the simulated driver is not built"),
        "{reason}"
    );
    assert!(written.text.contains("NOT RUN: ") && written.page.contains("Not run: "));
    assert!(threads["not_run"].is_null(), "{threads}");
}

#[test]
fn a_peer_that_fails_is_named_and_the_others_are_measured() {
    let source =
        "#include <unistd.h>\n__attribute__((constructor)) static void f(void) { _exit(9); }";
    let written = Report::of("threads").peer(source).written();
    let section = &written.json["sections"][0];
    assert_eq!(
        section["failures"][0]["variant"], "peer: libpeer.so",
        "{section}"
    );
    let rows = section["figures"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{section}");
    assert!(
        written
            .text
            .contains("FAILED: peer: libpeer.so: calls failed"),
        "{}",
        written.text
    );
}

#[test]
fn a_signal_ends_the_report_and_all_that_it_has_started() {
    let report = Report::of("processes");
    // Programs of this peer stay until they are killed.
    let here = report.path("here");
    let source = format!(
        "#include <fcntl.h>\n#include <unistd.h>\n__attribute__((constructor)) static void f(void) \
         {{ close(open(\"{}\", O_CREAT | O_WRONLY, 0600)); for (;;) pause(); }}",
        here.display()
    );
    let mut report = report.peer(&source);
    let mut child = report.start();
    let start = Instant::now();
    while !here.exists() {
        let is_over = start.elapsed() > Duration::from_secs(300);
        assert!(!is_over, "the peer is not measured");
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "the report has ended: {ended:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let folder = folders_of(child.id()).pop().unwrap();
    assert!(!processes_in(&folder).is_empty());
    let id = i32::try_from(child.id()).unwrap();
    // SAFETY: takes no pointers; the child was not waited for.
    assert_eq!(unsafe { libc::kill(id, libc::SIGTERM) }, 0);
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("ended by a signal"), "{said}");
    assert!(!folder.exists());
    let start = Instant::now();
    while !processes_in(&folder).is_empty() {
        // A killed process needs a moment to end.
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{:?}",
            processes_in(&folder)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_unknown_section_is_refused_and_the_known_ones_are_named() {
    let mut report = Report::of("query querry");
    let output = report.start().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("no section \"querry\" (there are query look-ups alloc"),
        "{said}"
    );
    assert!(!report.path("report.json").exists());
}
