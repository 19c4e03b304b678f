//! What the screen shows of real slices, at every size.

use super::session::{HERE, Session, slice, top};
use crate::support::Home;
use crate::support::machine::{Machine, end};
use crate::support::member::Member;
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;
use std::process::Child;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// Returns the line of the screen that starts with a name.
fn line<'a>(screen: &'a str, name: &str) -> &'a str {
    let mut lines = screen.lines();
    lines.find(|line| line.starts_with(name)).unwrap_or("")
}

#[test]
fn a_slice_is_shown_while_it_grows_is_refused_and_ends() {
    let home = Home::new();
    let (child, config) = slice(&home, "llama", "8GiB");
    let member = Member::of(&config);
    member.take(Bytes::gib(2), Kind::Linear);
    let mut top = Session::start(&mut top(&home, &["--interval=0.25"]), SIZES[2]);
    let screen = top.shows("2.00 / 8.00 GiB");
    let row = line(&screen, "llama");
    assert!(row.contains(" 25% ") && row.contains("preload"), "{screen}");
    assert!(row.contains("echo $GPUSLICE_CONFIG"), "{screen}");
    assert!(
        screen.contains("1 slice") && screen.contains("GPU 0 RTX 3090"),
        "{screen}"
    );
    let head = screen.lines().next().unwrap();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(
        head.starts_with(&format!("gpuslice top  {}  ", host.trim())),
        "{screen}"
    );

    member.take(Bytes::gib(4), Kind::Linear);
    let screen = top.shows("6.00 / 8.00 GiB");
    // The history has both.
    assert!(
        line(&screen, "llama").contains("▃") || line(&screen, "llama").contains("▂"),
        "{screen}"
    );
    member.is_refused(Bytes::mib(41));
    member.is_refused(Bytes::mib(143));
    top.shows("2 +2");
    // This process holds memory of the slice, which therefore stays. Another one ends.
    let (other, _) = slice(&home, "qwen", "8GiB");
    top.shows("2 slices");
    end(other);
    top.until("without qwen", |screen| !screen.contains("qwen"));
    end(child);
    top.press("q");
    assert_eq!((top.end(), top.is_restored()), (0, true));
}

/// Checks that a screen is whole: the first and last line, and the slices between them.
fn is_whole(screen: &str, names: [&str; 3], columns: u16) -> bool {
    let lines: Vec<&str> = screen.lines().collect();
    let has = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count() == 1;
    let fits = lines
        .iter()
        .all(|line| line.chars().count() <= usize::from(columns));
    let first = lines.first().is_some_and(|line| line.contains("3 slices"));
    let last = lines.last().is_some_and(|line| line.starts_with("q quit"));
    first && last && fits && names.into_iter().all(has)
}

#[test]
fn the_screen_is_whole_at_every_size_and_after_each_change() {
    let home = Home::new();
    let names = ["first", "second", "third"];
    let children: Vec<(Child, String)> = names
        .iter()
        .map(|name| slice(&home, name, "4GiB"))
        .collect();
    let mut top = Session::start(&mut top(&home, &[]), SIZES[0]);
    for size in [SIZES[0], SIZES[1], SIZES[2], (60, 12), SIZES[1], SIZES[0]] {
        top.resize(size);
        top.until("whole", |screen| {
            let has_commands = screen.contains("COMMAND") == (size.0 >= 120);
            has_commands && is_whole(screen, names, size.0)
        });
    }
    top.resize((30, 5));
    top.shows("gpuslice top needs 40 x 8");
    top.resize(SIZES[2]);
    top.until("whole", |screen| is_whole(screen, names, SIZES[2].0));
    top.press("q");
    assert_eq!(top.end(), 0);
    children.into_iter().for_each(|(child, _)| end(child));
}

#[test]
fn no_color_writes_no_colour_and_another_locale_only_ascii() {
    let home = Home::new();
    let (child, _) = slice(&home, "größe-日本", "4GiB");
    // Sequences that set one of the sixteen colours, or another.
    let colours = [
        "\x1b[31m", "\x1b[32m", "\x1b[36m", ";31m", ";32m", "[38;", ";38;",
    ];
    let has_colour = |top: &Session| {
        let text = String::from_utf8_lossy(&top.written).into_owned();
        colours.iter().any(|colour| text.contains(colour))
    };
    for (variable, value) in [("TZ", "UTC"), ("NO_COLOR", "1"), ("LC_ALL", "C")] {
        let mut top = Session::start(top(&home, &[]).env(variable, value), SIZES[1]);
        let screen = top.shows("/ 4.00 GiB");
        assert_eq!(has_colour(&top), variable != "NO_COLOR", "{variable}");
        assert_eq!(
            top.written.is_ascii(),
            variable == "LC_ALL",
            "{variable}: {screen}"
        );
        let shown = if variable == "LC_ALL" {
            "gr??e-??"
        } else {
            "größe-日本"
        };
        assert!(screen.contains(shown), "{screen}");
        top.press("q");
        assert_eq!(top.end(), 0);
    }
    end(child);
}

#[test]
fn sixty_four_slices_scroll_and_are_counted() {
    let machine = Machine::new(&HERE, "rtx3090");
    let children: Vec<Child> = (0..64)
        .map(|place| {
            let name = format!("--name=a-slice-with-a-long-name-{place:02}");
            machine.slice(&["--memory=256MiB", &name]).0
        })
        .collect();
    for size in SIZES {
        let mut top = Session::start(&mut top(&machine.home, &[]), size);
        let screen = top.shows("64 slices");
        assert!(
            screen
                .lines()
                .all(|line| line.chars().count() <= size.0.into()),
            "{screen}"
        );
        top.press("n");
        top.until("the first", |screen| {
            let mut lines = screen.lines().skip_while(|line| !line.starts_with("NAME"));
            lines.nth(1).is_some_and(|row| row.contains("-00 "))
        });
        top.press("G");
        let screen = top.until("the last", |screen| screen.contains("-63 "));
        assert!(!screen.contains("-00 "), "{screen}");
        top.press("q");
        assert_eq!(top.end(), 0);
    }
    children.into_iter().for_each(end);
}
