//! The ledger of a running slice is deleted, cut, replaced, overwritten, or gets another version.
//! Touches: runs on simulated cards, and their ledgers.

use super::bench::slice::{PATIENCE, answer};
use super::row::{Fault, Outcome, Row, injections, kinds, mixed, right, spread};
use super::started_run::{CONTEXT, StartedRun};
use gpuslice_config::ledger::{Ledger, Open};
use gpuslice_sim_machine::Machine as Simulated;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{OUT_OF_MEMORY, Worker};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const LIMIT: u64 = 8 * GIB;
/// The length of a ledger for one device, and its pages.
const LENGTH: usize = 164 << 10;
const PAGES: usize = LENGTH / 4096;

/// Whether processes that have the ledger mapped may end. A cut ends them by SIGBUS, as LIMITS.md
/// says; no other damage may.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mapped {
    GoOn,
    MayEnd,
}

/// The first process holds 5 GiB of 8 GiB: it must get nothing beyond the limit, and can free.
fn first_goes_on(first: &mut Worker, mapped: Mapped) -> Outcome {
    let said = |first: &mut Worker, line: &str| match (answer(first, line), mapped) {
        (Err(Fault::Wrong(_)), Mapped::MayEnd) => Ok(None),
        (said, _) => said.map(Some),
    };
    let Some(info) = said(first, "info")? else {
        return Ok(());
    };
    let most = 3 * GIB - CONTEXT;
    let is_right =
        info[0] == 0 && info[1].cast_unsigned() <= most && info[2].cast_unsigned() == LIMIT;
    right(is_right, || format!("the first process is shown {info:?}"))?;
    let three = format!("alloc 1 {}", 3 * GIB);
    let Some(code) = said(first, &three)? else {
        return Ok(());
    };
    right(code == [i64::from(OUT_OF_MEMORY)], || {
        format!("{three}: {code:?}")
    })?;
    let Some(code) = said(first, "free 0")? else {
        return Ok(());
    };
    right(code == [0], || format!("free: {code:?}"))?;
    // What was freed may be used again, or nothing is granted any more.
    said(first, &format!("alloc 0 {}", 5 * GIB)).map(drop)
}

/// A later program of the slice is refused, or has what is left of the slice.
fn later_program_is_limited(run: &StartedRun) -> Outcome {
    let mut second = run.environment.worker();
    let code = answer(&mut second, "start 0")?;
    if code == [i64::from(OUT_OF_MEMORY)] {
        return Ok(());
    }
    right(code == [0], || {
        format!("the start of a later program: {code:?}")
    })?;
    let info = answer(&mut second, "info")?;
    let is_right =
        info[0] == 0 && info[2].cast_unsigned() == LIMIT && info[1].cast_unsigned() <= LIMIT;
    right(is_right, || format!("a later program is shown {info:?}"))?;
    for bytes in [LIMIT, 4 * GIB, 3 * GIB, 3 * GIB] {
        answer(&mut second, &format!("alloc {} {bytes}", bytes >> 30))?;
    }
    let machine = Simulated::start(Some("rtx3090"), Some(&run.machine.state()), "");
    let truth = machine
        .map_err(|error| Fault::Wrong(error.to_string()))?
        .truth();
    let held = truth.devices[0].used;
    right(held <= LIMIT, || format!("{held} bytes are held"))
}

fn attacked(mapped: Mapped, attack: impl FnOnce(&Path)) -> Outcome {
    let mut run = StartedRun::holding_5_gib();
    run.wait_for_the_watcher();
    let ledger = run.path("ledger");
    let folder = run.environment.slice_file();
    let folder = folder.parent().expect("a folder");
    attack(&ledger);
    later_program_is_limited(&run)?;
    first_goes_on(&mut run.first, mapped)?;
    run.first.kill();
    let start = Instant::now();
    while folder.exists() {
        if start.elapsed() > PATIENCE {
            return Err(Fault::Leak(format!("{} stays", folder.display())));
        }
        // The watcher removes the folder, and tells nobody.
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(())
}

fn open(ledger: &Path) -> File {
    File::options()
        .write(true)
        .open(ledger)
        .expect("the ledger")
}

#[test]
fn a_deleted_ledger_gives_no_second_budget() {
    let mut row = Row::new(
        "ledger-deleted",
        "The ledger of a running slice, or its folder, is deleted",
    );
    for round in 0..injections(2) {
        row.inject(format!("round {round}"), || {
            attacked(Mapped::GoOn, |ledger| match round % 2 {
                0 => fs::remove_file(ledger).expect("removed"),
                _ => fs::remove_dir_all(ledger.parent().expect("a folder")).expect("removed"),
            })
        });
    }
    row.finish();
}

#[test]
fn a_cut_ledger_gives_no_second_budget() {
    let mut row = Row::new(
        "ledger-cut",
        "The ledger of a running slice is cut, or made longer",
    );
    let lengths = spread(LENGTH, injections(5) - 1)
        .into_iter()
        .map(|each| each as u64);
    for length in lengths.chain([1 << 40]) {
        row.inject(format!("{length} bytes"), || {
            let mapped = if length < LENGTH as u64 {
                Mapped::MayEnd
            } else {
                Mapped::GoOn
            };
            attacked(mapped, |ledger| {
                open(ledger).set_len(length).expect("a length")
            })
        });
    }
    row.finish();
}

/// Puts something else at the ledger's path.
fn replace(ledger: &Path, by: usize) {
    let aside = ledger.with_file_name("aside");
    let c_path = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes()).expect("a path");
    let make = |path: &Path, devices| {
        Ledger::open(
            &c_path(path),
            Open::Create {
                mode: 0o666,
                devices,
            },
        )
        .expect("a ledger");
    };
    if by == 0 {
        fs::copy(ledger, &aside).expect("a copy");
        fs::rename(&aside, ledger).expect("renamed");
        return;
    }
    fs::remove_file(ledger).expect("removed");
    match by {
        1 => fs::write(ledger, "").expect("written"),
        2 => fs::write(ledger, vec![0; LENGTH]).expect("written"),
        3 => fs::create_dir(ledger).expect("made"),
        4 => assert!(
            Command::new("mkfifo")
                .arg(ledger)
                .status()
                .expect("mkfifo")
                .success()
        ),
        5 => symlink("/dev/zero", ledger).expect("linked"),
        6 => symlink(ledger, ledger).expect("linked"),
        7 => symlink("/nowhere", ledger).expect("linked"),
        8 => drop(std::os::unix::net::UnixListener::bind(ledger).expect("a socket")),
        // An empty ledger, made elsewhere: `Ledger::open` keeps what it opens.
        9 => {
            make(&aside, 1);
            fs::copy(&aside, ledger).expect("a copy");
        }
        _ => {
            make(&aside, 8);
            fs::copy(&aside, ledger).expect("a copy");
        }
    }
}

#[test]
fn a_replaced_ledger_gives_no_second_budget() {
    let mut row = Row::new(
        "ledger-replaced",
        "Another file takes the place of a running slice's ledger",
    );
    for by in kinds(11, injections(6)) {
        row.inject(format!("kind {by}"), || {
            attacked(Mapped::GoOn, |ledger| replace(ledger, by))
        });
    }
    row.finish();
}

#[test]
fn a_ledger_of_another_version_gives_no_second_budget() {
    let mut row = Row::new(
        "ledger-version",
        "The ledger of a running slice gets another version",
    );
    for round in 0..injections(4) {
        let version = match round % 4 {
            0 => 0u32,
            1 => u32::MAX,
            _ => u32::try_from(mixed(round as u64) & 0xffff).expect("a version"),
        };
        row.inject(format!("version {version}"), || {
            let write = |ledger: &Path| open(ledger).write_all_at(&version.to_le_bytes(), 8);
            attacked(Mapped::GoOn, |ledger| write(ledger).expect("written"))
        });
    }
    row.finish();
}

#[test]
fn an_overwritten_ledger_gives_no_second_budget() {
    let mut row = Row::new(
        "ledger-overwritten",
        "A page of a running slice's ledger is overwritten",
    );
    for case in spread(3 * PAGES, injections(6)) {
        let (page, pattern) = (case / 3, case % 3);
        let bytes: Vec<u8> = match pattern {
            0 => vec![0; 4096],
            1 => vec![0xff; 4096],
            _ => (0..4096).map(|at| mixed(at).to_le_bytes()[0]).collect(),
        };
        row.inject(format!("page {page}, pattern {pattern}"), || {
            let at = page as u64 * 4096;
            attacked(Mapped::GoOn, |ledger| {
                open(ledger).write_all_at(&bytes, at).expect("written")
            })
        });
    }
    row.finish();
}
