//! The state, driven by keys and refreshes alone.

use super::*;
use crate::commands::top::rows::ProcessRow;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

fn slice(name: &str, used: u64, limit: u64, refusals: u64, age: u64) -> SliceRow {
    SliceRow {
        key: name.to_owned(),
        name: name.to_owned(),
        used: Some(used),
        limit: Some(limit),
        refusals: Some(refusals),
        age: Some(age),
        user: format!("user-of-{name}"),
        processes: vec![ProcessRow::default(); 3],
        ..SliceRow::default()
    }
}

fn rows() -> Rows {
    Rows {
        slices: vec![
            slice("b", 10, 100, 0, 5),
            slice("a", 30, 1000, 7, 50),
            slice("c", 20, 20, 1, 500),
        ],
        ..Rows::default()
    }
}

fn app() -> App {
    let look = Look {
        ascii: false,
        colour: false,
    };
    let mut app = App::new(look, String::new(), Interval::default());
    app.refresh(rows(), Instant::now());
    app.resize(10);
    app
}

fn press(app: &mut App, code: KeyCode) -> Effect {
    app.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_keys(app: &mut App, keys: &str) {
    for letter in keys.chars() {
        press(app, KeyCode::Char(letter));
    }
}

fn names(app: &App) -> String {
    app.shown().iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn each_column_sorts_and_its_key_again_reverses() {
    let mut app = app();
    assert_eq!(names(&app), "acb");
    for (key, sorted) in [
        ('p', "cba"),
        ('n', "abc"),
        ('r', "acb"),
        ('a', "cab"),
        ('u', "acb"),
    ] {
        type_keys(&mut app, &key.to_string());
        assert_eq!(names(&app), sorted, "{key}");
    }
    type_keys(&mut app, "u");
    assert_eq!(names(&app), "bca");
    // Slices without a number come last.
    let mut now = rows();
    now.slices[1].used = None;
    app.refresh(now, Instant::now());
    type_keys(&mut app, "u");
    assert_eq!(names(&app), "cba");
}

#[test]
fn the_selection_stays_with_its_slice() {
    let mut app = app();
    press(&mut app, KeyCode::Down);
    assert_eq!(app.selected.as_deref(), Some("c"));
    type_keys(&mut app, "n");
    assert_eq!((app.selected.as_deref(), app.cursor()), (Some("c"), 2));
    press(&mut app, KeyCode::Down);
    assert_eq!(app.cursor(), 2);
    let mut now = rows();
    now.slices.pop();
    app.refresh(now, Instant::now());
    let pointed = |app: &App| app.pointed().map(|row| row.name.clone());
    assert_eq!(pointed(&app).as_deref(), Some("a"));
    app.refresh(Rows::default(), Instant::now());
    assert_eq!(pointed(&app), None);
    assert_eq!(press(&mut app, KeyCode::Enter), Effect::None);
    assert_eq!(app.page, Page::Slices);
}

#[test]
fn until_it_is_moved_the_selection_is_the_first_line() {
    let mut app = app();
    for (key, first) in [('n', "a"), ('p', "c")] {
        type_keys(&mut app, &key.to_string());
        assert_eq!(app.pointed().unwrap().name, first);
    }
}

#[test]
fn a_filter_leaves_the_slices_that_contain_it() {
    let mut app = app();
    type_keys(&mut app, "/USER-of-c");
    assert_eq!((names(&app).as_str(), app.is_filtering), ("c", true));
    press(&mut app, KeyCode::Backspace);
    assert_eq!(names(&app), "acb");
    type_keys(&mut app, "q");
    // q is a letter of the filter now.
    assert_eq!(
        (names(&app).as_str(), app.filter.as_str()),
        ("", "USER-of-q")
    );
    press(&mut app, KeyCode::Enter);
    assert!(!app.is_filtering);
    // Esc clears the filter first, and ends only then.
    assert_eq!(press(&mut app, KeyCode::Esc), Effect::None);
    assert_eq!(names(&app), "acb");
    assert_eq!(press(&mut app, KeyCode::Esc), Effect::Quit);
    type_keys(&mut app, &"/".repeat(200));
    assert_eq!(app.filter.len(), 64);
}

#[test]
fn pages_open_and_close() {
    let mut app = app();
    app.resize(2);
    press(&mut app, KeyCode::Enter);
    assert_eq!(app.page, Page::Processes("a".to_owned()));
    assert_eq!(app.opened().unwrap().name, "a");
    press(&mut app, KeyCode::PageDown);
    assert_eq!(app.first, 1);
    assert_eq!(press(&mut app, KeyCode::Esc), Effect::None);
    assert_eq!((&app.page, app.first), (&Page::Slices, 0));
    type_keys(&mut app, "w");
    assert_eq!(app.page, Page::Warnings);
    type_keys(&mut app, "w?");
    assert!(app.has_help && app.page == Page::Slices);
    // Any key closes the help and does nothing else.
    type_keys(&mut app, "n");
    assert!(!app.has_help);
    assert_eq!(names(&app), "acb");
    assert_eq!(press(&mut app, KeyCode::Char('q')), Effect::Quit);
}

#[test]
fn a_pause_keeps_what_is_shown_and_stops_the_reading() {
    let mut app = app();
    assert_eq!(press(&mut app, KeyCode::Char(' ')), Effect::Refresh(None));
    app.refresh(Rows::default(), Instant::now());
    assert_eq!(names(&app), "acb");
    let second = Duration::from_secs(1);
    assert_eq!(
        press(&mut app, KeyCode::Char(' ')),
        Effect::Refresh(Some(second))
    );
    app.refresh(Rows::default(), Instant::now());
    assert_eq!(names(&app), "");
    assert_eq!(
        press(&mut app, KeyCode::Char('+')),
        Effect::Refresh(Some(second * 2))
    );
    assert_eq!(
        press(&mut app, KeyCode::Char('-')),
        Effect::Refresh(Some(second))
    );
}

#[test]
fn control_keys_end_and_suspend_everywhere() {
    for before in ["", "/", "?", "w"] {
        let mut app = app();
        type_keys(&mut app, before);
        let mut control =
            |letter| app.press(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
        assert_eq!(control('z'), Effect::Suspend, "{before}");
        assert_eq!(control('c'), Effect::Quit, "{before}");
    }
}
