//! The driver's libraries, the GPUs that a program sees, MPS and MIG.

use super::bench::{Bench, GPU, HERE, folder};
use std::fs;

const SLICED: [&str; 2] = ["--memory=8GiB", "--name=llama"];

fn waits() -> String {
    format!("{GPU}wait()\n")
}

/// A program of the slice, with these variables set.
fn with(variables: &str, program: &str) -> (Bench, super::bench::Running) {
    let bench = Bench::new();
    let script = format!("{variables} exec python3 -c \"$0\"");
    let running = bench.words(&SLICED, &["sh", "-c", &script, program]);
    (bench, running)
}

#[test]
fn two_folders_with_a_driver_on_the_library_path_are_named() {
    let folder = folder();
    let copy = folder.path().join("libcuda.so.1");
    fs::copy(HERE.folder.with_file_name("sim").join("libcuda.so.1"), copy).unwrap();
    let variables = format!(
        "LD_LIBRARY_PATH=$LD_LIBRARY_PATH:{}",
        folder.path().display()
    );
    let (bench, running) = with(&variables, &waits());
    let said = bench.about(&running);
    said.is_warned_of("driver-twice");
    assert!(said.text.contains("ld.so takes the first"), "{}", said.text);
}

#[test]
fn a_driver_that_is_loaded_twice_is_named_with_both_files() {
    let folder = folder();
    let copy = folder.path().join("libcuda.so.1");
    fs::copy(
        HERE.folder.with_file_name("sim").join("libcuda.so.1"),
        &copy,
    )
    .unwrap();
    let program = format!("{GPU}other = ctypes.CDLL('{}')\nwait()\n", copy.display());
    let (bench, running) = with("", &program);
    let said = bench.about(&running);
    said.is_warned_of("driver-twice");
    assert!(
        said.text.contains("has loaded libcuda.so twice"),
        "{}",
        said.text
    );
}

#[test]
fn the_toolkits_stub_in_the_drivers_place_is_named() {
    let folder = folder();
    let stubs = folder.path().join("stubs");
    fs::create_dir(&stubs).unwrap();
    let copy = stubs.join("libcuda.so.1");
    fs::copy(HERE.folder.with_file_name("sim").join("libcuda.so.1"), copy).unwrap();
    let variables = format!("LD_LIBRARY_PATH={}", stubs.display());
    let (bench, running) = with(&variables, &waits());
    bench.about(&running).is_warned_of("driver-stub");
}

#[test]
fn a_client_of_mps_is_named_with_its_variables() {
    let variables = "CUDA_MPS_PIPE_DIRECTORY=/tmp/mps CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4G";
    let (bench, running) = with(variables, &waits());
    let said = bench.about(&running);
    said.is_warned_of("mps");
    let named = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT and CUDA_MPS_PIPE_DIRECTORY";
    assert!(said.text.contains(named), "{}", said.text);
}

#[test]
fn a_program_that_sees_no_gpu_is_named_with_the_variable() {
    for value in ["", "-1", "NoDevFiles", "7"] {
        let (bench, running) = with(&format!("CUDA_VISIBLE_DEVICES={value}"), &waits());
        let said = bench.about(&running);
        said.is_warned_of("no-visible-gpu");
        let named = format!("CUDA_VISIBLE_DEVICES={value} ");
        assert!(said.text.contains(&named), "{}", said.text);
    }
}

#[test]
fn a_gpu_that_the_slice_does_not_limit_is_named() {
    let bench = Bench::of("2xh200");
    let options = ["--device=0=8GiB", "--name=llama"];
    let script = "CUDA_VISIBLE_DEVICES=1 exec python3 -c \"$0\"";
    let running = bench.words(&options, &["sh", "-c", script, &waits()]);
    bench.about(&running).is_broken_by("gpu-not-limited");
    // One of two GPUs is limited: the slice is in force, and does not hold on the other.
    let script = "exec python3 -c \"$0\"";
    let running = bench.words(&options, &["sh", "-c", script, &waits()]);
    let said = bench.about(&running);
    said.is_warned_of("gpu-not-limited");
    assert!(said.text.contains("does not limit GPU 1"), "{}", said.text);
}

#[test]
fn a_slice_of_a_gpu_that_mig_divides_is_the_cause() {
    let bench = Bench::of("h200-mig");
    let home = bench.machine.home.state.path();
    let mut devices = HERE.gpuslice();
    devices.args(["devices", "--sim=h200-mig", "--json"]);
    let (out, _, _) = crate::support::told(&mut devices);
    let list: serde_json::Value = serde_json::from_str(&out).unwrap();
    let uuid = list["devices"][0]["device"].as_str().unwrap();
    let (file, ledger) = (home.join("own.json"), home.join("ledger"));
    let text = format!(
        r#"{{"version": 1, "name": "own", "ledger": "{}",
            "devices": [{{"uuid": "{uuid}", "memory": 8589934592}}]}}"#,
        ledger.display()
    );
    // The card was divided after the run had started.
    let whole = format!(
        r#"{{"version": 1, "name": "own", "ledger": "{}", "memory": 8589934592}}"#,
        ledger.display()
    );
    fs::write(&file, whole).unwrap();
    let config = format!("--config={}", file.display());
    let script = format!(
        "echo '{}' >{}; unset GPUSLICE_SLICE; exec python3 -c \"$0\"",
        text.replace('\n', " "),
        file.display()
    );
    let running = bench.words(&[&config], &["sh", "-c", &script, &waits()]);
    let said = bench.about(&running);
    said.is_broken_by("mig-divided");
    assert!(said.text.contains("which MIG divides"), "{}", said.text);
}
