//! `gpuslice resize` of the slice of a file that names a ledger, which several runs share.

use crate::support::machine::{Machine, end};
use crate::support::member::Member;
use crate::support::{Installation, spawn, start, told};
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("resize-shared"));

const GIB: u64 = 1 << 30;

/// A simulated machine, and a slice file on it that names a ledger.
struct Team {
    machine: Machine,
    file: PathBuf,
}

impl Team {
    fn new(sim: &str, gib: u64) -> Team {
        let machine = Machine::new(&HERE, sim);
        let file = machine.state.path().join("team.json");
        let team = Team { machine, file };
        team.write(gib);
        team
    }

    fn ledger(&self) -> PathBuf {
        self.file.with_file_name("team.ledger")
    }

    /// Writes the slice file with this limit.
    fn write(&self, gib: u64) {
        let text = format!(
            r#"{{"version":1,"name":"team","memory":{},"ledger":"{}"}}"#,
            gib.saturating_mul(GIB),
            self.ledger().display()
        );
        fs::write(&self.file, text).unwrap();
    }

    /// Starts a run of the file that lasts until its standard input ends.
    fn start(&self) -> Child {
        let option = format!("--config={}", self.file.display());
        let mut command = self.machine.run(&[&option], "echo started; read line");
        let (child, said) = start(command.stdin(Stdio::piped()));
        assert_eq!(said, "started");
        child
    }

    fn gpuslice(&self, words: &[&str]) -> (String, String, i32) {
        let mut command = HERE.gpuslice();
        told(self.machine.home.of(&mut command).args(words))
    }

    fn resize(&self, size: &str) {
        let (out, err, status) = self.gpuslice(&["resize", "team", size]);
        assert_eq!((err.as_str(), status), ("", 0), "{out}");
    }

    /// The limit in force, in GiB.
    fn limit(&self) -> u64 {
        let (out, err, _) = self.gpuslice(&["status", "--json", "team"]);
        let status: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
        let limit = status["slices"][0]["devices"][0]["limit"].as_u64();
        limit.unwrap_or(0).checked_div(GIB).unwrap()
    }
}

#[test]
fn a_slice_that_is_started_again_has_the_limit_of_its_file() {
    let team = Team::new("rtx3090", 16);
    let first = team.start();
    team.resize("20GiB");
    // Later runs have the limit in force while another one lasts, which has not used a GPU yet.
    let second = team.start();
    assert_eq!(team.limit(), 20);
    end(first);
    end(second);
    team.write(8);
    let third = team.start();
    assert_eq!(team.limit(), 8);
    team.resize("12GiB");
    assert_eq!(team.limit(), 12);
    end(third);
}

#[test]
fn the_limit_stays_while_a_process_of_the_slice_holds_memory() {
    let team = Team::new("rtx3090", 16);
    let first = team.start();
    team.resize("20GiB");
    // This process has joined the slice by itself, so its environment does not name the file.
    let holder = Member::of_ledger(team.ledger().to_str().unwrap());
    holder.take(Bytes::gib(18), Kind::Linear);
    end(first);
    let second = team.start();
    assert_eq!(team.limit(), 20);
    end(second);
}

#[test]
fn a_run_that_continues_as_another_run_keeps_the_limit() {
    let team = Team::new("rtx3090", 16);
    let option = format!("--config={}", team.file.display());
    let gpuslice = HERE.executable();
    let script = format!(
        "echo started; read line; exec {0} run -- sh -c 'exec {0} check --json'",
        gpuslice.display()
    );
    let mut command = team.machine.run(&[&option], &script);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = spawn(&mut command);
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    team.resize("20GiB");
    drop(child.stdin.take());
    let mut text = String::new();
    lines.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    let check: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    assert_eq!(check["slice"]["devices"][0]["limit"], 20 * GIB);
}

#[test]
fn on_unified_memory_the_reason_is_that_the_slice_was_never_admitted() {
    let team = Team::new("gb10", 16);
    let child = team.start();
    let (out, err, status) = team.gpuslice(&["resize", "team", "20GiB"]);
    let message = "gpuslice: cannot resize this slice: its slice file names a ledger, and such a slice is \
                   not admitted on unified memory\n";
    assert_eq!((out.as_str(), err.as_str(), status), ("", message, 125));
    end(child);
}
