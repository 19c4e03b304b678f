//! Every end restores the terminal, and tells the caller how it came.

use super::session::{ESC, HERE, Session, top};
use crate::support::{Home, eventually, told};
use nix::sys::signal::Signal;
use std::process::{Command, Stdio};

const SIZE: (u16, u16) = (80, 24);
const SHOWN: &str = "No slices are running";

#[test]
fn each_key_that_ends_restores_the_terminal() {
    let home = Home::new();
    for key in ["q", ESC, "\x03"] {
        let mut top = Session::start(&mut top(&home, &[]), SIZE);
        top.shows(SHOWN);
        assert!(top.emulator().alternate_screen() && top.emulator().hide_cursor());
        top.press(key);
        assert_eq!((top.end(), top.is_restored()), (0, true), "{key:?}");
        assert_eq!(top.screen().trim(), "", "{key:?}");
    }
}

#[test]
fn each_signal_that_ends_restores_the_terminal_and_is_the_reason() {
    let home = Home::new();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        let mut top = Session::start(&mut top(&home, &[]), SIZE);
        top.shows(SHOWN);
        top.signal(signal);
        let status = signal as i32 | 128;
        assert_eq!((top.end(), top.is_restored()), (status, true), "{signal}");
    }
}

#[test]
fn a_stopped_top_leaves_the_terminal_to_the_shell_and_comes_back() {
    let home = Home::new();
    let mut shell = Command::new("bash");
    home.of(&mut shell).args(["--norc", "--noprofile", "-i"]);
    shell
        .env("PS1", "shell$ ")
        .env("TERM", "xterm-256color")
        .env("LC_ALL", "C.UTF-8")
        .env("INPUTRC", "/dev/null")
        .env("PATH_TO_TOP", HERE.executable());
    let mut session = Session::start(&mut shell, SIZE);
    session.shows("shell$");
    session.press("\"$PATH_TO_TOP\" top; echo status $?\r");
    session.shows(SHOWN);
    // First ^Z, then the signal alone, as `kill -TSTP` sends it.
    for _ in 0..2 {
        session.press("\x1a");
        session.until("stopped", |screen| {
            screen.contains("Stopped") && !screen.contains(SHOWN)
        });
        assert!(!session.emulator().alternate_screen() && !session.emulator().hide_cursor());
        session.press("clear; stty -a | grep -ow -e '-*icanon'\r");
        session.until("a usual terminal", |screen| {
            screen.contains("icanon") && !screen.contains("-icanon")
        });
        session.press("clear; fg\r");
        session.shows(SHOWN);
        assert!(session.emulator().alternate_screen());
    }
    session.press("q");
    session.until("ended", |screen| {
        !screen.contains(SHOWN) && screen.contains("shell$")
    });
    session.press("exit 0\r");
    session.end();
}

#[test]
fn top_ends_when_its_terminal_is_gone() {
    let home = Home::new();
    let mut top = Session::start(&mut top(&home, &[]), SIZE);
    top.shows(SHOWN);
    let mut child = top.hang_up();
    let ended = std::cell::RefCell::new(&mut child);
    eventually("top ends", || {
        ended.borrow_mut().try_wait().unwrap().is_some()
    });
}

#[test]
fn without_a_terminal_status_is_named() {
    let home = Home::new();
    let message = "gpuslice: top needs a terminal for input and output (use gpuslice status)\n";
    let wanted = (String::new(), message.to_owned(), 125);
    assert_eq!(told(top(&home, &[]).stdin(Stdio::null())), wanted);
    for (term, fault) in [("dumb", "TERM=dumb names"), ("", "TERM is empty")] {
        let mut session = Session::start(top(&home, &[]).env("TERM", term), SIZE);
        assert_eq!(session.end(), 125);
        let screen = session.screen();
        assert!(screen.contains(fault), "{screen}");
        assert!(screen.contains("use gpuslice status"), "{screen}");
    }
    let (out, err, status) = told(&mut top(&home, &["--interval=0"]));
    assert_eq!((out.as_str(), status), ("", 125));
    assert!(err.contains("a number of seconds from 0.25 to 60"), "{err}");
}
