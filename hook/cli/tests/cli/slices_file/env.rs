//! `gpuslice env`: a slice for a shell, for a Slurm task and for a Jupyter kernel, which ends with
//! its owner.

use super::{HERE, PROBE, Place};
use crate::support::{eventually, spawn, start, told};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const SLICES: &str = r#"
[notebook]
memory = "3GiB"
env = { MODEL = "it's $HOME" }

[large]
memory = "22GiB"
"#;

fn place() -> Place {
    Place::new("rtx3090", SLICES)
}

/// A script of bash, in which `slice NAME` prints the variables of a slice. `$G` is gpuslice.
fn bash(place: &Place, script: &str) -> Command {
    let slice = r#"slice() { "$G" env --sim "$SIM" --file "$FILE" "$@"; }"#;
    let mut command = HERE.gpuslice();
    let mut clean = Command::new("bash");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => clean.env(name, value),
            None => clean.env_remove(name),
        };
    }
    command = clean;
    place
        .on(&mut command)
        .args(["-c", &format!("{slice}\n{script}")])
        .env("G", HERE.executable())
        .env("SIM", place.sim)
        .env("FILE", place.file())
        .env("PROBE", PROBE);
    command
}

#[test]
fn every_program_of_a_shell_is_in_its_slice_until_the_shell_ends() {
    let place = place();
    let script = r#"
        eval "$(slice notebook)" || exit
        python3 -c "$PROBE"
        sh -c 'python3 -c "$PROBE"' | cat
        echo "$MODEL"
        "$G" doctor notebook | sed -n "1s/ for .*//p"
        echo $$
        read line"#;
    let mut command = bash(&place, script);
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let out = child.stdout.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(
        [next(), next(), next()],
        ["3072 2 0", "3072 2 0", "it's $HOME"]
    );
    // The shell itself is not in the slice, and need not be.
    assert_eq!(next(), "slice notebook is in force");
    // The shell owns the slice, and no one of its programs.
    assert_eq!(next(), child.id().to_string());
    let pid = u64::from(child.id());
    assert_eq!(place.slices(), [("notebook".to_owned(), pid)]);
    let (status, _, _) = told(place.on(HERE.gpuslice().args(["status", "--json"])));
    let status: Value = serde_json::from_str(&status).unwrap();
    let machine = &status["slices"][0]["machine"]["simulated"];
    assert_eq!(machine, place.sim, "{status}");
    // Its memory is taken, for other slices too.
    let (_, err, status) = told(&mut place.run("large", &["--", "true"]));
    let held = format!("held by notebook (pid {pid}) 3.00 GiB");
    assert!(status == 125 && err.contains(&held), "{err}");
    drop(child.stdin.take());
    child.wait().unwrap();
    eventually("the slice of the shell is removed", || place.is_empty());
    let ran = told(&mut place.run("large", &["--", "echo", "started"]));
    assert_eq!(ran, ("started\n".to_owned(), String::new(), 0));
}

#[test]
fn the_shell_owns_its_slice_also_behind_a_pipe_and_in_a_function() {
    let place = place();
    for line in [
        r#"eval "$(slice notebook | cat)""#,
        r#"eval "$(true; slice notebook; true)""#,
        r#"enter() { eval "$( (slice notebook) )"; }; enter"#,
        r#"slice notebook > "$HOME/vars"; . "$HOME/vars""#,
    ] {
        let script = format!("{line}\npython3 -c \"$PROBE\"; \"$G\" status --json; echo; echo $$");
        let (out, err, status) = told(&mut bash(&place, &script));
        assert_eq!((err.as_str(), status), ("", 0), "{line}");
        assert!(out.starts_with("3072 2 0\n"), "{line}: {out}");
        let pid = out.trim().lines().last().unwrap();
        assert!(out.contains(&format!("\"pid\": {pid},")), "{line}: {out}");
        eventually("the slice is removed", || place.is_empty());
    }
}

/// The variables of the first may be used later, for example those in the kernel.json of a server.
#[test]
fn two_slices_of_one_owner_both_count_before_any_program_is_in_them() {
    for (sim, size) in [("rtx3090", "20GiB"), ("gb10", "80GiB")] {
        let slices = format!("[large]\nmemory = \"{size}\"\n");
        let place = Place::new(sim, &slices);
        let (out, err, _) = told(&mut bash(
            &place,
            "a=$(slice large); b=$(slice large); echo $b",
        ));
        assert!(err.contains("large (pid "), "{sim}: {err}");
        assert_eq!(out, "false\n", "{sim}");
        eventually("the slice is removed", || place.is_empty());
    }
}

/// Any user can enter the folder of root's slice. A process opens the ledger by its random name,
/// which only the slice's environment contains.
#[test]
fn no_file_but_the_ledger_is_open_to_other_users() {
    let place = place();
    let script = r#"
        eval "$(slice notebook)"
        cd "$(dirname "$GPUSLICE_CONFIG")" && find . -type f -perm /077 -printf "%m %f\n""#;
    let (out, err, status) = told(&mut bash(&place, script));
    assert_eq!((err.as_str(), status), ("", 0));
    let others = |line: &&str| !line.contains(" ledger.");
    assert_eq!(out.lines().find(others), None);
}

/// The first process of a container is often a shell.
#[test]
fn a_shell_that_is_process_1_owns_its_slice_behind_a_pipe() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: a pid namespace needs root");
        return;
    }
    let place = place();
    let script = r#"eval "$(slice notebook | cat)"; sleep 2; python3 -c "$PROBE""#;
    let bash = bash(&place, script);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "bash"]);
    command.args(bash.get_args());
    for (name, value) in bash.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let ran = told(&mut command);
    assert_eq!(ran, ("3072 2 0\n".to_owned(), String::new(), 0));
}

#[test]
fn a_program_in_the_background_keeps_the_slice_after_the_shell() {
    let place = place();
    // The shell may end before the program has executed its file, and so shows the variables.
    let script = r#"
        eval "$(slice notebook)"
        sh -c 'echo $$; read line < "$HOME/pipe"' 2>&- &
        exit"#;
    let pipe = place.folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (mut child, pid) = start(&mut bash(&place, script));
    child.wait().unwrap();
    // Longer than the watcher waits before it looks for programs in the slice.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(!place.is_empty());
    let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    eventually("the slice is removed", || place.is_empty());
}

#[test]
fn a_slice_without_room_prints_no_variables_and_the_shell_goes_on() {
    let place = place();
    let (mut child, line) = start(
        place
            .run("large", &["--", "sh", "-c", "echo started; read line"])
            .stdin(Stdio::piped()),
    );
    assert_eq!(line, "started");
    let script = r#"vars=$(slice notebook); echo "$? $vars"; echo "${GPUSLICE_CONFIG-none}""#;
    let (out, err, status) = told(&mut bash(&place, script));
    assert_eq!((out.as_str(), status), ("125 false\nnone\n", 0));
    assert!(
        err.contains("has 1.69 GiB left, 3.00 GiB requested; held by large"),
        "{err}"
    );
    // The message's own advice works.
    let script = r#"eval "$(slice notebook --overcommit)"; python3 -c "$PROBE""#;
    let (out, _, _) = told(&mut bash(&place, script));
    assert!(out.starts_with("3072 "), "{out}");
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_shell_in_a_slice_gets_no_second_one() {
    let place = place();
    let script = r#"eval "$(slice notebook)"; slice notebook; echo $?"#;
    let (out, err, _) = told(&mut bash(&place, script));
    assert_eq!(out, "false\n125\n");
    assert!(err.contains("this program is in a slice already"), "{err}");
}

#[test]
fn variables_that_cannot_be_printed_leave_no_slice() {
    let place = place();
    let script = "slice notebook > /dev/full; echo $?; slice notebook >&-; echo $?; read line";
    let mut command = bash(&place, script);
    let mut child = spawn(
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    let out = child.stdout.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!([next(), next()], ["125", "125"]);
    // The shell still runs.
    eventually("nothing is left", || place.is_empty());
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn a_jupyter_kernel_gets_its_slice_from_the_member_env() {
    let place = place();
    // The server, in whose place a process waits.
    let mut server = spawn(
        Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null()),
    );
    let owner = server.id().to_string();
    let file = place.file_option();
    let words = [
        "env",
        "notebook",
        "--sim=rtx3090",
        &file,
        "--format=json",
        "--owner",
        &owner,
    ];
    let (out, err, status) = told(&mut place.gpuslice(&words));
    assert_eq!((err.as_str(), status), ("", 0));
    assert!(
        out.starts_with("{\n  \"schema\": 1,\n  \"name\": \"notebook\",\n"),
        "{out}"
    );
    let printed: Value = serde_json::from_str(&out).unwrap();
    let env: BTreeMap<String, String> = serde_json::from_value(printed["env"].clone()).unwrap();
    assert_eq!(printed["owner"], server.id());
    assert_eq!(env["MODEL"], "it's $HOME");
    let mut kernel = Command::new("python3");
    kernel.args(["-c", PROBE]).envs(&env);
    assert_eq!(
        told(&mut kernel),
        ("3072 2 0\n".to_owned(), String::new(), 0)
    );
    assert!(!place.is_empty());
    drop(server.stdin.take());
    server.wait().unwrap();
    eventually("the slice of the server is removed", || place.is_empty());
}

/// A step of Slurm: its daemon runs the TaskProlog, sets the variables that this prints for the
/// task, and runs the task. bash under the name of slurmstepd stands in for the daemon.
#[test]
fn a_slurm_task_gets_its_slice_from_the_prolog_and_the_step_owns_it() {
    let place = place();
    let daemon = place.folder.path().join("slurmstepd");
    let bash = Path::new("/bin/bash").canonicalize().unwrap();
    gpuslice_test_programs::copy_program(&bash, &daemon);
    let prolog = r#"#!/bin/sh
echo "print starting"
"$G" env notebook --sim rtx3090 --file "$FILE" --format slurm
"#;
    let prolog_file = place.folder.path().join("prolog");
    fs::write(&prolog_file, prolog).unwrap();
    let step = r#"
        sh "$HOME/prolog" > "$HOME/said"
        set -a
        while IFS= read -r line; do
            case $line in
            "export "*) line=${line#export }; printf -v "${line%%=*}" %s "${line#*=}" ;;
            "unset "*) unset "${line#unset }" ;;
            esac
        done < "$HOME/said"
        python3 -c "$PROBE"
        echo $$
        read line"#;
    let mut command = Command::new(&daemon);
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "GPUSLICE_CONFIG",
        "CUDA_VISIBLE_DEVICES",
    ] {
        command.env_remove(name);
    }
    place
        .on(&mut command)
        .args(["-c", step])
        .env("G", HERE.executable())
        .env("FILE", place.file())
        .env("PROBE", PROBE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = spawn(&mut command);
    let out = child.stdout.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "3072 2 0");
    assert_eq!(next(), child.id().to_string());
    assert_eq!(
        place.slices(),
        [("notebook".to_owned(), u64::from(child.id()))]
    );
    drop(child.stdin.take());
    child.wait().unwrap();
    eventually("the slice of the step is removed", || place.is_empty());
}

#[test]
fn an_owner_that_does_not_exist_is_named() {
    let place = place();
    let file = place.file_option();
    for (more, why, printed) in [
        (
            &["--owner", "4194999"][..],
            "gpuslice: there is no process 4194999 to own the slice\n",
            // The status of an eval is that of what it evaluates.
            "false\n",
        ),
        (
            &["--format", "slurm"],
            "gpuslice: there is no slurmstepd above this process: name the slice's owner with --owner\n",
            "",
        ),
    ] {
        let words = [&["env", "notebook", "--sim=rtx3090", &file][..], more].concat();
        let ran = told(&mut place.gpuslice(&words));
        assert_eq!(ran, (printed.to_owned(), why.to_owned(), 125));
    }
    let (_, err, status) = told(&mut place.gpuslice(&["env", "nb", &file]));
    assert!(
        status == 125 && err.contains("there are notebook, large"),
        "{err}"
    );
    assert!(place.is_empty());
}

#[test]
fn the_start_and_the_end_of_a_shells_slice_are_events() {
    let place = place();
    let script = r#"eval "$(slice notebook)"; "$G" run -- true; python3 -c "$PROBE"; echo $$"#;
    let (out, err, status) = told(&mut bash(&place, script));
    assert_eq!((err.as_str(), status), ("", 0));
    let pid: u64 = out.lines().last().unwrap().parse().unwrap();
    let events = || {
        let (out, _, _) = told(&mut place.gpuslice(&["events", "--json"]));
        let lines = out
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines = lines.map(|event| (event["event"].to_string(), event["pid"].as_u64()));
        lines.collect::<Vec<_>>()
    };
    let event = |kind: &str| (format!("\"{kind}\""), Some(pid));
    // The program asks for more than the limit. What gpuslice run starts inside the slice is no start
    // of another one.
    let expected = ["start", "refusal", "end"].map(event);
    eventually("the end", || events() == expected);
    let (out, _, _) = told(&mut place.gpuslice(&["history", "notebook", "--json"]));
    assert!(out.contains(&format!("\"pid\": {pid},")), "{out}");
}

#[test]
fn a_name_that_no_file_has_fails_the_eval() {
    let place = place();
    let (out, err, status) = told(&mut bash(
        &place,
        r#"eval "$(slice nosuch)" || echo failed"#,
    ));
    assert_eq!((out.as_str(), status), ("failed\n", 0));
    assert!(err.contains("nosuch"), "{err}");
    let script = r#"slice notebook >/dev/full || echo failed"#;
    let (out, _, _) = told(&mut bash(&place, script));
    assert_eq!(out, "failed\n");
    eventually("no slice is left", || place.is_empty());
}
