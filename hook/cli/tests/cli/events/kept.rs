//! The events of runs, during and after them, and their file.

use super::{HERE, Program, awaited, end, events, kinds, said, waiting};
use crate::support::member::GPU;
use crate::support::{Home, eventually, spawn, told};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_refusal_is_listed_during_the_run_and_after_it() {
    let home = Home::new();
    let mut program = Program::start(&home, &["--memory=4GiB", "--name=llama"]);
    assert_eq!(program.allocates(3072), 0);
    assert_eq!(program.allocates(2048), 2);
    let refusal = awaited(&home, "refusal");
    let pid = program.pid;
    program.ends();
    let last = awaited(&home, "end");
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .unwrap()
        .unwrap()
        .name;
    for event in [&refusal, &last] {
        assert_eq!(event["schema"], 1);
        assert_eq!(
            (&event["slice"], &event["pid"]),
            (&json!("llama"), &json!(pid))
        );
        assert_eq!(
            (&event["user"], &event["device"]),
            (&json!(user), &json!(GPU))
        );
        assert_eq!(
            (&event["limit"], &event["count"]),
            (&json!(4u64 << 30), &json!(1))
        );
        assert_eq!(event["simulated"], true);
    }
    let (used, short) = (
        refusal["used"].as_u64().unwrap(),
        refusal["bytes"].as_u64().unwrap(),
    );
    assert!((3 << 30..4 << 30).contains(&used), "{refusal}");
    // What was free, and what was missing, make up the request.
    assert_eq!(
        (4 << 30) - used + 2048 * 1024 * 1024 - short,
        2 * ((4 << 30) - used),
        "{refusal}"
    );
    let peak = last["peak"].as_u64().unwrap();
    assert_eq!(peak, used, "{last}");
    assert!(
        last["duration"].as_f64().unwrap() > 0.0 && last["started"].is_string(),
        "{last}"
    );
    assert_eq!(kinds(&home), ["start", "refusal", "end"]);
    let text = said(&home, &["events", "llama"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].ends_with("simulated) started with 4.00 GiB"),
        "{text}"
    );
    assert!(
        lines[1].contains(&format!(
            "llama (pid {pid}, {user}, simulated) was refused an allocation on GPU 0, "
        )),
        "{text}"
    );
    assert!(
        lines[2].contains(" of 4.00 GiB (sampled each second); an allocation was refused, "),
        "{text}"
    );
    assert_eq!(said(&home, &["events", "--since=1h"]), text);
}

#[test]
fn a_run_that_does_not_fit_is_an_event_and_names_who_holds_the_rest() {
    let home = Home::new();
    let state = tempfile::tempdir_in("/dev/shm").unwrap();
    let run = |options: &[&str]| {
        let mut command = HERE.run(options, "echo $GPUSLICE_CONFIG; read line");
        home.of(&mut command)
            .env("GPUSLICE_SIM_STATE", state.path());
        command
    };
    let mut first = run(&["--sim=rtx3090", "--memory=20GiB", "--name=first"]);
    let (first, _) = crate::support::start(first.stdin(Stdio::piped()));
    let (_, err, status) = told(&mut run(&[
        "--sim=rtx3090",
        "--memory=8GiB",
        "--name=second",
    ]));
    assert_eq!(status, 125);
    let refusal = awaited(&home, "admission-refusal");
    assert_eq!(
        (&refusal["slice"], &refusal["bytes"]),
        (&json!("second"), &json!(8u64 << 30))
    );
    let message = refusal["message"].as_str().unwrap();
    assert!(
        message.starts_with("is refused: no room for ") && message.contains("first"),
        "{message}"
    );
    assert!(err.contains("no room for"), "{err}");
    end(first);
    // A command that cannot be executed never started.
    let mut missing = HERE.gpuslice();
    home.of(&mut missing).args([
        "run",
        "--sim=rtx3090",
        "--memory=1GiB",
        "--",
        "/no/such/command",
    ]);
    assert_eq!(told(&mut missing).2, 127);
    awaited(&home, "end");
    assert_eq!(kinds(&home), ["start", "admission-refusal", "end"]);
}

/// Only `exec` finds that the script's interpreter is missing.
#[test]
fn the_end_of_a_run_whose_command_could_not_be_executed_says_so() {
    let home = Home::new();
    let script = home.state.path().join("script");
    gpuslice_test_programs::write_program(&script, "#!/no/such/interpreter\n");
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args(["run", "--sim=rtx3090", "--memory=1GiB", "--"])
        .arg(&script);
    assert_eq!(told(&mut command).2, 127);
    let end = awaited(&home, "end");
    let message = end["message"].as_str().unwrap();
    assert!(
        message.ends_with("the command could not be executed"),
        "{end}"
    );
}

#[test]
fn follow_prints_each_event_as_it_comes_also_after_a_rotation() {
    let home = Home::new();
    let mut command = HERE.gpuslice();
    home.of(&mut command).args(["events", "--follow", "--json"]);
    let mut follow = spawn(command.stdout(Stdio::piped()));
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    end(waiting(&home, &["--sim=rtx3090", "--memory=1GiB", "--name=one"]).0);
    let said = [next(), next()];
    assert_eq!([&said[0]["event"], &said[1]["event"]], ["start", "end"]);
    // The file is full: the next writer renames it.
    let file = home.state.path().join("gpuslice/events.jsonl");
    fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    end(waiting(&home, &["--sim=rtx3090", "--memory=1GiB", "--name=two"]).0);
    let said = [next(), next()];
    assert!(said.iter().all(|event| event["slice"] == "two"), "{said:?}");
    assert!(file.with_extension("jsonl.1").exists());
    follow.kill().unwrap();
    follow.wait().unwrap();
    let slices = events(&home, &[])
        .into_iter()
        .map(|event| event["slice"].clone());
    assert_eq!(slices.collect::<Vec<_>>(), ["one", "one", "two", "two"]);
}

#[test]
fn runs_that_start_and_end_at_once_lose_no_event() {
    let home = Home::new();
    let start = |number: u32| {
        let name = format!("--name=run{number}");
        let mut command = HERE.run(&["--sim=rtx3090", "--memory=1GiB", &name], "true");
        spawn(home.of(&mut command))
    };
    let mut children: Vec<_> = (0..8).map(start).collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    eventually("all have ended", || kinds(&home).len() == 16);
    for number in 0..8 {
        let name = format!("run{number}");
        let own = events(&home, &[&name]);
        let kinds: Vec<&Value> = own.iter().map(|event| &event["event"]).collect();
        assert_eq!(kinds, ["start", "end"], "{name}");
        assert_eq!(own[0]["pid"], own[1]["pid"]);
    }
}

#[test]
fn a_run_without_a_place_for_events_runs_all_the_same() {
    let home = Home::new();
    fs::write(home.state.path().join("gpuslice"), "a file").unwrap();
    let run = |command: &mut Command| {
        let command = command.args([
            "run",
            "--sim=rtx3090",
            "--memory=1GiB",
            "--",
            "echo",
            "done",
        ]);
        assert_eq!(told(command), ("done\n".to_owned(), String::new(), 0));
    };
    run(home.of(&mut HERE.gpuslice()));
    run(home
        .of(&mut HERE.gpuslice())
        .env("XDG_STATE_HOME", "/dev/null/x"));
    let (out, err, status) = told(home.of(&mut HERE.gpuslice()).arg("events"));
    let place = home.state.path().join("gpuslice");
    let expected = format!(
        "gpuslice: cannot read {}/events.jsonl: Not a directory (os error 20)\n",
        place.display()
    );
    assert_eq!((out.as_str(), err, status), ("", expected.clone(), 1));
    // A run is listed until its watcher has seen its end.
    let history = || told(home.of(HERE.gpuslice().arg("history")));
    eventually("no run is listed", || history().0.is_empty());
    let (out, err, status) = history();
    assert_eq!((out.as_str(), err, status), ("", expected, 1));
    fs::remove_file(&place).unwrap();
    let (out, err, status) = told(home.of(&mut HERE.gpuslice()).arg("events"));
    let expected = format!("gpuslice: no events in {}\n", place.display());
    assert_eq!((out.as_str(), err, status), ("", expected, 0));
    for wrong in ["1", "yesterday"] {
        let (_, err, status) = told(
            home.of(&mut HERE.gpuslice())
                .args(["events", "--since", wrong]),
        );
        assert!(status == 125 && err.contains("try 1h, 30min"), "{err}");
    }
}

#[test]
fn a_program_that_the_slice_does_not_limit_is_an_escape() {
    let (home, folder) = (Home::new(), tempfile::tempdir().unwrap());
    let (source, program) = (folder.path().join("a.c"), folder.path().join("static"));
    fs::write(&source, "int main(void) { return 0; }").unwrap();
    let mut cc = Command::new("cc");
    cc.arg("-static").arg("-o").args([&program, &source]);
    assert_eq!(told(&mut cc).2, 0);
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args([
            "run",
            "--sim=rtx3090",
            "--memory=1GiB",
            "--name=alone",
            "--",
        ])
        .arg(&program);
    assert_eq!(told(&mut command).2, 0);
    let escape = awaited(&home, "escape");
    let message = escape["message"].as_str().unwrap();
    let named = format!("{} is statically linked", program.display());
    assert!(message.starts_with("started, but its slice may not limit it: "));
    assert!(
        escape["slice"] == "alone" && message.contains(&named),
        "{escape}"
    );
    awaited(&home, "end");
    assert_eq!(kinds(&home), ["start", "escape", "end"]);
}
