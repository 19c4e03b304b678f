//! The findings of `gpuslice check`, and its behaviour where the driver or the slice is bad.
//! Touches: `gpuslice check`, on simulated machines, and two drivers of this test's own.

use super::machines::{Device, MIB, RTX3090};
use crate::said::{Said, check};
use gpuslice_suite::compile::compile;
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices, write};
use gpuslice_suite::worker::Counted;
use serde_json::json;
use std::path::PathBuf;

/// The routes by which a function reports this total.
fn routes(said: &Said, device: &Device, api: &str, total: u64) -> Vec<String> {
    let rows = said.rows(device.uuid).into_iter();
    rows.filter(|row| row["api"] == api && row["total"] == total)
        .map(|row| row["route"].as_str().unwrap().to_owned())
        .collect()
}

/// A library of these tests' own.
pub(crate) fn library(source: &str, name: &str) -> PathBuf {
    let source = place::workspace()
        .join("tests/suite/tests/suite/answers/agreement")
        .join(source);
    compile("cc", source.to_str().unwrap(), name, &["-shared", "-fPIC"])
}

#[test]
fn a_preload_that_only_exports_is_found_out_route_by_route() {
    let library = library("only_exports.c", "only-exports/libonlyexports.so");
    let machine = Machine::new("rtx3090");
    let said = Said::new(check(&machine, &[]).preload(library).answer());
    assert_eq!(said.answer.end, "exit 1");
    assert_eq!(
        routes(&said, &RTX3090, "cuMemGetInfo_v2", GIB),
        [
            "rtld-default",
            "rtld-next",
            "linked-program",
            "linked-library",
            "library-rtld-default",
            "preloaded-rtld-next",
        ]
    );
    assert_eq!(
        routes(&said, &RTX3090, "cuMemGetInfo_v2", RTX3090.total),
        [
            "dlsym-local",
            "dlsym-global",
            "library-rtld-next",
            "deepbind",
            "deepbind-dlsym",
            "dlmopen",
            "dlmopen-dlsym",
            "cuGetProcAddress",
            "cuGetProcAddress_v2-legacy",
            "cuGetProcAddress_v2-per-thread",
            "cuGetProcAddress_v2_ptsz",
            "cuGetProcAddress-itself",
        ]
    );
}

#[test]
fn without_options_it_sees_what_programs_here_see() {
    let machine = Machine::new("rtx3090");
    let file = machine.folder().join("slice.json");
    write(&file, br#"{"version":1,"name":"here","memory":8589934592}"#);
    let inside = Said::new(check(&machine, &[]).with_shim().slice(&file).answer());
    assert_eq!(inside.answer.end, "exit 0");
    assert_eq!(inside.json["slice"]["name"], "here");
    assert_eq!(
        routes(&inside, &RTX3090, "cuMemGetInfo_v2", 8 * GIB).len(),
        18
    );
    let without = Said::new(check(&machine, &[]).slice(&file).answer());
    assert_eq!(without.answer.end, "exit 1");
    let said = without.disagreements();
    let not_loaded = "there is a slice, but libgpuslice.so is not loaded into any program";
    assert!(said.contains(&not_loaded), "{said:?}");
    let over = format!("{}: the slice is 8.00 GiB;", RTX3090.uuid);
    assert!(said.iter().any(|said| said.starts_with(&over)), "{said:?}");
}

#[test]
fn a_slice_that_is_used_up_has_nothing_free_and_still_one_truth() {
    // A slice that only counts: with an enforced limit this small, no process could create a
    // context in which to query CUDA.
    let keys = json!({"memory": 100 * MIB, "enforce": false});
    let slice = Counted::with("rtx3090", &keys);
    let _holds_a_context = slice.worker();
    let run = slice.run(place::gpuslice()).args(["check", "--json"]);
    let said = Said::new(run.answer());
    assert_eq!(said.disagreements(), Vec::<&str>::new());
    for row in said
        .rows(RTX3090.uuid)
        .iter()
        .filter(|row| row["used"].is_u64())
    {
        let numbers = [&row["total"], &row["free"], &row["used"]];
        assert_eq!(
            numbers,
            [&json!(100 * MIB), &json!(0), &json!(100 * MIB)],
            "{row}"
        );
    }
}

#[test]
fn a_slice_file_that_cannot_be_used_is_said_with_its_line() {
    for (slice, error) in [
        (
            "{\"version\":1,\n\"memroy\":1}",
            "line 2: unknown key \"memroy\"",
        ),
        (
            "{\"version\":2}",
            "line 1: version 2 is newer than this gpuslice reads (1)",
        ),
        ("[", "line 1: not a slice file"),
    ] {
        let machine = Machine::new("rtx3090");
        let file = machine.folder().join("slice.json");
        write(&file, slice.as_bytes());
        let named = ["--sim", "rtx3090", "--config", file.to_str().unwrap()];
        let by_option = check(&machine, &named);
        let by_environment = check(&machine, &[]).with_shim().slice(&file);
        for run in [by_option, by_environment] {
            let said = Said::new(run.answer());
            assert_eq!(said.answer.end, "exit 1");
            let shown = said.json["slice"]["error"].as_str().unwrap();
            assert!(shown.contains(error), "{shown}");
            assert_eq!(said.disagreements()[0], shown);
        }
    }
}

#[test]
fn a_machine_without_a_driver_is_told_from_one_that_disagrees() {
    let run = Run::new(place::gpuslice()).args(["check", "--json"]);
    let answer = run.env("LD_LIBRARY_PATH", "/nonexistent").answer();
    assert_eq!(answer.end, "exit 2", "{answer:?}");
    assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
    assert!(
        answer.stderr.contains("no NVIDIA driver here"),
        "{answer:?}"
    );
}

#[test]
fn a_driver_that_hangs_is_a_row_and_not_a_hang() {
    let machine = Machine::new("rtx3090");
    let run = check(
        &machine,
        &["--sim", "rtx3090", "--memory", "8GiB", "--timeout", "1"],
    );
    let said = Said::new(
        run.env("GPUSLICE_SIM_FAULTS", "slow:cuMemGetInfo_v2=60000ms")
            .answer(),
    );
    assert_eq!(said.answer.end, "exit 1");
    let silent = said.rows("*");
    assert_eq!(silent.len(), 3, "{silent:?}");
    for row in silent {
        assert_eq!(row["api"], "cuMemGetInfo_v2");
        assert_eq!(row["error"], "no answer in 1 s");
    }
    let given_up = said.json["skipped"].as_array().unwrap();
    assert_eq!(given_up.len(), 25);
    assert!(
        given_up
            .iter()
            .all(|row| row["why"] == "3 routes in a row gave no answer")
    );
}

/// Each copy of the library charges the host memory that `check` itself uses, at its own time.
#[test]
fn a_slice_that_is_charged_for_all_host_memory_is_consistent() {
    for allowance in ["0", "1MiB", "1664KiB"] {
        let machine = Machine::new("gb10");
        let options = ["--sim", "gb10", "--memory", "40GiB", "--host-allowance"];
        let said = Said::new(check(&machine, &options).args([allowance]).answer());
        assert_eq!(said.disagreements(), Vec::<&str>::new(), "{allowance}");
        assert_eq!(said.answer.end, "exit 0", "{allowance}");
    }
}

#[test]
fn a_driver_that_crashes_is_a_row_that_says_where() {
    let machine = Machine::new("rtx3090");
    let library = library("crashing_driver.c", "crashing/libcuda.so.1");
    let folder = library.parent().unwrap();
    let said = Said::new(check(&machine, &[]).env("LD_LIBRARY_PATH", folder).answer());
    assert_eq!(said.answer.end, "exit 1");
    let first = said.rows("*")[0];
    assert_eq!(first["api"], "cuInit");
    assert_eq!(first["error"], "crashed (SIGABRT)");
}

#[test]
fn numbers_that_never_hold_still_are_called_moving() {
    let moves = ("GPUSLICE_SIM_FAULTS", "free-moves=4MiB");
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = check(&machine, &[]).with_shim().slice(&file);
    let said = Said::new(run.env(moves.0, moves.1).answer());
    assert_eq!(said.answer.end, "exit 1");
    let told = said.disagreements();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("moving: "), "{told:?}");
    for row in said
        .rows(RTX3090.uuid)
        .iter()
        .filter(|row| row["used"].is_u64())
    {
        assert_eq!(row["total"], 8 * GIB, "{row}");
    }
}

#[test]
fn neighbours_do_not_move_the_numbers_of_a_slice_with_a_ledger() {
    let machine = Machine::new("rtx3090");
    let run = check(&machine, &["--sim", "rtx3090", "--memory", "8GiB"]);
    let said = Said::new(run.env("GPUSLICE_SIM_FAULTS", "free-moves=4MiB").answer());
    assert_eq!(said.disagreements(), Vec::<&str>::new());
    assert_eq!(said.answer.end, "exit 0");
}

#[test]
fn a_driver_older_than_a_function_is_not_blamed_for_it() {
    let machine = Machine::new("rtx3090");
    let run = check(&machine, &[]).env("LD_LIBRARY_PATH", place::sim().join("old"));
    let said = Said::new(run.answer());
    assert_eq!(said.disagreements(), Vec::<&str>::new());
    let skipped = said.json["skipped"].as_array().unwrap();
    let of = |api: &str| skipped.iter().filter(|row| row["api"] == api).count();
    assert_eq!(of("nvmlDeviceGetMemoryInfo_v2"), 13);
    // Four by cuGetProcAddress_v2, and three runtimes, Vulkan and OpenCL, each of these with and without
    // a loader, that are not beside the old driver.
    assert_eq!(of("*"), 11);
}

#[test]
fn in_a_slice_an_nvml_that_cannot_tell_what_it_reserves_is_explained() {
    let machine = Machine::new("rtx3090");
    let file = machine.folder().join("slice.json");
    write(&file, br#"{"version":1,"name":"here","memory":8589934592}"#);
    let run = check(&machine, &[]).env("LD_LIBRARY_PATH", place::sim().join("old"));
    let said = Said::new(run.with_shim().slice(&file).answer());
    assert_eq!(said.answer.end, "exit 1");
    let notes = said.json["notes"].to_string();
    let why = "this NVML has no nvmlDeviceGetMemoryInfo_v2, so it cannot tell how much";
    assert!(notes.contains(why), "{notes}");
    let newer = check(&machine, &[]).with_shim().slice(&file).answer();
    assert!(!newer.stdout.contains(why), "{newer:?}");
}

#[test]
fn a_slice_for_another_machine_is_told_with_the_gpus_that_are_here() {
    let machine = Machine::new("rtx3090");
    let file = machine.folder().join("slice.json");
    let other = "GPU-1b7d7c5e-6b0b-4c59-9b62-5cd0c0a1a3c4";
    let slice = json!({"version": 1, "devices": [{"uuid": other, "memory": GIB}]});
    write(&file, slice.to_string().as_bytes());
    let words = [
        "check",
        "--sim",
        "2xh200",
        "--config",
        file.to_str().unwrap(),
    ];
    let answer = machine
        .place(Run::new(place::gpuslice()).args(words))
        .answer();
    assert_eq!(answer.end, "exit 1");
    let list = "are:
  0 GPU-200aaaaa-2222-4333-8444-555566660000  NVIDIA H200, 139.81 GiB
  1 GPU-200aaaaa-2222-4333-8444-555566660001  NVIDIA H200, 139.81 GiB
";
    let said = &answer.stdout;
    assert!(said.starts_with("INCONSISTENT: slice file "), "{said}");
    assert!(said.contains(list), "{said}");
}
