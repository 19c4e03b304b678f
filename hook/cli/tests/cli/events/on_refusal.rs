//! `gpuslice run --on-refusal`: a command of the user's, at the 1st, the 10th, the 100th refusal.

use super::{HERE, awaited, end, waiting};
use crate::support::member::{GPU, Member};
use crate::support::{Home, eventually, told};
use gpuslice_config::words::units::Bytes;
use std::fs;
use std::path::Path;

/// The lines of a file.
fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_command_runs_at_the_first_and_the_tenth_refusal() {
    let home = Home::new();
    let said = home.state.path().join("said");
    let script = format!(
        "echo $GPUSLICE_EVENT $GPUSLICE_EVENT_SLICE $GPUSLICE_EVENT_COUNT $GPUSLICE_EVENT_BYTES \
         $GPUSLICE_EVENT_LIMIT $GPUSLICE_EVENT_DEVICE $OWN ${{LD_PRELOAD-none}} >> {}",
        said.display()
    );
    let mut command = HERE.run(
        &[
            "--sim=rtx3090",
            "--memory=4GiB",
            "--name=llama",
            "--on-refusal",
            &script,
        ],
        "echo $GPUSLICE_CONFIG; read line",
    );
    command
        .env("OWN", "mine")
        .stdin(std::process::Stdio::piped());
    let (child, config) = crate::support::start(home.of(&mut command));
    let member = Member::of(&config);
    member.is_refused(Bytes::new(7));
    let expected = |count: u64| format!("refusal llama {count} 7 {} {GPU} mine none", 4u64 << 30);
    eventually("the first", || lines(&said) == [expected(1)]);
    (0..4).for_each(|_| member.is_refused(Bytes::new(3)));
    // The file has a line when the watcher has seen them.
    let seen = || {
        super::events(&home, &[])
            .iter()
            .any(|event| event["count"] == 5)
    };
    eventually("the fifth is seen", seen);
    assert_eq!(lines(&said).len(), 1);
    (0..6).for_each(|_| member.is_refused(Bytes::new(3)));
    eventually("the tenth", || lines(&said) == [expected(1), expected(11)]);
    end(child);
    awaited(&home, "end");
    assert_eq!(lines(&said).len(), 2);
}

#[test]
fn a_relative_path_is_that_of_the_callers_folder() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("tell-me.sh");
    let text = "#!/bin/sh\necho $GPUSLICE_EVENT_SLICE >said\n";
    gpuslice_test_programs::write_program(&script, text);
    let options = ["--sim=rtx3090", "--memory=4GiB", "--name=llama"];
    let options = [&options[..], &["--on-refusal", "./tell-me.sh"]].concat();
    let mut command = HERE.run(&options, "echo $GPUSLICE_CONFIG; read line");
    command
        .current_dir(folder.path())
        .stdin(std::process::Stdio::piped());
    let (child, config) = crate::support::start(home.of(&mut command));
    Member::of(&config).is_refused(Bytes::new(7));
    let said = folder.path().join("said");
    eventually("it runs", || lines(&said) == ["llama"]);
    end(child);
}

#[test]
fn a_command_that_the_shell_cannot_read_is_refused_at_the_start() {
    for (script, why) in [
        ("", "the command is empty"),
        ("echo 'x", "the shell cannot read it"),
    ] {
        let options = ["--sim=rtx3090", "--memory=4GiB", "--on-refusal", script];
        let home = Home::new();
        let mut command = HERE.run(&options, "true");
        let (_, err, status) = told(home.of(&mut command));
        assert!(status == 125 && err.contains(why), "{status} {err}");
    }
}

#[test]
fn where_nothing_is_refused_no_refusal_is_an_event() {
    let home = Home::new();
    let said = home.state.path().join("said");
    let script = format!("echo refused >{}", said.display());
    let options = [
        "--sim=rtx3090",
        "--memory=4GiB",
        "--name=llama",
        "--no-enforce",
    ];
    let options = [&options[..], &["--on-refusal", &script]].concat();
    let mut command = HERE.run(&options, "echo $GPUSLICE_CONFIG; read line");
    command.stdin(std::process::Stdio::piped());
    let (child, config) = crate::support::start(home.of(&mut command));
    Member::of(&config).is_refused(Bytes::mib(1));
    end(child);
    let end = awaited(&home, "end");
    assert_eq!(end["count"], 0, "{end}");
    let message = end["message"].as_str().unwrap();
    let over = "an allocation was over the limit, at worst by 1.00 MiB, and nothing was refused";
    let over = over.strip_prefix("an ").unwrap();
    assert!(message.contains(&format!("1 {over}")), "{message}");
    assert!(
        super::events(&home, &[])
            .iter()
            .all(|event| event["event"] != "refusal")
    );
    assert!(!said.exists());
}

#[test]
fn a_command_that_hangs_holds_up_neither_the_watcher_nor_the_run() {
    let home = Home::new();
    let pids = home.state.path().join("pids");
    let script = format!("echo $$ >> {}; exec sleep 600", pids.display());
    let options = ["--sim=rtx3090", "--memory=4GiB", "--on-refusal", &script];
    let (child, config) = waiting(&home, &options);
    let member = Member::of(&config);
    member.is_refused(Bytes::new(7));
    eventually("it runs", || lines(&pids).len() == 1);
    (0..20).for_each(|_| member.is_refused(Bytes::new(3)));
    end(child);
    // Only one runs at a time, and the run's folder goes all the same.
    let end = awaited(&home, "end");
    assert_eq!(end["count"], 21);
    eventually("the folder is gone", || !Path::new(&config).exists());
    let pids = lines(&pids);
    assert_eq!(pids.len(), 1);
    let pid = nix::unistd::Pid::from_raw(pids[0].parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[test]
fn it_is_an_error_where_no_watcher_could_run_it() {
    let home = Home::new();
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (config, ledger) = (
        folder.path().join("team.json"),
        folder.path().join("team.ledger"),
    );
    let text =
        serde_json::json!({"version": 1, "name": "team", "memory": 1u64 << 30, "ledger": ledger});
    fs::write(&config, text.to_string()).unwrap();
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args(["run", "--sim=rtx3090", "--on-refusal=true", "--config"])
        .arg(&config)
        .args(["--", "echo", "started"]);
    let (out, err, status) = told(&mut command);
    assert_eq!((out.as_str(), status), ("", 125));
    assert!(
        err.contains("--on-refusal needs a slice of this run alone"),
        "{err}"
    );
    let mut command = HERE.gpuslice();
    let (_, err, status) =
        told(
            home.of(&mut command)
                .args(["run", "--on-refusal=true", "--", "true"]),
        );
    assert!(status == 125 && err.contains("--memory"), "{err}");
}
