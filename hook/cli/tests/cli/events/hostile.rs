//! Events where something is broken: a full disk, a truncated ledger, a killed watcher.

use super::{HERE, Program, awaited, events, kinds, said, waiting};
use crate::support::member::{Member, ledger_of};
use crate::support::{Home, eventually, told};
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::Command;

/// The watcher of a run.
fn watcher(config: &str) -> Pid {
    let folder = config.strip_suffix("/slice.json").unwrap();
    let watches = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("tidy-up") && line.contains(folder)
    };
    let pids = fs::read_dir("/proc").unwrap();
    let mut pids = pids.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    Pid::from_raw(pids.find(watches).unwrap())
}

#[test]
fn a_run_that_was_killed_with_its_watcher_has_an_end_and_a_history() {
    let home = Home::new();
    let mut program = Program::start(&home, &["--memory=4GiB", "--name=llama"]);
    assert_eq!(program.allocates(2048), 0);
    let config = program.config.to_str().unwrap().to_owned();
    let samples = program.config.with_file_name("history");
    let has_peak = || {
        fs::read_to_string(&samples)
            .unwrap()
            .lines()
            .any(|line| line.starts_with('[') && line.contains(",2"))
    };
    eventually("the use is sampled", has_peak);
    kill(watcher(&config), Signal::SIGKILL).unwrap();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    assert_eq!(kinds(&home), ["start"]);
    // Each command that lists the runs notices it; here it is history itself.
    let shown = said(&home, &["history"]);
    let row = shown.lines().nth(1).unwrap();
    assert!(
        row.contains("llama") && row.ends_with("-        ended, simulated"),
        "{shown}"
    );
    assert_eq!(kinds(&home), ["start", "end"]);
    let end = awaited(&home, "end");
    assert!(end["peak"].as_u64().unwrap() > 2 << 30, "{end}");
    assert!(
        end["message"]
            .as_str()
            .unwrap()
            .ends_with("its watcher was killed, so the end was noticed later")
    );
    said(&home, &["history"]);
    assert_eq!(kinds(&home).len(), 2);
}

#[test]
fn a_truncated_ledger_ends_no_watcher_and_the_end_says_so() {
    let home = Home::new();
    let (child, config) = waiting(&home, &["--sim=rtx3090", "--memory=4GiB", "--name=cut"]);
    let member = Member::of(&config);
    member.take(Bytes::gib(1), Kind::Linear);
    member.is_refused(Bytes::mib(5));
    awaited(&home, "refusal");
    let ledger = ledger_of(&config);
    // This process has it mapped, and must not touch it any more.
    fs::OpenOptions::new()
        .write(true)
        .open(&ledger)
        .unwrap()
        .set_len(100)
        .unwrap();
    let watcher = watcher(&config);
    // Two looks of the watcher.
    std::thread::sleep(std::time::Duration::from_millis(2200));
    kill(watcher, None).unwrap();
    super::end(child);
    let end = awaited(&home, "end");
    let message = end["message"].as_str().unwrap();
    assert!(
        message
            .ends_with("may be higher: the ledger is 100 bytes long, which is no ledger's length"),
        "{message}"
    );
    assert_eq!(
        (end["peak"].as_u64(), end["count"].as_u64()),
        (Some(1 << 30), Some(1))
    );
}

#[test]
fn a_full_disk_stops_no_run_and_garbles_no_later_event() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let script = r#"
        set -e
        mount --make-rprivate /
        state=$(mktemp -d); mount -t tmpfs -o size=16k none $state
        export XDG_STATE_HOME=$state
        run() { "$0" run --sim=rtx3090 --memory=1GiB --name="$1" -- true; }
        events() { "$0" events --json "$1" | grep -c '"event":"end"' || true; }
        ended() { for try in $(seq 500); do [ "$(events $1)" = 1 ] && return; sleep 0.02; done; exit 7; }
        run before; ended before
        # The last block is full but for a part of a line.
        head -c 3900 /dev/zero | tr '\0' 'x' > $state/filler
        head -c 65536 /dev/zero > $state/rest 2>/dev/null || true
        for i in 1 2 3 4 5 6 7 8; do run full$i; done
        rm $state/rest $state/filler
        run after; ended after
        "$0" events --json"#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .arg(HERE.executable());
    let (out, err, status) = told(&mut command);
    assert_eq!((err.as_str(), status), ("", 0), "{out}");
    for name in ["before", "after"] {
        let own = out
            .lines()
            .filter(|line| line.contains(&format!("\"slice\":\"{name}\"")));
        assert_eq!(own.count(), 2, "{out}");
    }
}

#[test]
fn a_line_that_a_full_disk_has_cut_hides_no_other() {
    let home = Home::new();
    super::end(waiting(&home, &["--sim=rtx3090", "--memory=1GiB", "--name=one"]).0);
    awaited(&home, "end");
    let file = home.state.path().join("gpuslice/events.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let (start, end) = text.split_once('\n').unwrap();
    fs::write(
        &file,
        format!("{}{end}{}\nnot json\n{{}}\n", &start[..60], "\u{0}"),
    )
    .unwrap();
    assert_eq!(kinds(&home), ["end"]);
    assert_eq!(events(&home, &["one"]).len(), 1);
}
