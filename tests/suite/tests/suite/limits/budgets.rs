//! The device settings of a slice file: a budget for each device, by uuid; headroom; the device's
//! own total. Devices that the file does not name are left alone.
//! Touches: the programs linked with -lcuda and -lnvidia-ml.

use gpuslice_suite::compile::{linked_cuda, linked_nvml};
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::write;
use std::path::PathBuf;

/// The program that queries CUDA, and the program that queries NVML.
fn programs() -> [PathBuf; 2] {
    [linked_cuda(), linked_nvml()]
}

/// The output of both programs in the slice that `slice` describes. `{meminfo}` in it stands for
/// the path of the host's meminfo.
fn in_slice(scenario: &str, slice: &str) -> String {
    let said = programs().map(|program| {
        let machine = Machine::new(scenario);
        let file = machine.folder().join("slice.json");
        let meminfo = machine.state().join("meminfo");
        write(
            &file,
            slice
                .replace("{meminfo}", &meminfo.display().to_string())
                .as_bytes(),
        );
        let run = machine.place(Run::new(program)).with_shim().slice(&file);
        run.answer().clean()
    });
    said.concat()
}

/// The output of both programs in a slice that `gpuslice run` makes.
fn by_gpuslice_run(scenario: &str, options: &[&str]) -> String {
    let said = programs().map(|program| run(scenario, options, program).answer().clean());
    said.concat()
}

fn run(scenario: &str, options: &[&str], program: PathBuf) -> Run {
    let run = Run::new(place::gpuslice()).args(["run", "--sim", scenario]);
    run.args(options).arg("--").arg(program)
}

const EACH_ITS_OWN: &str = "\
cuda 200aaaaa-2222-4333-8444-555566660000 device total=8589934592
cuda 200aaaaa-2222-4333-8444-555566660000 context total=8589934592 free=8044675072
cuda 200aaaaa-2222-4333-8444-555566660000 holding total=8589934592 free=7776239616
cuda 200aaaaa-2222-4333-8444-555566660000 freed total=8589934592 free=8044675072
cuda 200aaaaa-2222-4333-8444-555566660001 device total=17179869184
cuda 200aaaaa-2222-4333-8444-555566660001 context total=17179869184 free=16634609664
cuda 200aaaaa-2222-4333-8444-555566660001 holding total=17179869184 free=16366174208
cuda 200aaaaa-2222-4333-8444-555566660001 freed total=17179869184 free=16634609664
nvml GPU-200aaaaa-2222-4333-8444-555566660000 v1 total=8589934592 free=8589934592 used=0
nvml GPU-200aaaaa-2222-4333-8444-555566660000 v2 total=8589934592 reserved=0 free=8589934592 used=0
nvml GPU-200aaaaa-2222-4333-8444-555566660001 v1 total=17179869184 free=17179869184 used=0
nvml GPU-200aaaaa-2222-4333-8444-555566660001 v2 total=17179869184 reserved=0 free=17179869184 used=0
";

#[test]
fn each_device_has_its_own_budget() {
    let slice = r#"{"version":1,"devices":[
        {"uuid":"GPU-200aaaaa-2222-4333-8444-555566660001","memory":17179869184},
        {"uuid":"GPU-200aaaaa-2222-4333-8444-555566660000","memory":8589934592}]}"#;
    assert_eq!(in_slice("2xh200", slice), EACH_ITS_OWN);
    let options = ["--device", "0=8GiB", "--device", "1=16GiB"];
    assert_eq!(by_gpuslice_run("2xh200", &options), EACH_ITS_OWN);
    let second = "GPU-200aaaaa-2222-4333-8444-555566660001=16GiB";
    let options = ["--memory", "8GiB", "--device", second];
    assert_eq!(by_gpuslice_run("2xh200", &options), EACH_ITS_OWN);
}

#[test]
fn a_device_that_the_slice_does_not_name_is_left_alone() {
    let slice = r#"{"version":1,"devices":[
        {"uuid":"GPU-3090aaaa-1111-4222-8333-444455550000","memory":8589934592}]}"#;
    let expected = "\
cuda 3090aaaa-1111-4222-8333-444455550000 device total=8589934592
cuda 3090aaaa-1111-4222-8333-444455550000 context total=8589934592 free=8323596288
cuda 3090aaaa-1111-4222-8333-444455550000 holding total=8589934592 free=8055160832
cuda 3090aaaa-1111-4222-8333-444455550000 freed total=8589934592 free=8323596288
cuda 200aaaaa-2222-4333-8444-555566660000 device total=150119383040
cuda 200aaaaa-2222-4333-8444-555566660000 context total=150119383040 free=149574123520
cuda 200aaaaa-2222-4333-8444-555566660000 holding total=150119383040 free=149305688064
cuda 200aaaaa-2222-4333-8444-555566660000 freed total=150119383040 free=149574123520
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v1 total=8589934592 free=8589934592 used=0
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v2 total=8589934592 reserved=0 free=8589934592 used=0
nvml GPU-200aaaaa-2222-4333-8444-555566660000 v1 total=150754820096 free=150119383040 used=635437056
nvml GPU-200aaaaa-2222-4333-8444-555566660000 v2 total=150754820096 reserved=635437056 free=150119383040 used=0
";
    assert_eq!(in_slice("rtx3090+h200", slice), expected);
    let gap = "gpuslice: warning: the program sees GPU 0 and GPU 1, and the slice does not limit GPU 1; \
               CUDA_VISIBLE_DEVICES=0 hides it (--strict refuses to start it)\n";
    let said = programs().map(|program| {
        let answer = run("rtx3090+h200", &["--device", "0=8GiB"], program).answer();
        assert_eq!(
            (answer.stderr.as_str(), answer.end.as_str()),
            (gap, "exit 0")
        );
        answer.stdout
    });
    assert_eq!(said.concat(), expected);
}

#[test]
fn headroom_is_shown_by_nobody_and_used_by_nobody() {
    let slice = r#"{"version":1,"memory":8589934592,"headroom":536870912}"#;
    let expected = "\
cuda 3090aaaa-1111-4222-8333-444455550000 device total=8053063680
cuda 3090aaaa-1111-4222-8333-444455550000 context total=8053063680 free=7786725376
cuda 3090aaaa-1111-4222-8333-444455550000 holding total=8053063680 free=7518289920
cuda 3090aaaa-1111-4222-8333-444455550000 freed total=8053063680 free=7786725376
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v1 total=8053063680 free=8053063680 used=0
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v2 total=8053063680 reserved=0 free=8053063680 used=0
";
    assert_eq!(in_slice("rtx3090", slice), expected);
    let options = ["--memory", "8GiB", "--headroom", "512MiB"];
    assert_eq!(by_gpuslice_run("rtx3090", &options), expected);
}

#[test]
fn the_devices_own_total_counts_what_others_may_hold_as_used() {
    let slice = r#"{"version":1,"memory":8589934592,"total":"device"}"#;
    let expected = "\
cuda 3090aaaa-1111-4222-8333-444455550000 device total=25438126080
cuda 3090aaaa-1111-4222-8333-444455550000 context total=25438126080 free=8323596288
cuda 3090aaaa-1111-4222-8333-444455550000 holding total=25438126080 free=8055160832
cuda 3090aaaa-1111-4222-8333-444455550000 freed total=25438126080 free=8323596288
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v1 total=25438126080 free=8589934592 used=16848191488
nvml GPU-3090aaaa-1111-4222-8333-444455550000 v2 total=25438126080 reserved=0 free=8589934592 used=16848191488
";
    assert_eq!(in_slice("rtx3090", slice), expected);
    let options = ["--memory", "8GiB", "--total", "device"];
    assert_eq!(by_gpuslice_run("rtx3090", &options), expected);
}

#[test]
fn the_devices_own_total_on_unified_memory_is_the_hosts() {
    let slice = r#"{"version":1,"total":"device","meminfo":"{meminfo}","devices":[
        {"uuid":"GPU-b10aaaaa-4444-4555-8666-777788880000","memory":42949672960,"integrated":true}]}"#;
    let expected = "\
cuda b10aaaaa-4444-4555-8666-777788880000 device total=130663165952
cuda b10aaaaa-4444-4555-8666-777788880000 context total=130663165952 free=36196311040
cuda b10aaaaa-4444-4555-8666-777788880000 holding total=130663165952 free=35927875584
cuda b10aaaaa-4444-4555-8666-777788880000 freed total=130663165952 free=36196311040
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v1 total=130663165952 free=36464746496 used=94198419456
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v2 total=130663165952 reserved=0 free=36464746496 used=94198419456
";
    assert_eq!(in_slice("gb10", slice), expected);
    let options = ["--memory", "40GiB", "--total", "device"];
    // With the ledger of `gpuslice run`, only memory that the slice itself holds is not free.
    let counted = "\
cuda b10aaaaa-4444-4555-8666-777788880000 device total=130663165952
cuda b10aaaaa-4444-4555-8666-777788880000 context total=130663165952 free=42681237504
cuda b10aaaaa-4444-4555-8666-777788880000 holding total=130663165952 free=42412802048
cuda b10aaaaa-4444-4555-8666-777788880000 freed total=130663165952 free=42681237504
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v1 total=130663165952 free=42949672960 used=87713492992
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v2 total=130663165952 reserved=0 free=42949672960 used=87713492992
";
    assert_eq!(by_gpuslice_run("gb10", &options), counted);
}

#[test]
fn a_host_that_keeps_more_for_itself_leaves_less_free() {
    // The host has 115.65 GiB available, and keeps 100 GiB.
    let slice = r#"{"version":1,"reserve":107374182400,"meminfo":"{meminfo}","devices":[
        {"uuid":"GPU-b10aaaaa-4444-4555-8666-777788880000","memory":42949672960,"integrated":true}]}"#;
    let expected = "\
cuda b10aaaaa-4444-4555-8666-777788880000 device total=42949672960
cuda b10aaaaa-4444-4555-8666-777788880000 context total=42949672960 free=16535621632
cuda b10aaaaa-4444-4555-8666-777788880000 holding total=42949672960 free=16267186176
cuda b10aaaaa-4444-4555-8666-777788880000 freed total=42949672960 free=16535621632
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v1 total=42949672960 free=16804057088 used=26145615872
nvml GPU-b10aaaaa-4444-4555-8666-777788880000 v2 total=42949672960 reserved=0 free=16804057088 used=26145615872
";
    assert_eq!(in_slice("gb10", slice), expected);
    let options = ["--memory", "40GiB", "--reserve", "100GiB"];
    // The host can promise less than the slice's 40 GiB. The run starts only because of this
    // option, and warns.
    let options = [&options[..], &["--overcommit"]].concat();
    let said = programs().map(|program| {
        let answer = run("gb10", &options, program).answer();
        let warned = answer.stderr.contains("which can promise 15.65 GiB");
        assert!(warned && answer.end == "exit 0", "{answer:?}");
        answer.stdout
    });
    assert_eq!(said.concat(), expected);
}

#[test]
fn one_mig_instance_can_be_sliced_and_the_others_are_left_alone() {
    let slice = r#"{"version":1,"devices":[
        {"uuid":"MIG-b2222222-3333-5444-8555-666677770000","memory":4294967296}]}"#;
    let expected = "\
cuda a1111111-3333-5444-8555-666677770000 device total=74763468800
cuda a1111111-3333-5444-8555-666677770000 context total=74763468800 free=74448896000
cuda a1111111-3333-5444-8555-666677770000 holding total=74763468800 free=74180460544
cuda a1111111-3333-5444-8555-666677770000 freed total=74763468800 free=74448896000
nvml GPU-200aaaaa-2222-4333-8444-777788880000 v1 total=150754820096 free=150119383040 used=635437056
nvml GPU-200aaaaa-2222-4333-8444-777788880000 v2 total=150754820096 reserved=635437056 free=150119383040 used=0
nvml MIG-a1111111-3333-5444-8555-666677770000 v1 total=74893492224 free=74763468800 used=130023424
nvml MIG-a1111111-3333-5444-8555-666677770000 v2 total=74893492224 reserved=130023424 free=74763468800 used=0
nvml MIG-a1111111-3333-5444-8555-666677770000 memorySizeMB=71424
nvml MIG-b2222222-3333-5444-8555-666677770000 v1 total=4294967296 free=4294967296 used=0
nvml MIG-b2222222-3333-5444-8555-666677770000 v2 total=4294967296 reserved=0 free=4294967296 used=0
nvml MIG-b2222222-3333-5444-8555-666677770000 memorySizeMB=4096
nvml MIG-c3333333-3333-5444-8555-666677770000 v1 total=17179869184 free=17127440384 used=52428800
nvml MIG-c3333333-3333-5444-8555-666677770000 v2 total=17179869184 reserved=52428800 free=17127440384 used=0
nvml MIG-c3333333-3333-5444-8555-666677770000 memorySizeMB=16384
";
    assert_eq!(in_slice("h200-mig", slice), expected);
}
