//! `gpuslice status` on terminals of several sizes, and without one.
//! Touches: slices of its own, on simulated machines; pseudo-terminals.

use super::status::HERE;
use crate::support::machine::{Machine, end};
use crate::support::member::{GPU, Member};
use crate::support::terminal::Terminal;
use crate::support::{Installation, told};
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use std::process::{Child, Command};

/// A name that no table has room for.
const LONG: &str = "team-search/embeddings-of-the-second-generation-for-all-languages";

/// A machine with two slices, of which one holds memory, has been refused, and has a short name.
struct Office {
    machine: Machine,
    children: Vec<Child>,
}

impl Office {
    fn new(here: &'static Installation) -> Office {
        let machine = Machine::new(here, "rtx3090");
        let (one, config) = machine.slice(&["--memory=12GiB", "--name=llama"]);
        let (two, _) = machine.slice(&["--memory=8GiB", "--name", LONG]);
        let member = Member::of(config.to_str().unwrap());
        member.take(Bytes::gib(3), Kind::Linear);
        member.is_refused(Bytes::mib(38));
        Office {
            machine,
            children: vec![one, two],
        }
    }

    fn status(&self, options: &[&str]) -> Command {
        let mut command = HERE.gpuslice();
        self.machine
            .home
            .of(&mut command)
            .arg("status")
            .args(options);
        command
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.children.drain(..).for_each(end);
    }
}

/// The words of the line that begins with a name.
fn row<'a>(shown: &'a str, begin: &str) -> Vec<&'a str> {
    let line = shown
        .lines()
        .find(|line| line.trim_start().starts_with(begin));
    line.unwrap_or_else(|| panic!("no {begin}: {shown}"))
        .split_whitespace()
        .collect()
}

#[test]
fn lines_fit_the_terminal_whatever_its_width_is() {
    let office = Office::new(&HERE);
    for (lines, columns) in [(24, 80), (40, 120), (60, 200), (24, 40), (10, 20)] {
        let mut terminal = Terminal::new(lines, columns);
        let shown = terminal.run(&mut office.status(&[]));
        assert!(shown.contains("llama"), "{shown}");
        if columns >= 80 {
            let words = row(&shown, "llama");
            assert_eq!(words[1..6], ["3.00", "/", "12.00", "GiB", "25%"], "{shown}");
            assert!(row(&shown, "GPU 0").contains(&"3.69"), "{shown}");
        }
        if columns >= 120 {
            assert!(shown.contains("1 (38.00 MiB)"), "{shown}");
            assert!(shown.contains("GeForce RTX 3090 (simulated)"), "{shown}");
        }
        assert_eq!(columns >= 200, shown.contains(LONG), "{shown}");
    }
}

#[test]
fn without_a_terminal_nothing_is_cut_unless_columns_is_set() {
    let office = Office::new(&HERE);
    let (out, err, status) = told(&mut office.status(&[]));
    assert_eq!((err.as_str(), status), ("", 0));
    assert!(out.contains(LONG), "{out}");
    assert!(row(&out, LONG).ends_with(&["sh", "-c", "echo", "$GPUSLICE_CONFIG;", "read", "line"]));
    assert!(!out.contains('\x1b') && out.is_ascii(), "{out}");
    let (out, _, _) = told(office.status(&[]).env("COLUMNS", "60"));
    assert!(
        out.lines().all(|line| line.len() <= 60) && !out.contains(LONG),
        "{out}"
    );
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let office = Office::new(&HERE);
    let coloured = |name: &str, value: &str| {
        let mut terminal = Terminal::new(24, 100);
        terminal.run(office.status(&[]).env(name, value));
        terminal.written.contains(&b'\x1b')
    };
    assert!(coloured("UNRELATED", "1"));
    assert!(coloured("NO_COLOR", ""));
    assert!(!coloured("NO_COLOR", "1"));
    let mut terminal = Terminal::new(24, 100);
    let shown = terminal.run(office.status(&[]).env("LANG", "en_US.UTF-8"));
    assert!(shown.contains("█▌░"), "{shown}");
    let mut terminal = Terminal::new(24, 100);
    let shown = terminal.run(office.status(&[]).env("LANG", "C"));
    assert!(shown.contains(" ##---- ") && shown.is_ascii(), "{shown}");
}

#[test]
fn each_process_is_shown_when_it_is_asked_for() {
    let office = Office::new(&HERE);
    let (out, _, _) = told(&mut office.status(&["--processes"]));
    let own = std::process::id().to_string();
    let words = row(&out, &own);
    assert_eq!(words[1..3], ["3.00", "GiB"], "{out}");
    assert!(out.contains("linear 3.00 GiB"), "{out}");
    let (out, _, _) = told(&mut office.status(&[]));
    assert!(!out.contains(&own), "{out}");
}

#[test]
fn a_watch_shows_a_clock_and_follows_the_size_of_the_terminal() {
    let office = Office::new(&HERE);
    let mut terminal = Terminal::new(24, 80);
    let mut child = terminal.start(&mut office.status(&["--watch"]));
    let shown = terminal.until("a table", |shown| shown.contains("llama"));
    let clock = row(&shown, "gpuslice status")[2];
    let is_clock = clock.len() == 8 && clock.matches(':').count() == 2;
    assert!(is_clock, "{shown}");
    terminal.until("a later time", |shown| {
        shown.contains("llama") && row(shown, "gpuslice status")[2] != clock
    });
    terminal.resize(6, 200);
    // Two lines of the table do not fit any more.
    let shown = terminal.until("fewer lines", |shown| shown.contains(" more lines"));
    assert!(shown.starts_with("gpuslice status  "), "{shown}");
    terminal.resize(24, 200);
    terminal.until("a wide table", |shown| shown.contains(LONG));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn sixty_four_slices_are_all_shown_and_a_watch_fits_the_terminal() {
    let machine = Machine::new(&HERE, "rtx3090");
    let children: Vec<Child> = (0..64)
        .map(|number| {
            let name = format!("--name=worker-{number}");
            machine.slice(&["--memory=256MiB", &name]).0
        })
        .collect();
    let status = |options: &[&str]| {
        let mut command = HERE.gpuslice();
        machine.home.of(&mut command).arg("status").args(options);
        command
    };
    let shown = Terminal::new(100, 80).run(&mut status(&[]));
    for number in 0..64 {
        row(&shown, &format!("worker-{number} "));
    }
    // All of them were admitted for 16 GiB.
    assert!(row(&shown, "GPU 0").contains(&"7.69"), "{shown}");
    let mut terminal = Terminal::new(24, 80);
    let mut child = terminal.start(&mut status(&["--watch"]));
    let shown = terminal.until("a table", |shown| shown.contains(" more lines"));
    assert!(shown.starts_with("gpuslice status  "), "{shown}");
    child.kill().unwrap();
    child.wait().unwrap();
    children.into_iter().for_each(end);
}

/// The first slices scrolled out of the terminal, and their columns wrapped.
#[test]
fn a_watched_report_fits_the_terminal() {
    let machine = Machine::new(&HERE, "rtx3090");
    let slice = |number| {
        let name = format!("--name=worker-{number}");
        machine.slice(&["--memory=1GiB", &name]).0
    };
    let children: Vec<Child> = (0..8).map(slice).collect();
    let mut report = HERE.gpuslice();
    machine.home.of(&mut report).args(["report", "--watch"]);
    let mut terminal = Terminal::new(24, 60);
    let mut child = terminal.start(&mut report);
    let shown = terminal.until("a report", |shown| shown.contains(" more lines"));
    let lines: Vec<&str> = shown.lines().collect();
    let clock = row(&shown, "gpuslice report")[2];
    assert!(
        clock.len() == 8 && clock.matches(':').count() == 2,
        "{shown}"
    );
    assert!(lines[2].starts_with("worker-0"), "{shown}");
    let cut = lines
        .iter()
        .filter(|line| line.ends_with('~') || line.ends_with('…'));
    assert!(cut.count() > 0, "{shown}");
    terminal.resize(100, 200);
    terminal.until("all slices", |shown| shown.contains("worker-7"));
    child.kill().unwrap();
    child.wait().unwrap();
    children.into_iter().for_each(end);
}

#[test]
fn a_card_with_unified_memory_shows_the_memory_of_its_host() {
    let machine = Machine::new(&HERE, "gb10");
    let (child, _) = machine.slice(&["--memory=40GiB", "--name=spark"]);
    let mut command = HERE.gpuslice();
    machine.home.of(&mut command).args(["status", "--json"]);
    let (out, _, _) = told(&mut command);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let (card, promise) = (&json["cards"][0], &json["slices"][0]["promise"]);
    assert_eq!(card["unified"], true, "{json}");
    assert_eq!(card["left_to_give"], promise["host_left"], "{json}");
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    let (total, available) = (number(&card["total"]), number(&promise["host_available"]));
    assert_eq!(total, 127_600_748 << 10);
    assert_eq!(number(&card["used"]), total - available, "{json}");
    assert_eq!(number(&card["limits_sum"]), 40 << 30);
    let mut command = HERE.gpuslice();
    machine.home.of(&mut command).arg("status");
    let (out, _, _) = told(&mut command);
    assert!(
        out.lines().next().unwrap().ends_with("  (unified memory)"),
        "{out}"
    );
    assert!(!out.contains(GPU), "{out}");
    end(child);
}
