//! NVIDIA's own libcuda, NVML and nvidia-smi, 535 and 550, as Debian packages them: the simulator
//! answers every look-up as they do, and the library leaves all but its own functions alone.
//! Touches: `target/nvidia`, which `tests/clients/nvidia.sh` fills. Without a kernel driver these
//! libraries look up, link and refuse; they report no memory.

use gpuslice_suite::compile::{c, compile};
use gpuslice_suite::place::{real_cudart, shim, sim_branch, source, target, workspace};
use gpuslice_suite::run::{Answer, Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const BRANCHES: [&str; 2] = ["535", "550"];

/// The folder with NVIDIA's libraries, or `None` where they cannot be had: the recordings stand in
/// for them in the first test, and every other test says that it compared nothing.
fn nvidia() -> Option<PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = target().join("nvidia");
        let fetched = Command::new(source("nvidia.sh")).arg(&folder).status();
        fetched
            .is_ok_and(|status| status.success())
            .then_some(folder)
    });
    if folder.is_none() {
        eprintln!("not compared: NVIDIA's libraries cannot be had on this machine");
    }
    folder.clone()
}

/// The answers that were recorded of a branch.
fn recording(branch: &str) -> String {
    let file = workspace().join(format!("tests/sim/recorded/lookups-{branch}.txt"));
    std::fs::read_to_string(file).unwrap()
}

/// The names that a recording has asked for, in its order, one a line.
fn names(recording: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for line in recording.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let name = if name == "\"\"" { "" } else { name };
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names.join("\n") + "\n"
}

/// The first lines that differ, so that a failure can be read.
fn differences<'a>(left: &[&'a str], right: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let pairs = left.iter().zip(right).filter(|(left, right)| left != right);
    let mut first: Vec<_> = pairs.map(|(left, right)| (*left, *right)).take(5).collect();
    if left.len() != right.len() {
        first.push(("another number of lines", ""));
    }
    first
}

/// Runs `program` on a library, with `names` as its standard input.
fn run(program: &str, library: &Path, names: &str, machine: &Machine) -> Run {
    let list = machine.folder().join("names");
    std::fs::write(&list, names).unwrap();
    let folder = library.parent().unwrap();
    let run = Run::new("/bin/sh")
        .args(["-c", "exec \"$0\" \"$1\" <\"$2\""])
        .arg(c(program))
        .arg(library)
        .arg(list);
    machine.place(run).env("LD_LIBRARY_PATH", folder)
}

/// The answers of a driver's function look-ups, without the library.
fn look_ups(library: &Path, names: &str, scenario: &str) -> String {
    let machine = Machine::new(scenario);
    let answer = run("driver_lookups", library, names, &machine).answer();
    answer.clean()
}

/// The names that the preload library exports, of one vendor library's.
fn exported(prefix: &str) -> BTreeSet<String> {
    let mut nm = Command::new("nm");
    let out = nm
        .args(["-D", "--defined-only"])
        .arg(shim())
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split(' ').next_back());
    let names = names.filter(|name| name.starts_with(prefix));
    names.map(str::to_owned).collect()
}

#[test]
fn the_simulator_answers_every_look_up_as_the_recorded_driver() {
    for branch in BRANCHES {
        let recorded = recording(branch);
        let scenario = format!("rtx3090@{branch}");
        let library = sim_branch(branch).join("libcuda.so.1");
        let simulated = look_ups(&library, &names(&recorded), &scenario);
        let (left, right): (Vec<_>, Vec<_>) =
            (recorded.lines().collect(), simulated.lines().collect());
        assert!(left.len() > 2000, "{}", left.len());
        assert_eq!(
            differences(&left, &right),
            [],
            "{branch}: recorded, simulated"
        );
    }
}

#[test]
fn the_recordings_are_what_the_real_library_answers() {
    let Some(folder) = nvidia() else { return };
    for branch in BRANCHES {
        let recorded = recording(branch);
        let library = folder.join(branch).join("libcuda.so.1");
        let real = look_ups(&library, &names(&recorded), "rtx3090");
        let (left, right): (Vec<_>, Vec<_>) = (recorded.lines().collect(), real.lines().collect());
        assert_eq!(differences(&left, &right), [], "{branch}: recorded, real");
    }
}

/// The answers of these look-ups when the library replaces the functions that it exports.
fn with_stand_ins(bare: &str, ours: &BTreeSet<String>) -> String {
    let word = |word: &str| {
        let (before, name) = match word.rsplit_once('/') {
            Some((before, name)) => (format!("{before}/"), name),
            None => (String::new(), word),
        };
        let own = if ours.contains(name) { "own:" } else { "" };
        format!("{before}{own}{name}")
    };
    let line = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let rest: Vec<String> = words.map(word).collect();
        format!("{name} {}\n", rest.join(" "))
    };
    bare.lines().map(line).collect()
}

#[test]
fn every_look_up_of_a_hooked_function_on_the_real_library_is_ours() {
    let Some(folder) = nvidia() else { return };
    let ours = exported("cu");
    for branch in BRANCHES {
        let names = names(&recording(branch));
        let library = folder.join(branch).join("libcuda.so.1");
        let bare = look_ups(&library, &names, "rtx3090");
        let expected = with_stand_ins(&bare, &ours);
        let replaced = expected.matches("own:").count();
        assert!(replaced > 300, "{replaced} answers are ours");
        for sliced in [false, true] {
            let machine = Machine::new("rtx3090");
            let mut run = run("driver_lookups", &library, &names, &machine).with_shim();
            if sliced {
                run = run.slice(&of_all_devices(machine.folder(), 8 * GIB, &machine.state()));
            }
            let preloaded = run.answer().clean();
            let left: Vec<&str> = expected.lines().collect();
            let right: Vec<&str> = preloaded.lines().collect();
            assert_eq!(differences(&left, &right), [], "{branch}, sliced: {sliced}");
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn musl_loads_neither_cuda_nor_nvml() {
    let Some(folder) = nvidia() else { return };
    let program = compile("musl-gcc", "c/dlopens.c", "dlopens-musl", &[]);
    for branch in BRANCHES {
        for (library, missing) in [
            ("libcuda.so.1", "__register_atfork"),
            ("libnvidia-ml.so.1", "dlvsym"),
        ] {
            let said = Run::new(&program).arg(folder.join(branch).join(library));
            let said = said.answer().clean();
            let why = format!("{missing}: symbol not found");
            assert!(said.contains(&why), "{branch}: {said}");
        }
    }
}

/// The same program bare, preloaded and in a slice.
fn three_ways(run: impl Fn(&Machine) -> Run) -> [Answer; 3] {
    three_ways_on("rtx3090", run)
}

fn three_ways_on(scenario: &str, run: impl Fn(&Machine) -> Run) -> [Answer; 3] {
    [0, 1, 2].map(|way| {
        let machine = Machine::new(scenario);
        let mut run = run(&machine);
        if way > 0 {
            run = run.with_shim();
        }
        if way > 1 {
            run = run.slice(&of_all_devices(machine.folder(), 8 * GIB, &machine.state()));
        }
        run.answer()
    })
}

#[test]
fn without_a_device_every_hooked_function_refuses_as_the_driver_does() {
    let Some(folder) = nvidia() else { return };
    for branch in BRANCHES {
        for (library, prefix) in [("libcuda.so.1", "cu"), ("libnvidia-ml.so.1", "nvml")] {
            let library = folder.join(branch).join(library);
            // A page of zeros is no name and no version to look up; look-ups have a test above.
            let names: Vec<String> = exported(prefix)
                .into_iter()
                .filter(|name| !name.contains("GetProcAddress") && !name.starts_with("cuda"))
                .collect();
            assert!(names.len() > 10, "{names:?}");
            let names = names.join("\n") + "\n";
            let [bare, preloaded, sliced] =
                three_ways(|machine| run("without_device", &library, &names, machine));
            assert_eq!(bare.end, "exit 0", "{bare:?}");
            assert_eq!(bare, preloaded, "{branch}");
            assert_eq!(bare, sliced, "{branch}, in a slice");
        }
    }
}

/// `cuGetProcAddress` reads the name and writes the pointer without a look at either.
#[test]
fn null_names_and_pointers_crash_where_they_crash_in_the_driver() {
    let recorded = workspace().join("tests/sim/recorded/nulls.txt");
    let recorded = std::fs::read_to_string(recorded).unwrap();
    let lines: Vec<&str> = recorded.lines().collect();
    assert!(recorded.matches(" signal 11\n").count() > 20, "{recorded}");
    let simulated = ["535", "550", "580", "615"];
    let simulated = simulated.map(|branch| (sim_branch(branch), format!("rtx3090@{branch}")));
    let real = nvidia().map(|folder| BRANCHES.map(|branch| folder.join(branch)));
    let real = real.into_iter().flatten();
    let real = real.map(|folder| (folder, "rtx3090".to_owned()));
    for (folder, scenario) in simulated.into_iter().chain(real) {
        let library = folder.join("libcuda.so.1");
        let answers = three_ways_on(&scenario, |machine| {
            let run = machine.place(Run::new(c("driver_nulls")).arg(&library));
            run.env("LD_LIBRARY_PATH", &folder)
        });
        for (answer, way) in answers.into_iter().zip(["bare", "preloaded", "in a slice"]) {
            let said = answer.clean();
            let answers: Vec<&str> = said.lines().collect();
            let found = differences(&lines, &answers);
            assert_eq!(found, [], "{}, {way}: recorded, found", folder.display());
        }
    }
}

#[test]
fn the_real_runtimes_and_nvidia_smi_end_as_they_do_bare() {
    let Some(folder) = nvidia() else { return };
    for branch in BRANCHES {
        let folder = folder.join(branch);
        for version in ["11.8", "12.9", "13.5"] {
            let runtime = real_cudart(version);
            let names = "cudaGetDeviceCount\ncudaMemGetInfo\ncudaMalloc\n";
            let all = three_ways(|machine| {
                run("without_device", &runtime, names, machine).env("LD_LIBRARY_PATH", &folder)
            });
            let [bare, preloaded, sliced] = all;
            assert!(bare.stdout.starts_with("cudaGetDeviceCount: "), "{bare:?}");
            assert_eq!(bare, preloaded, "{branch}, libcudart {version}");
            assert_eq!(bare, sliced, "{branch}, libcudart {version}, in a slice");
        }
        let [bare, preloaded, sliced] =
            three_ways(|_| Run::new(folder.join("nvidia-smi")).env("LD_LIBRARY_PATH", &folder));
        assert_eq!(bare.end, "exit 9", "{bare:?}");
        assert!(bare.stdout.contains("NVIDIA-SMI has failed"), "{bare:?}");
        assert_eq!(bare, preloaded, "{branch}: nvidia-smi");
        assert_eq!(bare, sliced, "{branch}: nvidia-smi in a slice");
    }
}
