//! The sizes that engines choose for themselves: engines that start at once on one machine or card,
//! and several kinds of engines in one slice.
//! Touches: `tests/engines/`, which runs real processes on simulated machines.
//!
//! `make engines` runs the ignored tests too: the arithmetic is then vLLM's own.

use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use serde_json::Value;
use std::process::Command;

/// A case of `race.py`, and the cache of each engine when it runs alone, in GiB. vLLM #35929
/// promises these sizes. vLLM #55827 measured them for two engines on a card with memory of its
/// own.
type Case = (&'static str, &'static [f64]);

const SPARK: Case = ("spark", &[36.64, 30.56, 18.39]);
const CARDS: [Case; 2] = [("rtx5090", &[4.72, 2.82]), ("rtx6000ada", &[10.82, 6.50])];

/// The largest difference that counts as right, in GiB.
const NEAR: f64 = 0.05;

/// Runs a script of `tests/engines/`, and returns its numbers.
fn script(name: &str, words: &[&str]) -> Value {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(place::venv("python"))
        .arg(place::workspace().join("tests/engines").join(name))
        .args(words)
        .arg("--json")
        .arg(file.path())
        .env("GPUSLICE_TARGET", place::target())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{name} {words:?}: {complained}");
    println!("{said}");
    serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap()
}

/// Starts the engines of a case at once, `interleavings` times, and checks the caches that they
/// get.
fn race((case, caches): Case, interleavings: u64, arithmetic: &str) {
    let count = interleavings.to_string();
    let words = [
        "--case",
        case,
        "--interleavings",
        &count,
        "--arithmetic",
        arithmetic,
    ];
    let results = script("race.py", &words);
    let results = results.as_object().unwrap();
    // Without a slice, hardly any engine gets its cache, and some compute a negative size.
    let bare = &results["bare"];
    let (short, negative) = (&bare["short"], &bare["negative"]);
    let right = bare["all_right"].as_u64().unwrap();
    assert!(right * 50 <= interleavings, "{bare}");
    assert!(short.as_u64().unwrap() > 0, "{bare}");
    assert!(negative.as_u64().unwrap() > 0, "{bare}");
    assert!(results.len() > 1);
    for (setting, result) in results.iter().filter(|(name, _)| *name != "bare") {
        assert_eq!(result["interleavings"], interleavings, "{setting}");
        assert_eq!(result["all_right"], interleavings, "{setting}: {result}");
        for (range, wanted) in result["caches"].as_array().unwrap().iter().zip(caches) {
            for size in range.as_array().unwrap() {
                let off = (size.as_f64().unwrap() - wanted).abs();
                assert!(off <= NEAR, "{setting}: {range}, not {wanted}");
            }
        }
    }
}

#[test]
fn three_engines_that_start_at_once_each_get_what_they_would_alone() {
    race(SPARK, 100, "written");
}

#[test]
fn two_engines_that_start_at_once_on_one_card_get_what_each_gets_alone() {
    for case in CARDS {
        race(case, 50, "written");
    }
}

#[test]
#[ignore = "fetches vLLM's own files: make engines"]
fn three_engines_start_at_once_1000_times_by_the_vendors_arithmetic() {
    race(SPARK, 1000, "vendor");
}

#[test]
#[ignore = "fetches vLLM's own files: make engines"]
fn two_engines_start_at_once_1000_times_by_the_vendors_arithmetic() {
    for case in CARDS {
        race(case, 1000, "vendor");
    }
}

/// The answers of vLLM's own platform code on a machine, bare or in a slice of 4 GiB.
fn platform(machine: &str, slice: &[&str]) -> Value {
    let state = tempfile::tempdir().unwrap();
    let vendor = place::target().join("engines/vendor");
    let run = ["run", "--sim", machine];
    let run = Run::new(place::gpuslice()).args(run).args(slice).arg("--");
    let run = run.env("GPUSLICE_SIM_STATE", state.path());
    let script = place::workspace().join("tests/engines/vllm_platform.py");
    let answer = run
        .arg(place::venv("python"))
        .arg(script)
        .arg(vendor)
        .answer();
    assert_eq!(answer.end, "exit 0", "{answer:?}");
    serde_json::from_str(&answer.stdout).unwrap()
}

#[test]
#[ignore = "fetches vLLM's own files: make engines"]
fn the_vendors_own_platform_code_finds_the_slice_by_nvml() {
    const SLICE: u64 = 4 << 30;
    // Without a slice, vLLM takes CUDA's total where NVML refuses. Where NVML reports zero or only
    // a window of the memory, vLLM takes that.
    for (machine, total, by) in [
        ("gb10", 127_600_748 << 10, "CUDA"),
        ("orin", 64_349_728 << 10, "CUDA"),
        ("thor", 0, "NVML"),
        ("n1x", 8128 << 20, "NVML"),
        ("rtx3090", 24_u64 << 30, "NVML"),
    ] {
        let mut bare = platform(machine, &["--bare"]);
        let found = (&bare["total"], &bare["total_by"]);
        assert_eq!(found, (&total.into(), &by.into()), "{bare}");
        assert_eq!(bare["platform"], "NvmlCudaPlatform");
        assert_eq!(bare["plugin"], "vllm.platforms.cuda.CudaPlatform");
        (bare["total"], bare["total_by"]) = (SLICE.into(), "NVML".into());
        // The slice changes these two fields and no others.
        assert_eq!(platform(machine, &["--memory", "4GiB"]), bare);
        println!("{machine}: {total} by {by}, in a slice {SLICE} by NVML");
    }
}

/// The sizes that the engines of engines.md choose in a slice of 40 GiB, in GiB. The setting; FREE
/// and cache of vLLM; FREE and cache of SGLang; FREE of llama.cpp, and what `--fit` removes;
/// Ollama's free; JAX's share.
type Sizes = (&'static str, [f64; 8]);

const SIZES: [Sizes; 3] = [
    ("uma", [39.1, 20.8, 39.1, 17.7, 39.5, 5.5, 39.5, 30.0]),
    ("discrete", [39.1, 20.8, 39.1, 17.7, 39.5, 5.5, 39.5, 30.0]),
    (
        "uma, nothing allowed",
        [38.1, 17.8, 38.1, 13.9, 39.5, 5.5, 39.5, 30.0],
    ),
];

fn sizes(rows: &[Sizes], words: &[&str]) {
    let results = script("sizes.py", words);
    // Without a slice, vLLM does not start, and the others take the whole machine for theirs.
    let bare = &results["bare"];
    assert_eq!(bare["vLLM"]["refused"], "ValueError");
    near("bare", &bare["SGLang"]["cache"], 38.2);
    assert_eq!(bare["llama.cpp"]["removed"], 0);
    near("bare", &bare["JAX"], 91.3);
    for (setting, numbers) in rows {
        let result = &results[*setting];
        let found = [
            &result["vLLM"]["free"],
            &result["vLLM"]["cache"],
            &result["SGLang"]["free"],
            &result["SGLang"]["cache"],
            &result["llama.cpp"]["free"],
            &result["llama.cpp"]["removed"],
            &result["Ollama"],
            &result["JAX"],
        ];
        for (number, wanted) in found.into_iter().zip(numbers) {
            near(setting, number, *wanted);
        }
        // The engines can allocate what they have chosen.
        for engine in ["vLLM", "SGLang", "llama.cpp"] {
            assert_eq!(result[engine]["fits"], true, "{setting}: {engine}");
        }
        near(setting, &result["llama.cpp"]["total"], 40.0);
    }
    // A limit of host memory also limits Ollama, unless the slice is presented as a discrete card.
    let limited = "Ollama, memory.max 8 GiB";
    near("uma", &results["uma"][limited], 8.0);
    near("discrete", &results["discrete"][limited], 39.5);
}

/// Asserts that a number agrees with the table of engines.md. The table has one decimal, and its
/// engines have a host process of whole GiB.
fn near(setting: &str, number: &Value, wanted: f64) {
    let found = number.as_f64().unwrap_or(f64::NAN);
    let off = (found - wanted).abs();
    assert!(off <= 0.1, "{setting}: {found}, not {wanted}");
}

#[test]
fn engines_size_themselves_by_their_slice_in_both_presentations() {
    let chosen = ["bare", "uma", "discrete"].map(|setting| ["--only", setting]);
    // Host memory within the allowance is not charged, so the test needs no host process of 4 GiB.
    let words = [&["--no-host-memory"], chosen.as_flattened()].concat();
    sizes(&SIZES[..2], &words);
}

#[test]
#[ignore = "fetches vLLM's own files, and takes 4 GiB of this host: make engines"]
fn engines_are_charged_for_host_memory_that_is_not_allowed() {
    sizes(&SIZES, &["--arithmetic", "vendor"]);
}
