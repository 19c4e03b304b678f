//! The verdict of `gpuslice check` where no function answers at all: it never reports agreement.
//! Touches: `gpuslice check`, on simulated machines, and a driver of this test's own.

use super::findings::library;
use crate::said::{Said, check};
use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Machine, Run};
use std::path::Path;

/// The sentence on standard error, of a check that ends with status 2; the JSON says the same.
fn refusal(answer: Answer) -> String {
    let said = Said::new(answer);
    assert_eq!(said.answer.end, "exit 2", "{:?}", said.answer);
    assert_eq!(said.json["consistent"], false);
    let stderr = said.answer.stderr.as_str();
    let own = stderr
        .lines()
        .find_map(|line| line.strip_prefix("gpuslice: "));
    let own = own.unwrap_or_else(|| panic!("nothing was said: {stderr}"));
    assert_eq!(said.json["error"], own);
    assert_eq!(said.disagreements(), Vec::<&str>::new());
    own.to_owned()
}

/// A machine whose driver is in `folder`, as a person runs check there, and as a program does.
fn both(machine: &Machine, folder: &Path) -> (Answer, Answer) {
    let for_people = machine.place(Run::new(place::gpuslice()).arg("check"));
    let for_programs = check(machine, &[]);
    let there = |run: Run| run.env("LD_LIBRARY_PATH", folder).answer();
    (there(for_people), there(for_programs))
}

#[test]
fn a_driver_that_refuses_everything_is_no_agreement() {
    let machine = Machine::new("rtx3090");
    let driver = library("refusing_driver.c", "refusing/libcuda.so.1");
    let _ = library("refusing_driver.c", "refusing/libnvidia-ml.so.1");
    let (person, program) = both(&machine, driver.parent().unwrap());
    let why = "the NVIDIA driver does not work: cuInit returns 100 (CUDA_ERROR_NO_DEVICE), \
               nvmlInit_v2 returns 9 (NVML_ERROR_DRIVER_NOT_LOADED)";
    assert_eq!(refusal(program), why);
    assert_eq!(person.end, "exit 2", "{person:?}");
    assert_eq!(person.stdout, "");
    assert_eq!(person.stderr, format!("gpuslice: {why}\n"));
}

#[test]
fn a_library_that_is_missing_is_named_beside_one_that_refuses() {
    let machine = Machine::new("rtx3090");
    let driver = library("refusing_driver.c", "refusing-alone/libcuda.so.1");
    let (_, program) = both(&machine, driver.parent().unwrap());
    let why = refusal(program);
    let start = "the NVIDIA driver does not work: cuInit returns 100 (CUDA_ERROR_NO_DEVICE), \
                 libnvidia-ml.so.1 cannot be loaded (";
    assert!(why.starts_with(start), "{why}");
}

#[test]
fn a_simulated_machine_that_does_not_exist_is_no_agreement() {
    let machine = Machine::new("nosuch");
    let (person, program) = both(&machine, &place::sim());
    let why = "the NVIDIA driver does not work: cuInit returns 1 (CUDA_ERROR_INVALID_VALUE), \
               nvmlInit_v2 returns 9 (NVML_ERROR_DRIVER_NOT_LOADED)";
    assert_eq!(refusal(program), why);
    assert_eq!(person.end, "exit 2", "{person:?}");
    // The driver's own message is not repeated for each route.
    assert!(person.stderr.lines().count() <= 3, "{person:?}");
}

#[test]
fn a_gpu_that_is_lost_is_never_consistent() {
    let machine = Machine::new("rtx3090");
    let lost = |after: u32, options: &[&str]| {
        let run = check(&machine, &["--sim", "rtx3090"]).args(options);
        run.env("GPUSLICE_SIM_FAULTS", format!("lost@{after}"))
            .answer()
    };
    for after in [1, 3] {
        let why = refusal(lost(after, &["--bare"]));
        assert!(why.contains("999 (CUDA_ERROR_UNKNOWN)"), "{why}");
        assert!(why.contains("15 (NVML_ERROR_GPU_IS_LOST)"), "{why}");
        let limited = refusal(lost(after, &["--memory", "8GiB"]));
        assert!(
            limited.starts_with("the NVIDIA driver does not work: "),
            "{limited}"
        );
    }
    for after in [8, 20, 40, 60] {
        let said = Said::new(lost(after, &["--bare"]));
        assert_eq!(said.answer.end, "exit 1", "lost@{after}");
        assert_eq!(said.json["consistent"], false);
        let rows = said.json["rows"].to_string();
        let failed = [
            "CUDA_ERROR_UNKNOWN",
            "cudaErrorUnknown",
            "NVML_ERROR_GPU_IS_LOST",
        ];
        assert!(
            failed.iter().any(|error| rows.contains(error)),
            "lost@{after}: {rows}"
        );
        assert!(!said.disagreements().is_empty(), "lost@{after}");
    }
}

#[test]
fn an_unknown_machine_is_a_usage_error_of_devices_and_check() {
    let machine = Machine::new("rtx3090");
    for words in [
        &["devices", "--sim", "nosuch"][..],
        &["check", "--sim", "nosuch"],
        &["check", "--sim", "nosuch", "--memory", "8GiB"],
    ] {
        let answer = machine
            .place(Run::new(place::gpuslice()).args(words))
            .answer();
        assert_eq!(answer.end, "exit 125", "{answer:?}");
        assert_eq!(answer.stdout, "");
        let start = "gpuslice: cannot start the simulated machine: there is no scenario `nosuch`";
        assert!(answer.stderr.starts_with(start), "{answer:?}");
    }
}
