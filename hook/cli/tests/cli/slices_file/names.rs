//! `gpuslice run --slice NAME`: the slice, the command and the variables of a file.

use super::{PROBE, Place};
use crate::support::{start, told};
use std::process::Stdio;

const TWO: &str = r#"
[chat]
memory = "12GiB"
command = ["sh", "-c", "echo $0 $1 $MODEL", "own", "it's one"]
env = { MODEL = "a model" }

[notebook]
memory = "3GiB"
"#;

#[test]
fn a_slice_of_a_file_runs_its_own_command_with_its_variables() {
    let place = Place::new("rtx3090", TWO);
    let ran = told(&mut place.run("chat", &[]));
    assert_eq!(ran, ("own it's one a model\n".to_owned(), String::new(), 0));
    // A command of the command line replaces it; its variables stay.
    let ran = told(&mut place.run("chat", &["--", "sh", "-c", "echo $MODEL"]));
    assert_eq!(ran, ("a model\n".to_owned(), String::new(), 0));
}

#[test]
fn every_api_shows_the_limit_of_the_file_and_one_byte_more_is_refused() {
    let place = Place::new("rtx3090", TWO);
    let ran = told(&mut place.run("notebook", &["--", "python3", "-c", PROBE]));
    assert_eq!(ran, ("3072 2 0\n".to_owned(), String::new(), 0));
}

#[test]
fn three_engines_of_one_file_run_together_and_a_fourth_is_refused() {
    let sleeper = r#"command = ["sh", "-c", "echo started; read line"]"#;
    let slice = |name: &str, size: &str| format!("[{name}]\nmemory = \"{size}\"\n{sleeper}\n");
    let names = ["chat", "embeddings", "reranker"];
    let sizes = ["10GiB", "8GiB", "4GiB"];
    let mut slices: String = names
        .iter()
        .zip(sizes)
        .map(|(name, size)| slice(name, size))
        .collect();
    slices += &slice("fourth", "2GiB");
    let place = Place::new("rtx3090", &slices);
    let mut engines = Vec::new();
    for name in names {
        let (child, line) = start(place.run(name, &[]).stdin(Stdio::piped()));
        assert_eq!(line, "started");
        engines.push(child);
    }
    let running: Vec<String> = place.slices().into_iter().map(|(name, _)| name).collect();
    assert_eq!(running, names);
    let (out, err, status) = told(&mut place.run("fourth", &[]));
    assert_eq!((out.as_str(), status), ("", 125), "{err}");
    let full = format!(
        "gpuslice: slice fourth of {}: no room for fourth: GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB) \
         has 1.69 GiB left, 2.00 GiB requested; held by chat (pid ",
        place.file().display()
    );
    assert!(err.starts_with(&full), "{err}");
    // The hint of the message is an option that the command takes.
    let (child, line) = start(
        place
            .run("fourth", &["--overcommit"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null()),
    );
    assert_eq!(line, "started");
    engines.push(child);
    for mut engine in engines {
        drop(engine.stdin.take());
        engine.wait().unwrap();
    }
}

#[test]
fn a_file_that_limits_one_gpu_counts_only_on_the_gpu_it_shows() {
    let place = Place::new(
        "2xh200",
        "[a]\nmemory = \"100GiB\"\nenv = { CUDA_VISIBLE_DEVICES = \"1\" }\n",
    );
    let (out, err, status) = told(&mut place.run("a", &["--dry-run", "--", "true"]));
    assert_eq!((err.as_str(), status), ("", 0));
    assert_eq!(
        out.matches("a record of 100.00 GiB among").count(),
        1,
        "{out}"
    );
    assert!(out.contains("  CUDA_VISIBLE_DEVICES=1\n"), "{out}");
}

#[test]
fn a_preload_of_the_file_is_kept_behind_the_library() {
    let place = Place::new(
        "rtx3090",
        "[a]\nmemory = \"1GiB\"\nenv = { LD_PRELOAD = \"libdl.so.2\" }\n",
    );
    let (out, err, status) = told(&mut place.run("a", &["--", "sh", "-c", "echo $LD_PRELOAD"]));
    assert_eq!((err.as_str(), status), ("", 0));
    assert!(out.ends_with("/libgpuslice.so:libdl.so.2\n"), "{out}");
}

#[test]
fn a_dry_run_names_the_file_and_starts_nothing() {
    let place = Place::new("rtx3090", TWO);
    let (out, err, status) = told(&mut place.run("chat", &["--dry-run"]));
    assert_eq!((err.as_str(), status), ("", 0));
    let file = place.file().display().to_string();
    let begin =
        format!("slice\n  chat ({file}, line 2)\n\nprogram\n  sh -c 'echo $0 $1 $MODEL' own");
    assert!(out.starts_with(&begin), "{out}");
    assert!(out.contains("  MODEL=a model\n"), "{out}");
    assert!(place.is_empty());
}

#[test]
fn options_that_describe_a_slice_are_refused_beside_its_name() {
    let place = Place::new("rtx3090", TWO);
    for option in [
        "--memory=1GiB",
        "--device=0=1GiB",
        "--total=device",
        "--no-enforce",
        "--name=x",
        "--page-cache=drop",
        "--bare",
    ] {
        let (out, err, status) = told(&mut place.run("chat", &[option, "--", "echo", "started"]));
        assert_eq!((out.as_str(), status), ("", 125), "{option}");
        assert!(
            err.contains("'--slice <NAME>' cannot be used with"),
            "{err}"
        );
    }
    for options in [
        &["--log=warn"][..],
        &["--strict"],
        &["--log-file=/dev/null"],
    ] {
        let words = [options, &["--", "echo", "started"]].concat();
        let ran = told(&mut place.run("chat", &words));
        assert_eq!(
            ran,
            ("started\n".to_owned(), String::new(), 0),
            "{options:?}"
        );
    }
}

#[test]
fn a_slice_that_cannot_be_taken_says_why() {
    let too_large = "[a]\nmemory = \"30GiB\"\ncommand = [\"true\"]\n\n[b]\nmemory = \"1GiB\"\n";
    let place = Place::new("rtx3090", too_large);
    let file = place.file().display().to_string();
    for (name, told_as) in [
        (
            "a",
            format!(
                "slice a of {file}: memory 30.00 GiB is more than GPU 0 (NVIDIA GeForce RTX 3090, 23.69 GiB) has; give at most \"24259MiB\""
            ),
        ),
        (
            "b",
            format!("slice b of {file} has no command: give one after --, or the key command"),
        ),
        (
            "c",
            format!("there is no slice \"c\" in {file}; there are a, b"),
        ),
    ] {
        let ran = told(&mut place.run(name, &[]));
        assert_eq!(ran, (String::new(), format!("gpuslice: {told_as}\n"), 125));
    }
}

#[test]
fn a_command_that_is_not_found_has_the_status_of_a_run() {
    let place = Place::new(
        "rtx3090",
        "[a]\nmemory = \"1GiB\"\ncommand = [\"no-such-program\"]\n",
    );
    let (_, err, status) = told(&mut place.run("a", &[]));
    assert_eq!(status, 127, "{err}");
}

#[test]
fn gpuslice_becomes_the_command_of_the_file() {
    let place = Place::new(
        "rtx3090",
        "[a]\nmemory = \"1GiB\"\ncommand = [\"sh\", \"-c\", \"echo $$; read line\"]\n",
    );
    let mut command = place.run("a", &[]);
    let (mut child, pid) = start(command.stdin(Stdio::piped()));
    assert_eq!(pid, child.id().to_string());
    assert_eq!(place.slices(), [("a".to_owned(), u64::from(child.id()))]);
    drop(child.stdin.take());
    child.wait().unwrap();
}
