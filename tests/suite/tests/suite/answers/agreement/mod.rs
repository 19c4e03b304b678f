//! The agreement test: every API by every route, on every simulated machine, gives one
//! {total, free, used} in a slice; and without one, `gpuslice check` names those that differ.
//! Touches: `gpuslice check`, on simulated machines.

mod findings;
mod machines;
mod silence;

use crate::said::{Said, check};
use gpuslice_suite::place;
use gpuslice_suite::run::Machine;
use gpuslice_suite::slice::{GIB, write};
use machines::{
    Device, GB10, H200, INSTANCES, MIB, N1X, ORIN, RTX3090, SECOND_H200, THOR, expected,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One slice.
struct Slice {
    options: Vec<String>,
    /// The total that it reports for a device.
    total: fn(&Device) -> u64,
    /// The most that can be free.
    budget: u64,
    discrete: bool,
}

/// Every kind of slice: smaller than the devices, as large, with the devices' own total, and with
/// unified memory that presents itself as discrete.
fn slices(machine: &Machine, devices: &[&Device]) -> Vec<Slice> {
    let options = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let listed = |device: &&Device| json!({"uuid": device.uuid, "memory": device.total, "integrated": device.integrated});
    let whole = machine.folder().join("whole.json");
    let slice = json!({
        "version": 1,
        "name": "whole",
        "meminfo": machine.state().join("meminfo"),
        "devices": devices.iter().map(listed).collect::<Vec<Value>>(),
    });
    write(&whole, slice.to_string().as_bytes());
    let smaller = ["--memory", "8GiB"];
    vec![
        Slice {
            options: options(&smaller),
            total: |_| 8 * GIB,
            budget: 8 * GIB,
            discrete: false,
        },
        Slice {
            // A host keeps some of its memory for itself.
            options: options(&["--config", whole.to_str().unwrap(), "--overcommit"]),
            total: |device| device.total,
            budget: u64::MAX,
            discrete: false,
        },
        Slice {
            options: options(&["--memory", "8GiB", "--total", "device"]),
            total: |device| device.total,
            budget: 8 * GIB,
            discrete: false,
        },
        Slice {
            options: options(&["--memory", "8GiB", "--present-as", "discrete"]),
            total: |_| 8 * GIB,
            budget: 8 * GIB,
            discrete: true,
        },
    ]
}

/// Asserts that every function reports one answer for the device, by every route.
fn one_truth(said: &Said, device: &Device, slice: &Slice, newest_cudart: u32) {
    let total = (slice.total)(device);
    let rows = said.rows(device.uuid);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found: Vec<(String, String)> = rows
        .iter()
        .map(|row| (text(&row["api"]), text(&row["route"])))
        .collect();
    let shares = device.integrated && !slice.discrete;
    let expected = expected(device, newest_cudart, shares);
    assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(found.len(), expected.len(), "a row occurs twice");
    let first = rows.iter().find(|row| row["used"].is_u64()).unwrap();
    let free = first["free"].as_u64().unwrap();
    assert!(free <= slice.budget, "{first}");
    for row in rows {
        assert_eq!(row["error"], Value::Null, "{row}");
        match row["api"].as_str().unwrap() {
            "cuMemGetInfo" => {
                assert_eq!(row["total"], total.min(u64::from(u32::MAX)), "{row}");
                assert_eq!(row["free"], free.min(u64::from(u32::MAX)), "{row}");
            }
            "cuDeviceTotalMem" => {
                assert_eq!(row["total"], total.min(u64::from(u32::MAX)), "{row}");
            }
            "nvmlDeviceGetAttributes_v2" => assert_eq!(row["total"], total & !(MIB - 1), "{row}"),
            "cuDeviceTotalMem_v2"
            | "cudaGetDeviceProperties"
            | "cudaGetDeviceProperties_v2"
            | "clGetDeviceInfo" => {
                assert_eq!(row["total"], total, "{row}");
            }
            "/proc/meminfo" => {
                assert_eq!(row["total"], total & !1023, "{row}");
                assert!(row["free"].as_u64().unwrap() <= free, "{row}");
            }
            "cuDeviceGetAttribute" | "cudaDeviceGetAttribute" => {}
            _ => {
                let numbers = [&row["total"], &row["free"], &row["used"]];
                assert_eq!(
                    numbers,
                    [&json!(total), &json!(free), &json!(total - free)],
                    "{row}"
                );
                assert!(matches!(row["reserved"].as_u64(), None | Some(0)), "{row}");
            }
        }
        if let Some(integrated) = row["integrated"].as_bool() {
            assert_eq!(integrated, device.integrated && !slice.discrete, "{row}");
        }
    }
}

fn agree(scenario: &str, devices: &[&Device], newest_cudart: u32) {
    for faults in ["", "procaddress-private"] {
        let machine = Machine::new(scenario);
        for slice in slices(&machine, devices) {
            let what = format!("{scenario} {:?} faults {faults:?}", slice.options);
            let run = check(&machine, &["--sim", scenario]).args(&slice.options);
            let said = Said::new(run.env("GPUSLICE_SIM_FAULTS", faults).answer());
            assert_eq!(said.disagreements(), Vec::<&str>::new(), "{what}");
            assert_eq!(said.json["consistent"], true, "{what}");
            assert_eq!(said.answer.end, "exit 0", "{what}");
            for device in devices {
                println!("{what} {}", device.uuid);
                one_truth(&said, device, &slice, newest_cudart);
            }
            let skipped = said.json["skipped"].as_array().unwrap();
            let unexpected = skipped.iter().find(|row| {
                // A runtime that is newer than the machine's driver, and programs that read the host's
                // meminfo.
                let newer = newest_cudart != 13 && row["route"] == "cudart-13";
                let shares = devices.iter().any(|it| it.integrated) && !slice.discrete;
                !(newer || shares && row["route"] == "meminfo-syscall")
            });
            assert_eq!(unexpected, None, "{what}");
            assert_eq!(said.json["shim"], place::shim().to_str().unwrap(), "{what}");
        }
    }
}

#[test]
fn an_rtx_3090_has_one_truth() {
    agree("rtx3090", &[&RTX3090], 13);
}

#[test]
fn two_h200s_have_one_truth_each() {
    agree("2xh200", &[&H200, &SECOND_H200], 13);
}

#[test]
fn mig_instances_have_one_truth_each() {
    agree("h200-mig", &INSTANCES.each_ref(), 13);
}

#[test]
fn a_gb10_has_one_truth() {
    agree("gb10", &[&GB10], 13);
}

/// The other GB10 of the public record: its NVML reports the same memory as CUDA.
#[test]
fn a_gb10_whose_nvml_answers_has_one_truth() {
    agree("gb10-nvml-answers", &[&GB10], 13);
}

#[test]
fn an_orin_has_one_truth() {
    agree("orin", &[&ORIN], 12);
}

#[test]
fn a_thor_has_one_truth() {
    agree("thor", &[&THOR], 13);
}

#[test]
fn an_n1x_has_one_truth() {
    agree("n1x", &[&N1X], 13);
}

#[test]
fn two_kinds_of_cards_have_one_truth_each() {
    agree("rtx3090+h200", &[&RTX3090, &H200], 13);
}

fn bare(scenario: &str) -> Said {
    let machine = Machine::new(scenario);
    Said::new(check(&machine, &["--sim", scenario, "--bare"]).answer())
}

#[test]
fn a_bare_discrete_card_is_consistent_once_nvmls_reserve_is_taken_out() {
    for scenario in ["rtx3090", "2xh200", "h200-mig", "rtx3090+h200"] {
        let said = bare(scenario);
        assert_eq!(said.disagreements(), Vec::<&str>::new(), "{scenario}");
        assert_eq!(said.answer.end, "exit 0", "{scenario}");
        let notes = said.json["notes"].to_string();
        assert!(
            notes.contains("as reserved, which CUDA leaves out"),
            "{notes}"
        );
    }
}

#[test]
fn bare_unified_memory_is_inconsistent_and_both_sides_are_named() {
    const BY_NVML: &str = "nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo_v2 say";
    const BY_CUDA: &str = "cuMemGetInfo_v2, cuMemGetInfo, cuDeviceTotalMem_v2, cuDeviceTotalMem, \
                           cudaMemGetInfo, cudaGetDeviceProperties, cudaGetDeviceProperties_v2 say";
    for (scenario, device, nvml, cuda) in [
        (
            "gb10",
            &GB10,
            "NVML_ERROR_NOT_SUPPORTED",
            "121.69 GiB total, 103.00 GiB free, 18.69 GiB used",
        ),
        (
            "orin",
            &ORIN,
            "NVML_ERROR_NOT_SUPPORTED",
            "61.37 GiB total, 53.82 GiB free, 7.54 GiB used",
        ),
        (
            "thor",
            &THOR,
            "0 B total, 0 B free, 0 B used",
            "122.83 GiB total, 109.76 GiB free, 13.07 GiB used",
        ),
        (
            "n1x",
            &N1X,
            "7.94 GiB total, 7.74 GiB free, 199.00 MiB used",
            "121.69 GiB total, 97.75 GiB free, 23.94 GiB used",
        ),
    ] {
        let said = bare(scenario);
        let pair = format!("{}: {BY_NVML} {nvml}; {BY_CUDA} {cuda}", device.uuid);
        assert_eq!(said.disagreements(), [pair.as_str()], "{scenario}");
        assert_eq!(said.json["consistent"], false, "{scenario}");
        assert_eq!(said.answer.end, "exit 1", "{scenario}");
    }
}
