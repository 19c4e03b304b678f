//! Screens of several sizes, compared with reviewed ones (INSTA_UPDATE=always rewrites them).
#![expect(clippy::arithmetic_side_effects, reason = "small numbers of a test")]

use super::*;
use crate::commands::top::interval::Interval;
use crate::commands::top::look::Look;
use crate::commands::top::rows::{CardRow, ProcessRow, Rows, SliceRow};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use std::time::Duration;

const GIB: u64 = 1 << 30;
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];
const COLOURS: Look = Look {
    ascii: false,
    colour: true,
};
const ASCII: Look = Look {
    ascii: true,
    colour: false,
};

fn slice(name: &str, used: u64, limit: u64, refusals: u64) -> SliceRow {
    let process = |pid, used, kinds: &str| ProcessRow {
        pid,
        name: "python3".to_owned(),
        used: Some(used),
        driver_used: Some(used + (64 << 20)),
        kinds: kinds.to_owned(),
    };
    SliceRow {
        key: format!("/run/{name} gpu"),
        name: name.to_owned(),
        gpu: "0".to_owned(),
        used: Some(used),
        limit: Some(limit),
        headroom: 512 << 20,
        refusals: Some(refusals),
        worst_short_by: 38 << 20,
        fence: "preload",
        user: "vllm".to_owned(),
        age: Some(11_040),
        pid: Some(4242),
        command: format!("vllm serve meta-llama/{name} --gpu-memory-utilization 0.9"),
        error: None,
        processes: vec![
            process(4242, used / 2, "linear 5.00 GiB, context 256.00 MiB"),
            process(4243, used / 4, "pool 2.00 GiB"),
        ],
    }
}

fn card(index: u32) -> CardRow {
    CardRow {
        label: format!("{index} RTX 3090"),
        total: Some(24 * GIB),
        in_slices: 15 * GIB,
        outside: Some(GIB),
        left_to_give: Some(3 * GIB),
    }
}

fn rows() -> Rows {
    let mut escaped = slice("escaped", 0, 4 * GIB, 0);
    escaped.fence = "counted";
    escaped.processes = vec![ProcessRow {
        pid: 23_768,
        name: "python3".to_owned(),
        used: None,
        driver_used: Some(10 * GIB),
        kinds: "without libgpuslice.so: not counted, not limited".to_owned(),
    }];
    let mut private = slice("theirs", 0, 2 * GIB, 0);
    (private.used, private.refusals) = (None, None);
    (private.user, private.command) = ("anna".to_owned(), "-".to_owned());
    private.error = Some("its slice file can be read by its user and by root only".to_owned());
    private.processes.clear();
    Rows {
        cards: vec![card(0), card(1)],
        slices: vec![
            slice("llama", 117 * GIB / 10, 12 * GIB, 2),
            slice("qwen", 3 * GIB, 11 * GIB, 0),
            escaped,
            private,
        ],
        warnings: vec![
            "process 23768 (python3) of slice escaped holds 10.00 GiB without libgpuslice.so: it is \
             neither counted nor limited (gpuslice doctor 23768)"
                .to_owned(),
            "/run/gpuslice/devices.json differs from this machine's GPUs".to_owned(),
        ],
    }
}

/// The state after some refreshes, in which a slice grows and two requests are refused.
fn app(look: Look) -> App {
    let mut app = App::new(look, "spark-7".to_owned(), Interval::default());
    app.clock = "12:34:56".to_owned();
    for step in 0..30u64 {
        let mut now = rows();
        now.slices[0].used = Some(step * 4 * GIB / 10);
        now.slices[0].refusals = Some(step / 15);
        app.refresh(now, Instant::now());
    }
    app.refresh(rows(), Instant::now());
    app
}

fn terminal(app: &mut App, (width, height): (u16, u16)) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    app.resize(table_height(app, Rect::new(0, 0, width, height)));
    let now = app.refreshed.unwrap_or_else(Instant::now);
    terminal.draw(|frame| draw(frame, app, now)).unwrap();
    terminal
}

/// The screen as text, without the blanks at the ends of its lines.
fn screen(app: &mut App, size: (u16, u16)) -> String {
    let terminal = terminal(app, size);
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for row in buffer.area.rows() {
        let cells = row.columns().map(|cell| buffer[(cell.x, cell.y)].symbol());
        text.push_str(cells.collect::<String>().trim_end());
        text.push('\n');
    }
    text
}

fn press(app: &mut App, code: KeyCode) {
    app.press(KeyEvent::new(code, KeyModifiers::NONE));
}

#[test]
fn the_slices_on_screens_of_three_sizes() {
    for size in SIZES {
        let name = format!("slices_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, screen(&mut app(COLOURS), size));
    }
}

#[test]
fn the_slices_in_ascii() {
    let shown = screen(&mut app(ASCII), SIZES[1]);
    assert!(shown.is_ascii(), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn many_slices_with_long_names_scroll_with_the_selection() {
    let mut now = rows();
    now.cards = (0..16).map(card).collect();
    now.slices = (0..64u64)
        .map(|place| {
            let name = format!("a-rather-long-name-of-a-slice-{place:02}-日本語モデル");
            slice(&name, (64 - place) * GIB / 8, 8 * GIB, place)
        })
        .collect();
    for size in SIZES {
        let mut app = App::new(COLOURS, "spark-7".to_owned(), Interval::default());
        app.refresh(now.clone(), Instant::now());
        screen(&mut app, size);
        press(&mut app, KeyCode::End);
        press(&mut app, KeyCode::Up);
        let name = format!("many_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, screen(&mut app, size));
        assert_eq!(app.cursor(), 62);
        for _ in 0..3 {
            press(&mut app, KeyCode::PageUp);
        }
        let first = 62usize.saturating_sub(3 * app.height);
        assert_eq!(app.cursor(), first);
    }
}

#[test]
fn the_processes_of_a_slice() {
    for size in SIZES {
        let mut app = app(COLOURS);
        press(&mut app, KeyCode::Enter);
        let name = format!("processes_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name, screen(&mut app, size));
    }
}

#[test]
fn a_slice_that_ends_while_it_is_shown_is_said_to_have_ended() {
    let mut app = app(COLOURS);
    press(&mut app, KeyCode::Enter);
    app.refresh(Rows::default(), Instant::now());
    let shown = screen(&mut app, SIZES[0]);
    assert!(
        shown.contains("The slice has ended (Esc goes back)"),
        "{shown}"
    );
}

#[test]
fn the_help_the_filter_and_all_warnings() {
    let mut one = app(COLOURS);
    press(&mut one, KeyCode::Char('?'));
    insta::assert_snapshot!("help", screen(&mut one, SIZES[0]));
    let mut one = app(COLOURS);
    for letter in "/qwen".chars() {
        press(&mut one, KeyCode::Char(letter));
    }
    insta::assert_snapshot!("filter", screen(&mut one, SIZES[0]));
    press(&mut one, KeyCode::Char('x'));
    let shown = screen(&mut one, SIZES[0]);
    assert!(shown.contains("No slice contains \"qwenx\""), "{shown}");
    let mut one = app(COLOURS);
    press(&mut one, KeyCode::Char('w'));
    insta::assert_snapshot!("warnings", screen(&mut one, SIZES[0]));
}

#[test]
fn nothing_to_show_yet_or_at_all() {
    let mut one = App::new(COLOURS, "spark-7".to_owned(), Interval::default());
    assert!(screen(&mut one, SIZES[0]).contains("Reading the slices ..."));
    one.refresh(Rows::default(), Instant::now());
    assert!(screen(&mut one, SIZES[0]).contains("No slices are running. Start one: gpuslice run"));
}

#[test]
fn a_paused_screen_and_late_data_say_so() {
    let mut one = app(COLOURS);
    let late = one.refreshed.unwrap() + Duration::from_secs(9);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &one, late)).unwrap();
    assert!(format!("{}", terminal.backend()).contains("every 1 s  9 s old"));
    press(&mut one, KeyCode::Char(' '));
    assert!(screen(&mut one, SIZES[0]).contains(" PAUSED "));
}

#[test]
fn every_size_is_drawn_without_a_panic() {
    for look in [COLOURS, ASCII] {
        let mut one = app(look);
        for key in [' ', 'w', '?', 'w', '/'] {
            for width in [1, 39, 40, 61, 79, 130] {
                for height in [1, 7, 8, 9, 23] {
                    screen(&mut one, (width, height));
                }
            }
            press(&mut one, KeyCode::Char(key));
        }
    }
    let small = screen(&mut app(COLOURS), (39, 7));
    assert_eq!(
        small.lines().next(),
        Some("gpuslice top needs 40 x 8 characters")
    );
}

/// The style of the first cell of a text on the screen.
fn style_of(terminal: &Terminal<TestBackend>, text: &str) -> ratatui::style::Style {
    let buffer = terminal.backend().buffer();
    for row in buffer.area.rows() {
        let cells: Vec<_> = row.columns().map(|cell| (cell.x, cell.y)).collect();
        let line: String = cells.iter().map(|place| buffer[*place].symbol()).collect();
        if let Some(bytes) = line.find(text) {
            let column = line[..bytes].chars().count();
            return buffer[cells[column]].style();
        }
    }
    panic!("no {text} on the screen");
}

#[test]
fn new_refusals_full_slices_and_the_selection_stand_out() {
    let shown = terminal(&mut app(COLOURS), SIZES[1]);
    let refused = style_of(&shown, "2 +2");
    assert_eq!(refused.fg, Some(Color::Red));
    assert_eq!(style_of(&shown, "97%").fg, Some(Color::Red));
    assert_eq!(style_of(&shown, "27%").fg, Some(Color::Green));
    let is_reversed = |text| {
        style_of(&shown, text)
            .add_modifier
            .contains(Modifier::REVERSED)
    };
    assert!(is_reversed("llama ") && !is_reversed("qwen "));
}

#[test]
fn without_colours_no_cell_has_one_and_new_refusals_still_stand_out() {
    let shown = terminal(&mut app(ASCII), SIZES[1]);
    let buffer = shown.backend().buffer();
    let colours = |cell: &ratatui::buffer::Cell| (cell.fg, cell.bg);
    assert!(
        buffer
            .content
            .iter()
            .all(|cell| colours(cell) == (Color::Reset, Color::Reset))
    );
    let refused = style_of(&shown, "2 +2").add_modifier;
    assert!(refused.contains(Modifier::REVERSED | Modifier::BOLD));
}
