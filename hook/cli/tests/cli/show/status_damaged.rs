//! `gpuslice status` where a run was killed, or its files are damaged, removed or unreadable.
//! Touches: slices of its own, on simulated machines.

use super::status::{HERE, LLAMA, NOTHING, end, entries, slice, status, unread};
use crate::support::member::{GPU, Member, ledger_of};
use crate::support::{Home, eventually, start, told};
use gpuslice_config::words::units::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Finds the watcher of a private folder.
fn watcher(folder: &Path) -> Pid {
    let watches = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("tidy-up") && line.contains(folder.to_str().unwrap())
    };
    let numbers = fs::read_dir("/proc").unwrap();
    let mut numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Pid::from_raw(numbers.find(|pid| watches(*pid)).unwrap())
}

#[test]
fn a_run_killed_with_its_watcher_is_learned_from_and_cleaned_up() {
    let home = Home::new();
    let (mut child, config) = slice(&home, &[&LLAMA[..], &["--headroom=learned"]].concat());
    let folder = PathBuf::from(&config).parent().unwrap().to_owned();
    Member::of(&config).is_refused(Bytes::mib(41));
    kill(watcher(&folder), Signal::SIGKILL).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(folder.exists() && entries(&home) == 1);
    // The watcher is not a child of this process, so the test cannot wait for its end.
    eventually("nothing", || status(&home, &[]) == NOTHING);
    assert!(!folder.exists() && entries(&home) == 0);
    let mut command = HERE.gpuslice();
    let learned = told(home.of(&mut command).args(["headroom", "--json"])).0;
    let learned: Value = serde_json::from_str(&learned).unwrap();
    assert_eq!(
        learned,
        json!({"schema": 1, "headroom": [{"name": "llama", "device": GPU, "headroom": 41 << 20}]})
    );
}

#[test]
fn gc_names_the_run_whose_files_it_removes() {
    let home = Home::new();
    let (mut child, config) = slice(&home, &LLAMA);
    let folder = PathBuf::from(&config).parent().unwrap().to_owned();
    kill(watcher(&folder), Signal::SIGKILL).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let gc = || {
        let mut command = HERE.gpuslice();
        told(home.of(&mut command).arg("gc")).0
    };
    // The watcher is not a child of this process, so the test cannot wait for its end.
    let expected = format!("removed run llama-{}\n", child.id());
    eventually("it is removed", || gc() == expected);
    assert!(!folder.exists());
    assert!(gc().starts_with("nothing to remove"));
}

#[test]
fn a_run_whose_watcher_alone_was_killed_is_still_shown() {
    let home = Home::new();
    let (child, config) = slice(&home, &LLAMA);
    let folder = PathBuf::from(&config).parent().unwrap().to_owned();
    kill(watcher(&folder), Signal::SIGKILL).unwrap();
    let line = format!("llama (pid {})\n", child.id());
    assert!(status(&home, &["llama"]).starts_with(&line));
    end(child);
    eventually("the run is removed", || {
        status(&home, &[]) == NOTHING && !folder.exists()
    });
}

#[test]
fn a_run_that_has_removed_its_slice_file_keeps_its_folder() {
    let home = Home::new();
    let (child, config) = slice(&home, &LLAMA);
    let folder = PathBuf::from(&config).parent().unwrap().to_owned();
    fs::remove_file(&config).unwrap();
    let shown = unread(&home, &[]).0;
    assert!(
        shown.contains(&config) && shown.contains("No such file"),
        "{shown}"
    );
    assert!(folder.exists() && entries(&home) == 1);
    end(child);
    eventually("gone", || !folder.exists());
}

#[test]
fn a_link_that_leads_elsewhere_costs_only_the_link() {
    let home = Home::new();
    let registry = home.runtime.path().join("gpuslice");
    fs::create_dir(&registry).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = |name: &str| elsewhere.path().join(name);
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(path("gpuslice-folder")).unwrap();
    fs::write(path("gpuslice-folder/text"), "not a slice").unwrap();
    let pipe = path("gpuslice-pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in [
        "fifo",
        "gpuslice-folder",
        "gpuslice-folder/text",
        "gpuslice-pipe/slice.json",
        "nowhere",
    ] {
        symlink(
            path(name),
            registry.join(format!("{}-1", name.replace('/', "_"))),
        )
        .unwrap();
    }
    fs::write(registry.join("no-link"), "").unwrap();
    assert_eq!(status(&home, &[]), NOTHING);
    assert_eq!(entries(&home), 1);
    assert!(path("fifo").exists() && path("gpuslice-folder/text").exists());
}

#[test]
fn what_has_become_unreadable_is_told_and_the_others_are_shown() {
    let home = Home::new();
    let (bad, config) = slice(&home, &LLAMA);
    let (cut, other) = slice(&home, &["--sim=rtx3090", "--memory=4GiB", "--name=other"]);
    let (good, _) = slice(&home, &["--sim=rtx3090", "--memory=2GiB", "--name=third"]);
    fs::write(&config, "{\"version\":1,\"memroy\":1}").unwrap();
    let ledger = ledger_of(&other);
    let ledger = fs::OpenOptions::new().write(true).open(ledger).unwrap();
    ledger.set_len(100).unwrap();
    let (shown, said) = unread(&home, &[]);
    assert_eq!(
        said,
        format!("gpuslice: 2 slices could not be read: {config}, other\n")
    );
    // Each has a line, and the reason why it is unknown is a warning.
    let begins = ["  other", "  third", &format!("  {config}")];
    let lines: Vec<&str> = shown.lines().collect();
    for (begin, used) in begins
        .into_iter()
        .zip(["? / 4.00 GiB", "0.00 / 2.00 GiB", "?"])
    {
        let row = lines.iter().find(|line| line.starts_with(begin)).unwrap();
        let words: Vec<&str> = row.split_whitespace().skip(1).collect();
        assert!(words.join(" ").starts_with(used), "{shown}");
    }
    let warnings = [
        format!(
            "! slice {config} could not be read: slice file {config}, line 1: unknown key \"memroy\" \
             (gpuslice doctor {})",
            bad.id()
        ),
        format!(
            "! slice other could not be read: the ledger is 100 bytes long, which is no ledger's length \
             (gpuslice doctor {})",
            cut.id()
        ),
    ];
    assert_eq!(lines[lines.len() - 2..], warnings);
    let (one, said) = unread(&home, &["other"]);
    assert_eq!(said, "gpuslice: slice other could not be read\n");
    assert!(one.contains("    limit 4.00 GiB, used ?\n"), "{one}");
    let json: Value = serde_json::from_str(&unread(&home, &["--json"]).0).unwrap();
    let slices = json["slices"].as_array().unwrap();
    let errors: Vec<bool> = slices.iter().map(|it| it["error"].is_string()).collect();
    assert_eq!(errors, [true, true, false]);
    // Of a slice file that cannot be read nothing is known. The ledger says nothing of the fence.
    let facts = |slice: &Value| ["fence", "enforce", "total"].map(|key| slice[key].clone());
    let unknown = [Value::from("unknown"), Value::Null, Value::Null];
    assert_eq!(facts(&slices[0]), unknown);
    let known = [
        Value::from("preload"),
        Value::from(true),
        Value::from("slice"),
    ];
    assert_eq!(facts(&slices[1]), known);
    let device = &slices[1]["devices"][0];
    for key in ["used", "left", "by_kind", "refusals"] {
        assert_eq!(device[key], Value::Null, "{key}");
    }
    // A readable slice is shown, whatever state the others are in.
    assert!(status(&home, &["third"]).starts_with("third (pid "));
    [bad, cut, good].into_iter().for_each(end);
}

#[test]
fn a_slice_file_whose_path_is_no_text_is_escaped_in_json() {
    use std::os::unix::ffi::OsStrExt;
    let home = Home::new();
    let name = std::ffi::OsStr::from_bytes(b"bad\xff.json");
    let file = home.state.path().join(name);
    let ledger = home.state.path().join("ledger");
    let text = json!({"version": 1, "memory": 8u64 << 30, "ledger": ledger});
    fs::write(&file, text.to_string()).unwrap();
    let mut command = HERE.gpuslice();
    home.of(&mut command)
        .args(["run", "--sim=rtx3090", "--config"])
        .arg(&file);
    let command = command.args(["--", "sh", "-c", "echo ready; read line"]);
    let (child, _) = start(command.stdin(Stdio::piped()));
    for verb in ["status", "report"] {
        let mut command = HERE.gpuslice();
        let (out, err, status) = told(home.of(&mut command).args([verb, "--json"]));
        assert_eq!((err.as_str(), status), ("", 0), "{verb}");
        let json: Value = serde_json::from_str(&out).unwrap();
        let shown = json["slices"][0]["file"].as_str().unwrap().to_owned();
        assert!(shown.ends_with("/bad\\xff.json"), "{shown}");
    }
    end(child);
}

#[test]
fn a_ledger_that_is_none_stops_the_run_that_names_it() {
    let home = Home::new();
    let (file, ledger) = (
        home.state.path().join("a.json"),
        home.state.path().join("ledger"),
    );
    fs::write(&ledger, "not a ledger").unwrap();
    fs::write(&file, json!({"version": 1, "ledger": ledger}).to_string()).unwrap();
    let mut command = HERE.run(&["--config", file.to_str().unwrap()], "true");
    let message = format!(
        "gpuslice: cannot use {} as the ledger of the slice: the ledger is 12 bytes long, \
         which is no ledger's length\n",
        ledger.display()
    );
    assert_eq!(told(home.of(&mut command)), (String::new(), message, 125));
}

#[test]
fn a_full_tmpfs_is_told_and_kills_nobody() {
    let (full, home) = (tempfile::tempdir().unwrap(), Home::new());
    // There is room for the simulated machine, but not for a ledger.
    let script = "set -e; mount -t tmpfs -o size=64k none $0; mount --bind $0 /dev/shm
        head -c 40k /dev/zero > $0/room; export XDG_RUNTIME_DIR=$0 TMPDIR=$0; exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .args([full.path(), &HERE.executable()])
        .args([
            "run",
            "--sim=rtx3090",
            "--memory=8GiB",
            "--",
            "echo",
            "started",
        ])
        .env("GPUSLICE_SIM_STATE", home.state.path());
    let (out, err, status) = told(&mut command);
    assert_eq!((out.as_str(), status), ("", 125));
    let (start, end) = (
        "gpuslice: cannot make ",
        ", the ledger of the slice: No space left on device (os error 28)\n",
    );
    assert!(err.starts_with(start) && err.ends_with(end), "{err}");
}

#[test]
fn records_of_containers_that_cannot_be_listed_are_not_no_slices() {
    let home = Home::new();
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("run/gpuslice");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("slices"), "").unwrap();
    let (out, err) = unread(&home, &["--root", root.path().to_str().unwrap()]);
    let slices = folder.join("slices");
    let slices = slices.display();
    let warning = format!(
        "! slice {slices} could not be read: cannot read {slices}: Not a directory (os error 20)\n"
    );
    assert!(out.ends_with(&warning), "{out}");
    assert_eq!(err, format!("gpuslice: slice {slices} could not be read\n"));
}

/// The guard may end what a slice names, so that must not be a stranger.
#[test]
fn a_process_that_has_the_number_of_an_ended_command_is_not_the_runs() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: a pid namespace needs root");
        return;
    }
    let home = Home::new();
    let script = r#"
        pid=$($0 run --sim=rtx3090 --memory=4GiB -- sh -c 'sleep 100 >/dev/null & echo $$')
        while [ -e /proc/$pid ]; do sleep 0.01; done
        $0 status --json | grep '"pid":'
        for turn in 1 2 3 4 5 6 7 8 9; do
            echo $((pid - 1)) >/proc/sys/kernel/ns_last_pid; sleep 100 & [ $! != $pid ] || break
        done
        [ $! = $pid ] && $0 status --json | grep '"pid":'"#;
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]);
    let (out, err, _) = told(home.of(command.arg(HERE.executable())));
    let pids: Vec<&str> = out.lines().map(str::trim).collect();
    assert_eq!((err.as_str(), pids.len()), ("", 2), "{out}");
    assert_eq!(pids, [r#""pid": null,"#; 2], "{out}");
}
