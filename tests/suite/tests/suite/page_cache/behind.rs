//! Drop-behind: how much of a model is resident while it is loaded. No data is lost, and
//! drop-behind stops where it would do harm.
//! Touches: `tests/clients/c/cuda_loader.c` on a simulated card, model files of 256 and 512 MiB.

use gpuslice_suite::cache::{Models, slice_file};
use gpuslice_suite::compile::linked;
use gpuslice_suite::run::{Machine, Run};

const WINDOW: u64 = 128;

/// The numbers that the loader prints.
struct Said {
    /// The most MiB that were resident at any time.
    peak: u64,
    /// The MiB that were resident at the end.
    end: u64,
    /// The MiB that were resident just before the file was unmapped.
    mapped: Option<u64>,
    /// A checksum of the data that reached the device.
    sum: String,
    /// The bytes that differ from those that the program had written.
    lost: Option<u64>,
}

fn said(models: &Models, how: &str, mode: &str) -> String {
    let machine = Machine::new("rtx3090");
    let keys = format!("\"page_cache\":\"{mode}\"");
    let slice = slice_file(machine.folder(), &keys);
    let program = linked("cuda_loader", "libcuda.so.1");
    let run = Run::new(&program).arg(how).arg(models.cold("model.bin"));
    let run = machine.place(run.with_shim().slice(&slice));
    run.answer().clean()
}

fn load(models: &Models, how: &str, mode: &str) -> Said {
    let said = said(models, how, mode);
    let after = |word: &str| {
        let rest = said.split_once(word)?.1;
        rest.split_whitespace().next().map(str::to_owned)
    };
    let number = |word: &str| after(word).and_then(|text| text.parse().ok());
    Said {
        peak: number("peak ").unwrap_or_else(|| panic!("no peak in {said}")),
        end: number("end ").unwrap_or_else(|| panic!("no end in {said}")),
        mapped: number("mapped "),
        sum: after("sum ").unwrap_or_default(),
        lost: number("lost "),
    }
}

#[test]
fn a_load_in_order_never_holds_more_than_the_window_and_a_little() {
    let models = Models::of(256);
    for how in ["pass", "shared", "read", "read-small", "preadv2"] {
        let whole = load(&models, how, "drop");
        assert!(whole.peak > 240, "{how}: {} MiB", whole.peak);
        let behind = load(&models, how, "drop-behind");
        assert!(behind.peak <= WINDOW + 64, "{how}: {} MiB", behind.peak);
        assert_eq!(behind.sum, whole.sum, "{how}: other data has arrived");
        assert_eq!(
            (whole.end, behind.end),
            (0, 0),
            "{how}: MiB left at the end"
        );
    }
}

#[test]
fn a_load_by_four_threads_holds_little_more_for_each_of_them() {
    let models = Models::of(512);
    // The numbers of LIMITS.md.
    for (how, most) in [("threads-4", 248), ("mapped-threads-4", 320)] {
        let whole = load(&models, how, "drop");
        assert!(whole.peak > 480, "{how}: {} MiB", whole.peak);
        let behind = load(&models, how, "drop-behind");
        assert!(behind.peak <= most, "{how}: {} MiB", behind.peak);
        assert_eq!(behind.sum, whole.sum, "{how}: other data has arrived");
        assert_eq!(
            (whole.end, behind.end),
            (0, 0),
            "{how}: MiB left at the end"
        );
    }
}

#[test]
fn a_load_of_shuffled_tensors_holds_little_more() {
    let models = Models::of(256);
    let whole = load(&models, "shuffled", "drop");
    let behind = load(&models, "shuffled", "drop-behind");
    assert!(behind.peak <= 224, "{} MiB", behind.peak);
    assert_eq!(behind.sum, whole.sum, "other data has arrived");
    assert_eq!(behind.end, 0, "MiB left at the end");
}

/// Asserts that loads which write to their copy of the file lose nothing under drop-behind.
fn nothing_is_lost(ways: &[&str]) {
    let models = Models::of(256);
    for how in ways {
        let kept = load(&models, how, "keep");
        let behind = load(&models, how, "drop-behind");
        assert_eq!(behind.lost, Some(0), "{how}");
        assert_eq!(behind.sum, kept.sum, "{how}: other data has arrived");
        assert_eq!(behind.end, 0, "{how}: MiB left at the end");
    }
}

#[test]
fn what_a_program_has_written_into_its_copy_is_never_lost() {
    nothing_is_lost(&["written", "written-raw"]);
}

#[test]
fn a_copy_that_may_be_written_to_as_pytorch_maps_it_leaves_while_it_loads() {
    let models = Models::of(256);
    for how in ["writable", "writable-beside"] {
        let whole = load(&models, how, "drop");
        assert!(whole.peak > 240, "{how}: {} MiB", whole.peak);
        let behind = load(&models, how, "drop-behind");
        assert!(behind.peak <= WINDOW + 64, "{how}: {} MiB", behind.peak);
        assert_eq!(behind.sum, whole.sum, "{how}: other data has arrived");
        assert_eq!(behind.end, 0, "{how}: MiB left at the end");
    }
}

#[test]
fn what_a_program_writes_while_pages_beside_it_leave_is_never_lost() {
    nothing_is_lost(&["writable-written", "writable-written-beside"]);
}

#[test]
fn memory_that_takes_the_place_of_what_is_being_dropped_stays_as_it_is() {
    let models = Models::of(256);
    let behind = load(&models, "replaced", "drop-behind");
    assert_eq!(behind.lost, Some(0));
    assert_eq!(behind.end, 0, "MiB left at the end");
}

#[test]
fn dropping_stops_when_dropped_pages_are_loaded_or_read_again() {
    let models = Models::of(256);
    let once = load(&models, "pass", "drop-behind");
    assert!(once.mapped.is_some_and(|mapped| mapped <= WINDOW + 64));
    for how in ["again", "by-cpu"] {
        let said = load(&models, how, "drop-behind");
        assert!(
            said.mapped.is_some_and(|mapped| mapped > 224),
            "{how}: only {:?} MiB were resident before the file was unmapped",
            said.mapped
        );
        assert_eq!(said.end, 0, "{how}: MiB left at the end");
    }
}

#[test]
#[ignore = "make loaders: files of 2 GiB"]
fn a_large_load_never_holds_more_than_the_window_and_a_little() {
    let models = Models::of(2048);
    for (how, most) in [
        ("pass", WINDOW + 64),
        ("shared", WINDOW + 64),
        ("read", WINDOW + 64),
        ("read-small", WINDOW + 64),
        ("shuffled", 768),
    ] {
        let behind = load(&models, how, "drop-behind");
        println!("{how}: {} MiB at most", behind.peak);
        assert!(behind.peak <= most, "{how}: {} MiB", behind.peak);
        assert_eq!(behind.end, 0, "{how}: MiB left at the end");
    }
    // Pages that the kernel reads around a tensor stay cached until that part of the file is read.
    let said = said(&models, "quiet-shuffled", "drop-behind");
    let disk = said.split_once("disk ").map(|(_, rest)| rest.trim());
    let disk: u64 = disk.and_then(|bytes| bytes.parse().ok()).unwrap();
    println!("shuffled: {} MiB read from disk", disk >> 20);
    assert!((2000..2048 + 80).contains(&(disk >> 20)), "{disk} bytes");
    models.remove("model.bin");
}
