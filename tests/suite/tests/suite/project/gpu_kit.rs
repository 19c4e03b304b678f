//! The kit for a machine with a GPU: one folder that runs by itself, tried on a simulated card, on
//! NVIDIA's own libraries without a card, and in an old userland.
//! Touches: `tests/gpu/pack.sh`, folders of its own, the clients' Python environment,
//! `target/nvidia`, `target/userlands`.

use gpuslice_suite::place;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The reasons for which checks are skipped without a real machine, as the checks word them.
const NEEDS: [&str; 15] = [
    "torch: ",
    "cupy: ",
    "jax: ",
    "numba: ",
    "pynvml: ",
    "cuda-bindings",
    "no triton",
    "no Vulkan: ",
    "no OpenCL of NVIDIA's: ",
    "no OpenGL",
    "nvidia-smi needs the real NVML",
    "this driver ",
    "this GPU does not share the host's memory",
    "none of the tools is here",
    "the simulated driver has no MPS",
];

fn script(name: &str) -> PathBuf {
    place::workspace().join("tests/gpu").join(name)
}

/// Packs a kit, either of the files built here or for old C libraries.
fn pack(folder: &Path, portable: &str) {
    let output = Command::new(script("pack.sh"))
        .arg(folder)
        .env("TARGET", place::target())
        .env("PORTABLE", portable)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// A kit of the files built here.
fn kit(folder: &Path) -> PathBuf {
    let packed = folder.join("kit");
    pack(&packed, "no");
    packed
}

/// The files that a run of the kit wrote.
struct Done {
    results: Value,
    answers: Vec<Value>,
    said: String,
    status: Option<i32>,
}

impl Done {
    fn new(run: &mut Command, out: &Path) -> Done {
        let output = run.env_remove("LD_PRELOAD").output().unwrap();
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said += &String::from_utf8_lossy(&output.stderr);
        let read = |name: &str| {
            fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{error}: {said}"))
        };
        let lines = read("answers.jsonl");
        let answers = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        assert!(read("RESULTS.md").starts_with("# Answers of "));
        Done {
            results: serde_json::from_str(&read("results.json")).unwrap(),
            answers: answers.collect(),
            said,
            status: output.status.code(),
        }
    }

    fn of<'a>(&'a self, status: &str) -> Vec<&'a Value> {
        let all = self.results["results"].as_array().unwrap();
        all.iter().filter(|one| one["status"] == status).collect()
    }

    fn answer(&self, question: &str) -> &Value {
        let mut lines = self.answers.iter();
        lines.find(|line| line["question"] == question).unwrap()
    }

    /// Asserts that no check failed, and that each question has an answer or a check that says what
    /// is missing.
    fn is_complete(&self) {
        for bad in ["fail", "error", "timeout"] {
            assert!(self.of(bad).is_empty(), "{}", self.said);
        }
        for left_out in self.of("skip") {
            let why = left_out["detail"].as_str().unwrap();
            let known = why.starts_with("neither nvcc nor a libcudart");
            assert!(
                known || NEEDS.iter().any(|need| why.starts_with(need)),
                "{left_out}"
            );
        }
        assert!(self.answers.len() > 70);
        for line in &self.answers {
            let skipped = line["why"].as_str().unwrap().contains(": skip: ");
            assert!(line["state"] == "answered" || skipped, "{line}");
            assert_eq!(line["source"], "simulator");
        }
    }
}

fn run(kit: &Path, out: &Path, options: &[&str]) -> Done {
    let mut run = Command::new(kit.join("run.sh"));
    run.args(["--sim", "h200", "--out"]).arg(out).args(options);
    Done::new(run.env("PYTHON", place::venv("python")), out)
}

#[test]
fn every_check_that_a_simulated_card_can_answer_passes() {
    let folder = tempfile::tempdir().unwrap();
    let done = run(&kit(folder.path()), &folder.path().join("out"), &[]);
    done.is_complete();
    let said = &done.said;
    assert_eq!(done.status, Some(0), "{said}");
    assert!(done.of("pass").len() >= 48, "{said}");
    let last = said.lines().next_back().unwrap();
    assert!(
        last.contains(" pass, 0 fail, 0 error, 0 timeout, "),
        "{last}"
    );
    assert_eq!(
        (&done.results["source"], &done.results["format"]),
        (&"simulator".into(), &2.into())
    );
    // The simulator's answers are those that the project assumes of a driver.
    let differ: Vec<&Value> = done
        .answers
        .iter()
        .filter(|line| line["as_expected"] == false)
        .map(|line| &line["question"])
        .collect();
    assert!(differ.is_empty(), "{differ:?}: {said}");
}

/// A check that crashes, hangs or says nothing is reported, and the others are run all the same.
#[test]
fn one_bad_check_never_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let packed = kit(folder.path());
    let write = |name: &str, text: &str| {
        fs::write(packed.join("suite/checks").join(name), text).unwrap();
    };
    write(
        "answers.py",
        "import os, signal, tell\ntell.answer('bar1', 1)\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    );
    // This check sleeps longer than the time limit of a check.
    write(
        "limits.py",
        "import signal, tell, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
         tell.answer('free-is-had', 'begun')\ntime.sleep(600)\n",
    );
    write("contexts.py", "print('nothing that is a result')\n");
    write(
        "trim.py",
        "import tell\ndef check():\n    raise ValueError('broken')\ntell.main(check)\n",
    );
    let plan = packed.join("suite/plan.py");
    let text = fs::read_to_string(&plan).unwrap();
    let short = text.replace("(\"limits\", EACH, 20,", "(\"limits\", EACH, 2,");
    assert_ne!(text, short);
    fs::write(&plan, short).unwrap();
    let only = ["answers", "limits", "contexts", "trim", "lookups"];
    let options: Vec<&str> = only.iter().flat_map(|name| ["--only", name]).collect();
    let done = run(&packed, &folder.path().join("out"), &options);
    let expected = serde_json::json!({"pass": 3, "fail": 3, "error": 6, "timeout": 3, "skip": 0});
    assert_eq!(
        (&done.results["counts"], done.status),
        (&expected, Some(1)),
        "{}",
        done.said
    );
    // Answers that a check gave before it was stopped are kept.
    assert_eq!(done.answer("bar1")["answers"]["small"], 1);
    let begun = done.answer("free-is-had");
    assert_eq!(
        (&begun["state"], &begun["answers"]["bare"]),
        (&"answered".into(), &"begun".into())
    );
    assert!(begun["why"].as_str().unwrap().contains("bare: timeout"));
    assert_eq!(done.answer("same-address")["state"], "answered");
}

#[test]
fn a_run_ends_in_time_whatever_its_checks_do() {
    let folder = tempfile::tempdir().unwrap();
    let packed = kit(folder.path());
    // This check sleeps longer than all limits of the run, and the run must end it.
    let sleeps = "import time\ntime.sleep(600)\n";
    fs::write(packed.join("suite/checks/record.py"), sleeps).unwrap();
    let start = Instant::now();
    let options = ["--minutes", "0.25"];
    let done = run(&packed, &folder.path().join("out"), &options);
    assert!(start.elapsed() < Duration::from_secs(25), "{}", done.said);
    assert_eq!(done.of("timeout").len(), 1, "{}", done.said);
    let last = done.results["results"].as_array().unwrap().last().unwrap();
    assert_eq!(last["detail"], "no time was left");
    // The runner itself hangs: run.sh ends it.
    let runner = packed.join("suite/pages.py");
    fs::write(&runner, sleeps).unwrap();
    let start = Instant::now();
    let ended = Command::new(packed.join("run.sh"))
        .args(["--sim", "h200", "--minutes", "0.02", "--out"])
        .arg(folder.path().join("second"))
        .status()
        .unwrap();
    assert!(!ended.success());
    assert!(start.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_python_that_is_too_old_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("python");
    gpuslice_test_programs::write_program(&old, "#!/bin/sh\nexit 1\n");
    let run = Command::new(script("run.sh"))
        .env("PYTHON", &old)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    let expected = format!("{} is no Python 3.8 or later", old.display());
    assert!(said.contains(&expected), "{said}");
    assert_eq!(run.status.code(), Some(125));
}

/// The pages are generated from the list of questions and from the answers that the repository
/// holds. Every question names a check of the plan, and every answer of a check belongs to a
/// question.
#[test]
fn pages_of_questions_and_results_are_up_to_date() {
    let suite = script("suite");
    let pages = Command::new("python3")
        .arg(suite.join("pages.py"))
        .arg("--check")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&pages.stderr);
    assert!(pages.status.success(), "{said}");
    let code = "import os, plan, questions, re, sys\n\
                checks = {one[0] for one in plan.CHECKS}\n\
                named = {one[3] for one in questions.QUESTIONS} - {None}\n\
                files = {name[:-3] for name in os.listdir('checks') if name.endswith('.py')}\n\
                texts = ''.join(open(f'checks/{name}.py').read() for name in checks)\n\
                given = set(re.findall(r'tell.answer\\(\"([a-z0-9-]+)\"', texts))\n\
                asked = {one[0] for one in questions.QUESTIONS if one[3]}\n\
                twice = len(questions.IDS) - len(set(questions.IDS))\n\
                print(named - checks, checks ^ files, given ^ asked, twice)\n";
    let lists = Command::new("python3")
        .args(["-B", "-c", code])
        .current_dir(&suite)
        .env("PYTHONPATH", ".")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&lists.stdout),
        "set() set() set() 0\n",
        "{}",
        String::from_utf8_lossy(&lists.stderr)
    );
}

/// An answer enters the pages with its card and driver, and never comes from a simulated card.
#[test]
fn pages_take_answers_of_real_drivers_only() {
    let folder = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .args([
            script("suite"),
            script("RESULTS.md"),
            script("QUESTIONS.md"),
        ])
        .arg(folder.path())
        .status();
    assert!(copied.unwrap().success());
    fs::create_dir(folder.path().join("answers")).unwrap();
    let pages = |source: &str| {
        let line = serde_json::json!({"question": "pool-growth", "asked": "By how much?", "state": "answered",
            "source": source, "card": "A card", "driver": "999.1", "date": "2031-01-01", "as_expected": false,
            "answers": {"bare": "64 MiB"}, "why": ""});
        fs::write(
            folder.path().join("answers/one.jsonl"),
            line.to_string() + "\n",
        )
        .unwrap();
        let written = Command::new("python3")
            .arg("-B")
            .arg(folder.path().join("suite/pages.py"))
            .output();
        written.unwrap()
    };
    let refused = pages("simulator");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is of no real driver"));
    assert!(pages("driver").status.success());
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let row = "| By how much? `pool-growth` | A card, 999.1, 2031-01-01 | **no** | bare: 64 MiB |";
    assert!(page("RESULTS.md").contains(row));
    assert!(page("QUESTIONS.md").contains("answered by recording: A card, 999.1"));
}

/// NVIDIA's own libraries answer without a GPU, too: names, look-ups and error codes. Their answers
/// are those that the C programs have recorded.
#[test]
fn without_a_gpu_the_real_libraries_answer_what_they_can() {
    let nvidia = place::target().join("nvidia");
    let fetched = Command::new(place::source("nvidia.sh"))
        .arg(&nvidia)
        .status();
    if !fetched.is_ok_and(|status| status.success()) {
        eprintln!("not compared: NVIDIA's libraries cannot be had on this machine");
        return;
    }
    for branch in ["535", "550"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let mut run = Command::new(script("run.sh"));
        run.arg("--out").arg(&out);
        run.env("LD_LIBRARY_PATH", nvidia.join(branch));
        run.env("GPUSLICE_TARGET", place::target());
        let done = Done::new(&mut run, &out);
        let counts = &done.results["counts"];
        assert_eq!(done.status, Some(2), "{}", done.said);
        assert_eq!((&counts["pass"], &counts["fail"]), (&2.into(), &0.into()));
        assert!(
            done.said.contains("no GPU: driver.DriverError"),
            "{}",
            done.said
        );
        let asked = fs::read_to_string(out.join(format!("lookups-{branch}.txt"))).unwrap();
        let recorded = place::workspace().join(format!("tests/sim/recorded/lookups-{branch}.txt"));
        let recorded = fs::read_to_string(recorded).unwrap();
        assert!(recorded.lines().count() > 1500);
        assert!(asked.starts_with(&recorded), "{branch}");
        let exports = fs::read_to_string(out.join("exports-libcuda.txt")).unwrap();
        assert!(exports.lines().any(|name| name == "cuMemGetInfo_v2"));
        let early = done.answer("errors-early");
        assert_eq!(
            (&early["source"], &early["as_expected"]),
            (&"driver".into(), &true.into())
        );
        assert_eq!(early["answers"]["bare"]["nvmlInit_v2"], 9);
    }
}

/// A kit in a root with another C library and Python, without a network.
#[cfg(target_arch = "x86_64")]
fn in_userland(name: &str, only: &[&str]) {
    let setup = Command::new(place::workspace().join("tests/userlands/setup.sh"))
        .arg(name)
        .env("TARGET", place::target())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&setup.stderr);
    assert!(setup.status.success(), "no userland {name}: {said}");
    let folder = tempfile::tempdir().unwrap();
    let (packed, out) = (folder.path().join("kit"), folder.path().join("out"));
    pack(&packed, "yes");
    fs::create_dir(&out).unwrap();
    let mut run = Command::new(script("in_userland.sh"));
    run.arg(place::target().join("userlands").join(name));
    run.args([&packed, &out]).args(["--sim", "h200"]);
    run.args(only.iter().flat_map(|check| ["--only", check]));
    let done = Done::new(&mut run, &out);
    match only {
        [] => done.is_complete(),
        _ => assert!(done.of("pass").len() >= only.len(), "{}", done.said),
    }
    assert_eq!(done.status, Some(0), "{}", done.said);
    let system = &done.of("pass")[0]["facts"]["system"];
    assert!(
        system["python"].as_str().unwrap().starts_with("3.8."),
        "{system}"
    );
}

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "make check-all: builds the kit for old C libraries, which takes a minute"]
fn the_kit_runs_on_ubuntu_18_04_with_python_3_8() {
    // Checks that depend on the C library and on Python; the other userland runs the rest.
    let only = [
        "machine",
        "consistent",
        "answers",
        "lookups_table",
        "pool_growth",
        "nvml_lists",
        "deaths",
        "cudart_rules",
        "vmm_share",
        "unload",
        "three",
        "cost",
    ];
    in_userland("bionic-python", &only);
}

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "make check-all: as above"]
fn the_kit_runs_on_ubuntu_20_04_with_python_3_8() {
    in_userland("focal-python", &[]);
}
