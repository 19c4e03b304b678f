//! Keys of a real terminal.

use super::session::{DOWN, ENTER, ESC, Session, slice, top};
use crate::support::Home;
use crate::support::machine::end;
use crate::support::member::{Member, own_name};
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

/// The names of the slices in the order of the screen.
fn order(screen: &str) -> String {
    let lines = screen.lines();
    let rows = lines.filter(|line| line.contains("/ 8.00 GiB") || line.contains("/ 4.00 GiB"));
    rows.map(|row| row.split(' ').next().unwrap()).collect()
}

#[test]
fn keys_sort_filter_open_and_pause() {
    let home = Home::new();
    let (one, config) = slice(&home, "a", "8GiB");
    let (two, _) = slice(&home, "b", "4GiB");
    let member = Member::of(&config);
    member.take(Bytes::gib(3), Kind::Linear);
    member.take(Bytes::mib(256), Kind::Context);
    let mut top = Session::start(&mut top(&home, &["--interval", "0.5"]), (120, 40));
    top.shows("every 0.5 s");
    top.until("sorted by use", |screen| order(screen) == "ab");
    top.press("u");
    top.until("reversed", |screen| {
        order(screen) == "ba" && screen.contains("LIMIT↑")
    });
    top.press("n");
    top.until("sorted by name", |screen| {
        order(screen) == "ab" && screen.contains("NAME↑")
    });

    top.press("/b");
    top.until("filtered", |screen| {
        order(screen) == "b" && screen.contains("filter: b")
    });
    top.press(ESC);
    top.until("not filtered", |screen| {
        order(screen) == "ab" && screen.contains("q quit")
    });

    top.press(ENTER);
    let pid = std::process::id().to_string();
    let name = own_name();
    let kinds = "linear 3.00 GiB, context 256.00 MiB";
    let parts = [&pid, &name[..8], "3.25 GiB", kinds];
    let screen = top.until("the process is shown", |screen| {
        let mut lines = screen.lines();
        let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
        screen.contains("BY KIND") && lines.any(has_all)
    });
    assert!(
        screen.starts_with("gpuslice top") && screen.contains("command sh -c"),
        "{screen}"
    );
    top.press(ESC);
    top.until("back", |screen| order(screen) == "ab");
    top.press(&format!("{DOWN}{ENTER}"));
    top.shows("No process of the slice holds memory");
    // Esc and another key at once would be that key with Alt.
    top.press(ESC);
    top.until("back", |screen| order(screen) == "ab");

    top.press("?");
    top.shows("gpuslice top: keys");
    top.press("x");
    top.until("no help", |screen| !screen.contains("gpuslice top: keys"));
    top.press(" ");
    top.shows("PAUSED");
    member.take(Bytes::gib(1), Kind::Linear);
    top.press("+");
    let screen = top.shows("every 1 s");
    assert!(screen.contains("3.25 / 8.00 GiB"), "{screen}");
    top.press(" ");
    top.shows("4.25 / 8.00 GiB");
    top.press(ESC);
    assert_eq!((top.end(), top.is_restored()), (0, true));
    end(one);
    end(two);
}
