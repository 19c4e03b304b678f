//! A caller gives its programs little stack (`ulimit -s 64`). gpuslice works, and the program of a
//! run has the caller's limit.

use crate::support::{Home, Installation, told};
use std::process::Command;

#[test]
fn gpuslice_works_with_a_stack_of_64_kib() {
    let (home, here) = (Home::new(), Installation::new("small-stack"));
    let said = |script: &str| {
        let script = script.replace("gpuslice", &here.executable().display().to_string());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -s 64; {script}")]);
        told(home.of(&mut shell))
    };
    let run = said("gpuslice run --sim rtx3090 --memory 8GiB -- sh -c 'ulimit -s'");
    assert_eq!(run, ("64\n".to_owned(), String::new(), 0));
    let check = said("gpuslice check --sim rtx3090 --memory 8GiB");
    assert!(check.0.contains("\nCONSISTENT"), "{check:?}");
    assert_eq!(check.2, 0, "{check:?}");
    for other in ["gpuslice --help", "gpuslice status"] {
        let (out, err, code) = said(other);
        assert_eq!((err.as_str(), code), ("", 0), "{other}: {out}");
    }
    // gpuslice's own exit status is passed on, too.
    assert_eq!(said("gpuslice run --sim rtx3090 --memory Q -- true").2, 125);
}
