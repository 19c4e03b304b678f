//! The stand-in runtimes, dynamic and static.

use crate::probe::{GIB, MIB, Sim, built, compile};
use std::path::{Path, PathBuf};
use std::process::Command;

fn program(name: &str, flags: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let to = built().join(name);
    compile(&here.join("tests/driver/runtime.c"), &to, flags);
    to
}

fn run(sim: &Sim, program: &Path, driver: &Path) -> String {
    let out = Command::new(program)
        .env(
            "LD_LIBRARY_PATH",
            format!("{}:{}", driver.display(), built().display()),
        )
        .env("GPUSLICE_SIM", "rtx3090")
        .env("GPUSLICE_SIM_STATE", sim.state.path())
        .output()
        .unwrap();
    String::from_utf8(out.stdout).unwrap()
}

fn expected(version: u32) -> String {
    let total = 25_438_126_080_u64;
    let free = total - 254 * MIB - GIB;
    format!("{version} 0 0 0 {free} {total} {total} 0 101 NVIDIA GeForce RTX 3090\n")
}

#[test]
fn every_runtime_says_what_the_driver_says() {
    let sim = Sim::new("rtx3090");
    for (version, library) in [
        (11, "libcudart.so.11.0"),
        (12, "libcudart.so.12"),
        (13, "libcudart.so.13"),
    ] {
        let path = built().join(library);
        let program = program(&format!("runtime{version}"), &[path.to_str().unwrap()]);
        assert_eq!(run(&sim, &program, built()), expected(version), "{library}");
    }
    let archive = built().join("libcudart_static.a");
    let program = program(
        "runtime-static",
        &[archive.to_str().unwrap(), "-ldl", "-lpthread"],
    );
    assert_eq!(run(&sim, &program, built()), expected(13), "static");
}

#[test]
fn a_runtime_newer_than_the_driver_says_so() {
    let sim = Sim::new("rtx3090");
    let path = built().join("libcudart.so.12");
    let program = program("runtime12-old", &[path.to_str().unwrap()]);
    // 35, insufficient driver: the driver is older than the runtime.
    let said = run(&sim, &program, &built().join("old"));
    assert!(said.starts_with("12 35 35 35 "), "{said}");
}
