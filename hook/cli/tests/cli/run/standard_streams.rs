//! gpuslice with standard input or output closed or full.

use crate::support::{Home, Installation, start, told};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("standard-streams"));

/// Runs gpuslice with these words in a shell that applies these redirections.
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
    // Slices of other tests are not in this home.
    let home = Home::new();
    for words in [
        "check --sim rtx3090 --bare",
        "devices --sim rtx3090",
        "devices --sim rtx3090 --json",
        "status",
        "status --json",
        "status --watch",
        "report",
        "headroom",
        "headroom --json",
        "gc",
        "residency $0",
        "man",
        "completions bash",
        "--version",
        "--help",
        "run --help",
    ] {
        for (redirections, why) in [
            (">/dev/full", "No space left on device (os error 28)"),
            (">&-", "Bad file descriptor (os error 9)"),
            ("<&- >&-", "Bad file descriptor (os error 9)"),
        ] {
            let seen = told(home.of(&mut redirected(words, redirections)));
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
fn a_file_option_that_names_standard_output_writes_there() {
    let generated = "cdi generate --size 8GiB --hook /bin/true";
    let whole = told(&mut redirected(generated, "")).0;
    assert!(whole.contains("8gib"), "{whole}");
    let words = format!("{generated} --output /dev/stdout");
    for redirections in ["| cat", ">\"$1\" && cat \"$1\"", ">>\"$1\" && cat \"$1\""] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let before = if redirections.starts_with(">>") {
            "before\n"
        } else {
            ""
        };
        std::fs::write(file.path(), before).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("\"$0\" {words} {redirections}")]);
        command.arg(HERE.executable()).arg(file.path());
        let (out, err, status) = told(&mut command);
        assert_eq!(
            (out, status),
            (format!("{before}{whole}"), 0),
            "{redirections}"
        );
        assert!(
            err.contains("1 devices of gpuslice.io/slice in /dev/stdout"),
            "{err}"
        );
    }
}

#[test]
fn a_plot_into_a_pipe_leaves_the_pipe_a_pipe() {
    use std::io::Read;
    use std::os::unix::fs::FileTypeExt;
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.svg");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // The pipe is opened for reading and writing, so that neither end waits for the other.
    let mut reader = std::fs::File::options();
    let mut reader = reader.read(true).write(true).open(&pipe).unwrap();
    let words = format!("report --for 1 --plot {}", pipe.display());
    // A plot without a slice would be empty, and is refused.
    // Slices of other tests are not in this home.
    let home = Home::new();
    let mut run = HERE.run(
        &["--sim=rtx3090", "--memory=8GiB"],
        "echo $GPUSLICE_CONFIG; read line",
    );
    let (mut child, _) = start(home.of(run.stdin(Stdio::piped())));
    let (_, err, status) = told(home.of(&mut redirected(&words, "")));
    assert_eq!((err.as_str(), status), ("", 0));
    let mut start = [0; 5];
    reader.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"<svg ");
    let kind = std::fs::symlink_metadata(&pipe).unwrap().file_type();
    assert!(kind.is_fifo());
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn the_command_finds_its_streams_closed_as_the_caller_left_them() {
    let script = "run --sim rtx3090 --memory 8GiB -- sh -c 'for n in 0 1; do \
                  if [ -e /proc/$$/fd/$n ]; then echo $n open >&2; else echo $n closed >&2; fi; done'";
    let (_, err, status) = told(&mut redirected(script, "<&- >&-"));
    assert_eq!((err.as_str(), status), ("0 closed\n1 closed\n", 0));
}
