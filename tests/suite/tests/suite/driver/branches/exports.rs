//! The names that each branch exports, as `nm`, `dlsym` and the loader see them.

use gpuslice_suite::compile::{c, compile};
use gpuslice_suite::place::{shim, sim, sim_branch, target, workspace};
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARIES: [(&str, &str); 2] = [("libcuda.so.1", "cu"), ("libnvidia-ml.so.1", "nvml")];
/// The branches whose exports were recorded from NVIDIA's own libraries.
const RECORDED: [&str; 2] = ["535", "550"];

/// The names that a library exports.
fn exported(library: &Path) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    let out = nm.args(["-D", "--defined-only"]).arg(library).output();
    let text = String::from_utf8(out.unwrap().stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next_back());
    let names = names.filter_map(|name| name.split('@').next());
    names.map(str::to_owned).collect()
}

/// The exports of the preload library whose names begin with the prefix of one vendor library.
fn hooked(prefix: &str) -> BTreeSet<String> {
    let of_it = |name: &String| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
    };
    exported(&shim()).into_iter().filter(of_it).collect()
}

/// The names that a real library of a branch exports, by `tests/sim/recorded/exports-BRANCH.txt`.
fn recorded(branch: &str, library: &str) -> BTreeSet<String> {
    let file = workspace().join(format!("tests/sim/recorded/exports-{branch}.txt"));
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let names = lines.filter(|(of, _)| *of == library);
    names.map(|(_, name)| name.to_owned()).collect()
}

#[test]
fn a_simulated_branch_exports_only_what_the_real_one_does() {
    for branch in RECORDED {
        for (library, prefix) in LIBRARIES {
            let real = recorded(branch, library);
            let simulated = exported(&sim_branch(branch).join(library));
            assert!(simulated.len() > 300, "{}", simulated.len());
            let newer: Vec<_> = simulated.difference(&real).collect();
            assert_eq!(newer, Vec::<&String>::new(), "{branch}: {library}");
            // The simulated library has every real function that the preload library intercepts.
            let of_both: Vec<_> = hooked(prefix).intersection(&real).cloned().collect();
            let missing = of_both.iter().find(|name| !simulated.contains(*name));
            assert_eq!(missing, None, "{branch}: {library}");
            assert!(prefix == "nvml" || of_both.len() > 80, "{of_both:?}");
        }
    }
}

#[test]
fn each_branch_adds_the_functions_of_its_headers() {
    let branches = ["535", "550", "580", "615"];
    for (library, added) in [
        (
            "libcuda.so.1",
            [
                "cuGreenCtxCreate",
                "cuMemcpyBatchAsync_v2",
                "cuCheckpointOperationComplete",
            ],
        ),
        (
            "libnvidia-ml.so.1",
            [
                "nvmlDeviceGetPciInfoExt",
                "nvmlDeviceGetAddressingMode",
                "nvmlDeviceSetMemoryLimits_v1",
            ],
        ),
    ] {
        let exports = branches.map(|branch| exported(&sim_branch(branch).join(library)));
        for (pair, name) in exports.windows(2).zip(added) {
            assert!(pair[0].is_subset(&pair[1]), "{library}");
            assert!(!pair[0].contains(name) && pair[1].contains(name), "{name}");
        }
        // Scenarios without a branch use libraries that have every export of the newest branch.
        assert!(exports[3].is_subset(&exported(&sim().join(library))));
    }
}

#[test]
fn the_recorded_exports_are_those_of_nvidias_libraries() {
    let folder = target().join("nvidia");
    let script = workspace().join("tests/clients/nvidia.sh");
    let fetched = Command::new(script).arg(&folder).status();
    if !fetched.is_ok_and(|status| status.success()) {
        eprintln!("not compared: NVIDIA's libraries cannot be had on this machine");
        return;
    }
    for branch in RECORDED {
        for (library, _) in LIBRARIES {
            let names = recorded(branch, library);
            assert_eq!(
                exported(&folder.join(branch).join(library)),
                names,
                "{branch}"
            );
            // The library for Arm exports the same names, and one function of Tegra.
            let arm = exported(&folder.join(format!("{branch}-arm64")).join(library));
            let more: Vec<_> = arm.symmetric_difference(&names).collect();
            let tegra: &[&str] = match library {
                "libcuda.so.1" => &["cuEventCreateFromEGLSync"],
                _ => &[],
            };
            assert_eq!(more, tegra, "{branch}-arm64: {library}");
        }
    }
}

/// A program on a machine: bare, preloaded, and in a slice.
fn three_ways(scenario: &str, program: &Path) -> [(String, String); 3] {
    [0, 1, 2].map(|way| {
        let machine = Machine::new(scenario);
        let mut run = machine.place(Run::new(program).env("LD_BIND_NOW", "1"));
        if way > 0 {
            run = run.with_shim();
        }
        if way > 1 {
            run = run.slice(&of_all_devices(machine.folder(), 8 * GIB, &machine.state()));
        }
        let answer = run.answer();
        (answer.end, answer.stdout + &answer.stderr)
    })
}

fn linked_newer(name: &str, words: &[&str]) -> PathBuf {
    let words = [&["-L{sim}", "-l:libcuda.so.1"], words].concat();
    compile("cc", "c/linked_newer.c", name, &words)
}

#[test]
fn a_program_linked_to_a_newer_function_does_not_start() {
    let program = linked_newer("linked-newer-other", &["-DOTHER"]);
    for (end, said) in three_ways("rtx3090@535", &program) {
        assert_eq!(end, "exit 127");
        let wanted = "undefined symbol: cuGreenCtxRecordEvent";
        assert!(said.contains(wanted), "{said}");
    }
    for (end, said) in three_ways("rtx3090@550", &program) {
        assert_eq!((&*end, &*said), ("exit 0", "801\n"));
    }
}

/// A documented limit: the program starts although the driver lacks the function, because the
/// library exports the name as well.
#[test]
fn a_program_linked_to_a_newer_intercepted_function_is_told_302() {
    let program = linked_newer("linked-newer-ours", &[]);
    let [bare, preloaded, sliced] = three_ways("rtx3090@535", &program);
    assert_eq!(bare.0, "exit 127", "{bare:?}");
    for answer in [preloaded, sliced] {
        assert_eq!(answer, ("exit 0".to_owned(), "302\n".to_owned()));
    }
    let [bare, preloaded, sliced] = three_ways("rtx3090@550", &program);
    assert_eq!(bare.0, "exit 0");
    assert_eq!((&bare, &bare), (&preloaded, &sliced));
}

#[test]
fn dlsym_finds_no_hooked_function_that_the_branch_lacks() {
    let lookups = c("driver_lookups");
    let names: String = hooked("cu")
        .iter()
        .map(|name| format!("{name}\n"))
        .collect();
    for branch in RECORDED {
        let machine = Machine::new(&format!("rtx3090@{branch}"));
        let list = machine.folder().join("names");
        std::fs::write(&list, &names).unwrap();
        let run = Run::new("/bin/sh").args(["-c", "exec \"$0\" libcuda.so.1 <\"$1\""]);
        let run = machine.place(run.arg(&lookups).arg(&list)).with_shim();
        let slice = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
        let said = run.slice(&slice).answer().clean();
        let exports = recorded(branch, "libcuda.so.1");
        let mut absent = 0;
        for line in said.lines() {
            let Some((name, found)) = line.split_once(" dlsym ") else {
                continue;
            };
            let expected = match exports.contains(name) {
                true => format!("own:{name}"),
                false => "-".to_owned(),
            };
            absent += usize::from(found == "-");
            assert_eq!(found, expected, "{branch}: {name}");
        }
        assert!(absent > 5, "{branch}: {absent}");
    }
}

/// `gpuslice --sim` starts programs on the libraries of the branch that the machine names.
#[test]
fn a_simulated_machine_of_a_branch_has_the_libraries_of_the_branch() {
    let machine = Machine::new("rtx3090");
    let run = Run::new(gpuslice_suite::place::gpuslice());
    let run = run.args(["run", "--sim", "rtx3090@550", "--memory", "8GiB", "--"]);
    let program = linked_newer("linked-newer-other", &["-DOTHER"]);
    let run = run.env("GPUSLICE_SIM_STATE", machine.state());
    let started = run.arg(&program).answer();
    assert_eq!((&*started.stdout, &*started.end), ("801\n", "exit 0"));

    let machine = Machine::new("rtx3090");
    let run = Run::new(gpuslice_suite::place::gpuslice());
    let run = run.args([
        "driver-limit",
        "--sim",
        "rtx3090@580",
        "--cgroup",
        "/sys/fs/cgroup",
    ]);
    let uuid = "GPU-3090aaaa-1111-4222-8333-444455550000";
    let run = run.args(["--device", uuid, "--memory", "6GiB"]);
    let answer = run.env("GPUSLICE_SIM_STATE", machine.state()).answer();
    let why = "gpuslice: the driver has no limits per cgroup (libnvidia-ml.so.1 has no \
               nvmlDeviceSetMemoryLimits_v1): the library alone enforces the slice\n";
    assert_eq!((&*answer.stderr, &*answer.end), (why, "exit 3"));
}
