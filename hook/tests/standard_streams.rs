//! gpuslice, called with standard input or output closed, or full.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]
mod support;

use std::process::Command;
use std::sync::LazyLock;
use support::{Installation, told};

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("standard-streams"));

/// gpuslice with these words, called by a shell that redirects as it is told.
fn redirected(words: &str, redirections: &str) -> Command {
    let script = format!("exec \"$0\" {words} {redirections}");
    let gpuslice = HERE.gpuslice();
    let mut command = Command::new("sh");
    for (name, value) in gpuslice.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["-c", &script]).arg(HERE.executable());
    command
}

#[test]
fn closed_streams_change_no_verdict() {
    for options in ["--bare", "--memory 8GiB"] {
        let words = format!("check --json --sim rtx3090 {options}");
        for redirections in ["<&-", "2>&-", "<&- 2>&-"] {
            let (out, err, status) = told(&mut redirected(&words, redirections));
            let what = format!("{words} {redirections}: {out}{err}");
            assert_eq!((err.as_str(), status), ("", 0), "{what}");
            let json: serde_json::Value = serde_json::from_str(&out).unwrap();
            assert_eq!(json["consistent"], true, "{what}");
        }
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_that_is_said() {
    for words in [
        "check --sim rtx3090 --bare",
        "devices --sim rtx3090",
        "devices --sim rtx3090 --json",
        "man",
        "completions bash",
    ] {
        for (redirections, why) in [
            (">/dev/full", "No space left on device (os error 28)"),
            (">&-", "Bad file descriptor (os error 9)"),
            ("<&- >&-", "Bad file descriptor (os error 9)"),
        ] {
            let seen = told(&mut redirected(words, redirections));
            let message = format!("gpuslice: cannot write to standard output: {why}\n");
            assert_eq!(
                seen,
                (String::new(), message, 125),
                "{words} {redirections}"
            );
        }
    }
}

#[test]
fn the_command_finds_its_streams_closed_as_the_caller_left_them() {
    let script = "run --sim rtx3090 --memory 8GiB -- sh -c 'for n in 0 1; do \
                  if [ -e /proc/$$/fd/$n ]; then echo $n open >&2; else echo $n closed >&2; fi; done'";
    let (_, err, status) = told(&mut redirected(script, "<&- >&-"));
    assert_eq!((err.as_str(), status), ("0 closed\n1 closed\n", 0));
}
