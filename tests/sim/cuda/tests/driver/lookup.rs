//! Names: the exports, and the answers of cuGetProcAddress to a name, a version and flags.

use crate::probe::{Probe, Sim, built};
use std::collections::BTreeSet;
use std::process::Command;

fn rows(text: &'static str) -> Vec<Vec<&'static str>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').collect())
        .collect()
}

fn names() -> Vec<Vec<&'static str>> {
    rows(include_str!("../../names.txt"))
}

fn nvml_names() -> Vec<&'static str> {
    let rows = rows(include_str!("../../../nvml/names.txt"));
    rows.into_iter().map(|row| row[0]).collect()
}

fn exported(library: &str) -> BTreeSet<String> {
    let out = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(built().join(library))
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines()
        .filter_map(|line| line.split(' ').next_back())
        .map(str::to_owned)
        .collect()
}

/// The code, the status, and whether the address is the exported one of `export`.
fn ask(
    process: &mut Probe,
    name: &str,
    version: u32,
    flags: u32,
    export: &str,
) -> (i32, u64, bool) {
    process.ok("put found 8:0");
    let rc = process.call(&format!(
        "cuGetProcAddress_v2 \"{name}\" @found {version} {flags} @status"
    ));
    process.say(&format!("addr expected {export}"));
    (
        rc,
        process.show_at("status", 4, 0),
        process.show("found") == process.show("expected"),
    )
}

#[test]
fn exactly_the_vendors_names_are_exported() {
    let expected: BTreeSet<String> = names().iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(exported("libcuda.so.1"), expected);
    let nvml = nvml_names().into_iter().map(str::to_owned).collect();
    assert_eq!(exported("libnvidia-ml.so.1"), nvml);
}

#[test]
fn the_libraries_call_themselves_what_programs_ask_for() {
    for (library, soname) in [
        ("libcuda.so.1", "libcuda.so.1"),
        ("libnvidia-ml.so.1", "libnvidia-ml.so.1"),
        ("libcudart.so.11.0", "libcudart.so.11.0"),
        ("libcudart.so.12", "libcudart.so.12"),
        ("libcudart.so.13", "libcudart.so.13"),
    ] {
        let out = Command::new("readelf")
            .arg("-d")
            .arg(built().join(library))
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.contains(&format!("soname: [{soname}]")), "{text}");
        assert!(text.contains("SYMBOLIC"), "{text}");
    }
}

#[test]
fn every_name_is_found_at_its_version_and_is_the_exported_function() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process();
    for row in names() {
        let [export, base, version, twin] = row[..] else {
            panic!("{row:?}")
        };
        let version: u32 = version.parse().unwrap();
        if version > 13_000 || base == "-" {
            continue;
        }
        let flags = if twin == "-" { 0 } else { 2 };
        assert_eq!(
            ask(&mut process, base, version, flags, export),
            (0, 0, true),
            "{row:?}"
        );
    }
}

#[test]
fn the_version_chooses_the_abi() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process();
    for (name, version, export) in [
        ("cuMemGetInfo", 2000, "cuMemGetInfo"),
        ("cuMemGetInfo", 3019, "cuMemGetInfo"),
        ("cuMemGetInfo", 3020, "cuMemGetInfo_v2"),
        ("cuMemGetInfo", 13_000, "cuMemGetInfo_v2"),
        ("cuCtxCreate", 11_030, "cuCtxCreate_v2"),
        ("cuCtxCreate", 11_040, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12_050, "cuCtxCreate_v4"),
        ("cuMemHostRegister", 6040, "cuMemHostRegister"),
        ("cuMemHostRegister", 6050, "cuMemHostRegister_v2"),
        ("cuGetProcAddress", 11_030, "cuGetProcAddress"),
        ("cuGetProcAddress", 12_000, "cuGetProcAddress_v2"),
    ] {
        assert_eq!(
            ask(&mut process, name, version, 0, export),
            (0, 0, true),
            "{name} {version}"
        );
        assert_eq!(
            ask(&mut process, name, version, 1, export),
            (0, 0, true),
            "{name} {version}, legacy stream"
        );
    }
}

#[test]
fn per_thread_streams_choose_twins_where_there_are_any() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process();
    assert_eq!(
        ask(
            &mut process,
            "cuMemAllocAsync",
            12_000,
            2,
            "cuMemAllocAsync_ptsz"
        ),
        (0, 0, true)
    );
    assert_eq!(
        ask(
            &mut process,
            "cuMemcpyHtoD",
            12_000,
            2,
            "cuMemcpyHtoD_v2_ptds"
        ),
        (0, 0, true)
    );
    assert_eq!(
        ask(&mut process, "cuMemGetInfo", 12_000, 2, "cuMemGetInfo_v2"),
        (0, 0, true)
    );
    assert_eq!(
        ask(
            &mut process,
            "cuGetProcAddress",
            12_000,
            2,
            "cuGetProcAddress_v2"
        ),
        (0, 0, true),
        "the twin of the look-up itself is exported and never given out"
    );
    assert_eq!(
        ask(&mut process, "cuMemcpyHtoD", 6050, 2, "none"),
        (0, 2, true),
        "the twin is newer than the caller, and nothing stands in for it"
    );
}

#[test]
fn unknown_and_too_new_are_told_apart() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process();
    assert_eq!(
        ask(&mut process, "cuNoSuchThing", 13_000, 0, "none"),
        (0, 1, true)
    );
    assert_eq!(
        ask(&mut process, "cuMemGetInfo_v2", 13_000, 0, "none"),
        (0, 1, true),
        "base names only"
    );
    assert_eq!(
        ask(&mut process, "cuMemAllocAsync", 11_010, 0, "none"),
        (0, 2, true)
    );
    assert_eq!(ask(&mut process, "", 0, 0, "none"), (0, 1, true));
    assert_eq!(
        process.call("cuGetProcAddress \"cuNoSuchThing\" @found 13000 0"),
        500
    );
    process.ok("put found 8:77");
    assert_eq!(
        process.call("cuGetProcAddress \"cuNoSuchThing\" @found 13000 0"),
        500
    );
    assert_eq!(process.show_at("found", 8, 0), 77, "left as it was");
    assert_eq!(
        process.call("cuGetProcAddress \"cuInit\" @found 13000 8"),
        1
    );
}

#[test]
fn addresses_may_be_the_drivers_own() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process_with(&[(
        "GPUSLICE_SIM_FAULTS",
        "procaddress-private,missing:cuMemAlloc_v2",
    )]);
    let (rc, _, same) = ask(&mut process, "cuMemGetInfo", 12_000, 0, "cuMemGetInfo_v2");
    assert_eq!((rc, same), (0, false));
    assert_eq!(
        ask(&mut process, "cuMemAlloc", 12_000, 0, "cuMemAlloc").0,
        0,
        "the 32-bit function is left"
    );
}

#[test]
fn a_version_is_unsigned() {
    let sim = Sim::new("rtx3090");
    let mut process = sim.process();
    for version in [99_999, u32::MAX] {
        assert_eq!(
            ask(&mut process, "cuMemGetInfo", version, 0, "cuMemGetInfo_v2"),
            (0, 0, true)
        );
    }
}

#[test]
fn no_function_crashes_on_nothing() {
    let cuda = names().into_iter().map(|row| row[0]);
    let nvml = nvml_names().into_iter();
    for scenario in ["rtx3090", "h200-mig", "orin"] {
        let sim = Sim::new(scenario);
        let mut process = sim.process_with_context();
        process.nvml(0);
        for name in cuda
            .clone()
            .chain(nvml.clone())
            .filter(|name| !name.contains("Shutdown") && !name.starts_with("cuGetProcAddress"))
        {
            let takes_a_device = name.starts_with("nvmlDevice")
                && !["GetCount", "GetHandleBy"]
                    .iter()
                    .any(|other| name.contains(other));
            let device = if takes_a_device { "$gpu" } else { "0" };
            let answer = process.say(&format!("{name} {device} 0 0 0 0 0"));
            assert!(
                answer.parse::<i32>().is_ok(),
                "{scenario}: {name}: {answer:?}"
            );
        }
    }
}
