//! The overview, as a terminal of some size shows it.

use super::*;
use crate::commands::status::containers::ContainerStatus;
use crate::commands::status::driver::Machine;
use crate::commands::status::model::{
    CardStatus, DeviceStatus, Fence, ProcessStatus, RefusalsShown,
};
use crate::commands::status::users::User;
use crate::commands::status::warnings::WarningKind;

const GIB: u64 = 1 << 30;
const CARD: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";
const SPARK: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";

fn card() -> CardStatus {
    CardStatus {
        index: 0,
        device: CARD.to_owned(),
        name: "NVIDIA GeForce RTX 3090".to_owned(),
        machine: Machine::Real,
        total: Some(25_438_126_080),
        used: Some(22 * GIB + GIB / 2),
        in_slices: 21 * GIB + GIB / 2,
        outside_slices: Some(GIB),
        limits_sum: 23 * GIB,
        left_to_give: Some(740_163_584),
        unified: false,
        may_be_unified: false,
    }
}

fn spark() -> CardStatus {
    CardStatus {
        index: 0,
        device: SPARK.to_owned(),
        name: "NVIDIA GB10".to_owned(),
        machine: Machine::Simulated {
            name: "gb10".into(),
            state: "/state".into(),
        },
        total: Some(130_663_165_952),
        used: Some(30 * GIB),
        in_slices: 20 * GIB,
        outside_slices: Some(10 * GIB),
        limits_sum: 40 * GIB,
        left_to_give: Some(60 * GIB),
        unified: true,
        may_be_unified: true,
    }
}

fn share(uuid: &str, used: u64, limit: u64) -> DeviceStatus {
    DeviceStatus {
        device: Some(uuid.to_owned()),
        limit: Some(limit),
        used: Some(used),
        left: Some(limit.saturating_sub(used)),
        refusals: Some(RefusalsShown {
            count: 0,
            worst_short_by: 0,
        }),
        ..DeviceStatus::default()
    }
}

fn slice(name: &str, command: &[&str], device: DeviceStatus) -> SliceStatus {
    SliceStatus {
        name: name.to_owned(),
        pid: Some(4711),
        user: Some(User(0)),
        command: Some(command.iter().map(|word| (*word).to_owned()).collect()),
        age: Some(11_040),
        enforce: Some(true),
        devices: vec![device],
        ..SliceStatus::default()
    }
}

/// A card with two engines, an idle slice with a long name, a container without its slice, and
/// another user's slice; a simulated machine with unified memory.
fn office() -> Snapshot {
    let mut llama = slice(
        "llama",
        &[
            "/opt/venv/bin/vllm",
            "serve",
            "meta-llama/Llama-3.1-8B-Instruct",
            "--gpu-memory-utilization",
            "0.95",
        ],
        share(CARD, 11 * GIB + GIB / 2, 12 * GIB),
    );
    llama.devices[0].refusals = Some(RefusalsShown {
        count: 2,
        worst_short_by: 38 << 20,
    });
    llama.devices[0].processes = vec![ProcessStatus {
        number: 0,
        slot: 0,
        pid: 4712,
        name: Some("python".to_owned()),
        used: 11 * GIB + GIB / 2,
        driver_used: None,
        by_kind: serde_json::from_str(r#"{"linear": 12348030976}"#).unwrap(),
    }];
    let qwen = slice(
        "qwen",
        &["vllm", "serve", "Qwen/Qwen2.5-7B"],
        share(CARD, 10 * GIB, 11 * GIB),
    );
    let long = slice(
        "team-search/embeddings-of-the-second-generation",
        &["python3", "-m", "embeddings\n"],
        share(CARD, 0, 512 << 20),
    );
    let mut counted = slice("over", &["train"], share(CARD, 3 * GIB, 2 * GIB));
    counted.fence = Fence::Counted;
    let mut container = slice("team/musl", &[], share(CARD, 0, 8 * GIB));
    container.command = None;
    container.no_slice = Some("its libc is musl".to_owned());
    container.fence = Fence::None;
    container.containers = vec![ContainerStatus {
        id: "8e6f1c7f7a1be5f00d".to_owned(),
        name: "app".to_owned(),
        pid: 4711,
        lives: true,
        no_slice: Some("its libc is musl".to_owned()),
        not_limited: None,
    }];
    let mut theirs = slice("theirs", &[], share(CARD, 0, 4 * GIB));
    theirs.command = None;
    theirs.is_private = true;
    theirs.devices[0].used = None;
    theirs.devices[0].refusals = None;
    let mut unified = slice(
        "ollama",
        &["ollama", "serve"],
        share(SPARK, 20 * GIB, 40 * GIB),
    );
    unified.machine = spark().machine;
    let warning = Warning {
        kind: WarningKind::WithoutLibrary,
        message:
            "process 4713 (python) of slice qwen holds 1.00 GiB without libgpuslice.so: it is \
                  neither counted nor limited"
                .to_owned(),
        advice: Some("gpuslice doctor 4713".to_owned()),
        slice: Some("qwen".to_owned()),
        pid: Some(4713),
        device: Some(CARD.to_owned()),
    };
    Snapshot {
        cards: vec![card(), spark()],
        slices: vec![llama, qwen, long, counted, container, theirs, unified],
        warnings: vec![warning],
        device_list: None,
    }
}

fn screen(width: Option<usize>, height: Option<usize>) -> Screen {
    Screen {
        width,
        height,
        colour: false,
        unicode: true,
    }
}

/// The text as a terminal of that size shows it. No line of the text is longer than the terminal.
fn rendered(text: &str, width: u16, height: u16) -> String {
    let mut terminal = vt100::Parser::new(height.try_into().unwrap(), width.try_into().unwrap(), 0);
    terminal.process(text.replace('\n', "\r\n").as_bytes());
    let shown = terminal.screen();
    for row in 0..height {
        assert!(!shown.row_wrapped(row), "{text}");
    }
    shown.contents()
}

#[test]
fn the_overview_fits_a_terminal_of_80_columns() {
    let text = overview(&office(), &screen(Some(80), Some(24)), false);
    insta::assert_snapshot!(rendered(&text, 80, 40));
}

#[test]
fn the_overview_fits_a_terminal_of_120_columns() {
    let text = overview(&office(), &screen(Some(120), Some(40)), false);
    insta::assert_snapshot!(rendered(&text, 120, 40));
}

#[test]
fn the_overview_fits_a_terminal_of_200_columns() {
    let text = overview(&office(), &screen(Some(200), Some(60)), true);
    insta::assert_snapshot!(rendered(&text, 200, 60));
}

#[test]
fn without_a_terminal_nothing_is_cut() {
    let ascii = Screen::default();
    insta::assert_snapshot!(overview(&office(), &ascii, false));
}

#[test]
fn no_width_is_too_small_and_no_line_too_long() {
    let many = many_slices();
    for width in 1..=220u16 {
        let screen = screen(Some(width.into()), Some(24));
        for snapshot in [&office(), &many] {
            for line in overview(snapshot, &screen, true).lines() {
                // A warning is wrapped between words, and a word is not broken.
                if !line.trim_start().contains(' ') || line.starts_with('!') {
                    continue;
                }
                let is_warning = snapshot.warnings.iter().any(|one| {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    one.line().contains(&words.join(" "))
                });
                assert!(
                    is_warning || cells::width(line) <= width.into(),
                    "{width}: {line}"
                );
            }
        }
    }
}

#[test]
fn colours_do_not_change_what_is_shown() {
    let plain = screen(Some(120), None);
    let coloured = Screen {
        colour: true,
        ..plain
    };
    let text = overview(&office(), &coloured, false);
    assert!(
        text.contains("\x1b[31m") && text.contains("\x1b[33m"),
        "{text}"
    );
    assert_eq!(
        rendered(&text, 120, 40),
        rendered(&overview(&office(), &plain, false), 120, 40)
    );
}

fn many_slices() -> Snapshot {
    let slices = (0..64u64).map(|number| {
        let used = number.saturating_mul(GIB / 256);
        let device = share(CARD, used, GIB / 4);
        SliceStatus {
            pid: Some(1000),
            ..slice(&format!("worker-{number}"), &["work"], device)
        }
    });
    Snapshot {
        cards: vec![card()],
        slices: slices.collect(),
        ..Snapshot::default()
    }
}

#[test]
fn a_refresh_has_at_most_the_lines_of_the_terminal() {
    for (snapshot, least) in [(many_slices(), 3), (office(), 3)] {
        for height in least..70 {
            let screen = screen(Some(80), Some(height.into()));
            let text = refreshed(&snapshot, &screen, true, None);
            assert!(
                text.lines().count() < usize::from(height),
                "{height}: {text}"
            );
            let shown = rendered(&text, 80, height);
            assert!(shown.starts_with("gpuslice status  "), "{height}: {shown}");
        }
    }
    let text = refreshed(&many_slices(), &screen(Some(80), Some(24)), false, None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 23);
    assert_eq!(lines[22], "  46 more lines (gpuslice top scrolls)");
    assert!(lines[21].starts_with("  worker-17 "), "{text}");
}

#[test]
fn a_refresh_keeps_room_for_warnings() {
    let mut snapshot = many_slices();
    snapshot.warnings = vec![office().warnings.remove(0); 30];
    let text = refreshed(&snapshot, &screen(Some(120), Some(24)), false, None);
    assert_eq!(text.lines().count(), 23);
    assert!(
        text.lines().filter(|line| line.starts_with('!')).count() >= 3,
        "{text}"
    );
    assert!(text.contains("  worker-5 "), "{text}");
}

#[test]
fn slices_of_one_name_are_told_apart() {
    let mut snapshot = office();
    let mut second = snapshot.slices[0].clone();
    second.pid = Some(815);
    snapshot.slices.push(second);
    let text = overview(&snapshot, &screen(None, None), false);
    assert!(
        text.contains("  llama (4711)  ") && text.contains("  llama (815)  "),
        "{text}"
    );
}

#[test]
fn wide_letters_do_not_shift_columns() {
    let mut snapshot = office();
    snapshot.slices[1].name = "日本語モデル".to_owned();
    let text = overview(&snapshot, &screen(Some(100), None), false);
    let column = |line: &str| {
        let before = line.split_once(" / ").unwrap().0;
        cells::width(before)
    };
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("  ") && line.contains(" GiB "))
        .collect();
    let columns: Vec<usize> = rows.iter().map(|line| column(line)).collect();
    assert!(
        rows.len() > 4 && columns.iter().all(|one| *one == columns[0]),
        "{text}"
    );
}

#[test]
fn where_no_slice_runs_the_gpus_are_shown_all_the_same() {
    let snapshot = Snapshot {
        cards: vec![CardStatus {
            used: None,
            outside_slices: None,
            in_slices: 0,
            ..card()
        }],
        ..Snapshot::default()
    };
    assert_eq!(
        overview(&snapshot, &Screen::default(), false),
        "GPU 0  NVIDIA GeForce RTX 3090  --------------------  ? / 23.69 GiB  \
         705.88 MiB left to give\n\nno slices are running\n"
    );
    let nothing = overview(&Snapshot::default(), &Screen::default(), false);
    assert_eq!(nothing, "no slices are running\n");
}
