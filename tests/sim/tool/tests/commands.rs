//! The tool, run by its command line.
//! Touches: temporary state directories.
#![expect(clippy::unwrap_used, reason = "a test may stop")]

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Whether the tool succeeded, its standard output, and its standard error.
fn tool(state: &Path, words: &[&str]) -> (bool, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_gpuslice-sim"))
        .args(words)
        .env("GPUSLICE_SIM_STATE", state)
        .env_remove("GPUSLICE_SIM")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.success(), text(out.stdout), text(out.stderr))
}

#[test]
fn page_cache_and_host_programs_change_what_status_says() {
    let state = TempDir::new().unwrap();
    assert!(tool(state.path(), &["start", "gb10"]).0);
    let idle = tool(state.path(), &["status"]).1;
    assert!(
        idle.contains("host: total 124610 MiB, free 105728 MiB, available 118425 MiB"),
        "{idle}"
    );
    assert!(tool(state.path(), &["cache", "+60GiB"]).0);
    assert!(tool(state.path(), &["host", "+6GiB"]).0);
    let busy = tool(state.path(), &["status"]).1;
    assert!(
        busy.contains("free 38144 MiB, available 112281 MiB"),
        "{busy}"
    );
    assert!(tool(state.path(), &["reset"]).0);
    assert_eq!(tool(state.path(), &["status"]).1, idle);
}

#[test]
fn what_cannot_be_done_is_said() {
    let state = TempDir::new().unwrap();
    let (done, _, said) = tool(state.path(), &["status"]);
    assert!(!done && said.contains("no machine in"), "{said}");
    assert!(tool(state.path(), &["start", "gb10"]).0);
    for (words, expected) in [
        (&["cache", "12Q"][..], "`12Q` is not a size"),
        (&["start", "h200"], "is a running `gb10`"),
        (&["start", "nope"], "is a running `gb10`"),
        (&["dance"], "not a command: dance"),
    ] {
        let (done, _, said) = tool(state.path(), words);
        assert!(!done && said.contains(expected), "{words:?}: {said}");
    }
    assert!(tool(state.path(), &["remove"]).0);
    let (done, _, said) = tool(state.path(), &["start", "nope"]);
    assert!(!done && said.contains("rtx3090"), "{said}");
}
