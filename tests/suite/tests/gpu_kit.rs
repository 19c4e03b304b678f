//! The kit for a machine with a GPU: one folder that runs by itself, tried on a simulated card.
//! Touches: `tests/gpu/pack.sh`, a folder of its own, the clients' Python environment.

use gpuslice_suite::place;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What only a real machine has, by the words of the checks that are left out for it.
const NEEDS: [&str; 7] = [
    "torch: ",
    "cupy: ",
    "jax: ",
    "no triton",
    "nvidia-smi needs the real NVML",
    "this driver cannot capture",
    "none of the tools is here",
];

fn kit(folder: &Path) {
    let output = Command::new(place::workspace().join("tests/gpu/pack.sh"))
        .arg(folder)
        .env("TARGET", place::target())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

fn run(kit: &Path, out: &Path, options: &[&str]) -> (Value, String, Option<i32>) {
    let output = Command::new(kit.join("run.sh"))
        .args(["--sim", "h200", "--out"])
        .arg(out)
        .args(options)
        .env("PYTHON", place::venv("python"))
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let results = std::fs::read_to_string(out.join("results.json"))
        .unwrap_or_else(|error| panic!("{error}: {said}"));
    (
        serde_json::from_str(&results).unwrap(),
        said,
        output.status.code(),
    )
}

fn of<'a>(results: &'a Value, status: &str) -> Vec<&'a Value> {
    let all = results["results"].as_array().unwrap();
    all.iter().filter(|one| one["status"] == status).collect()
}

#[test]
fn every_check_that_a_simulated_card_can_answer_passes() {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("kit");
    kit(&packed);
    let (results, said, status) = run(&packed, &folder.path().join("out"), &[]);
    for bad in ["fail", "error", "timeout"] {
        assert!(of(&results, bad).is_empty(), "{said}");
    }
    assert_eq!(status, Some(0), "{said}");
    for left_out in of(&results, "skip") {
        let why = left_out["detail"].as_str().unwrap();
        assert!(NEEDS.iter().any(|need| why.starts_with(need)), "{left_out}");
    }
    // Three variants of a dozen checks, and those that start their slices themselves.
    assert!(of(&results, "pass").len() >= 35, "{said}");
    let last = said.lines().next_back().unwrap();
    assert!(
        last.contains(" pass, 0 fail, 0 error, 0 timeout, "),
        "{last}"
    );
    assert_eq!(
        (&results["source"], &results["format"]),
        (&"simulator".into(), &1.into())
    );
}

/// A check that crashes, hangs or says nothing is reported, and the others are run all the same.
#[test]
fn one_bad_check_never_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("kit");
    kit(&packed);
    let write = |name: &str, text: &str| {
        std::fs::write(packed.join("suite/checks").join(name), text).unwrap();
    };
    write(
        "answers.py",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    );
    write(
        "limits.py",
        "import time\nprint('begun', flush=True)\ntime.sleep(600)\n",
    );
    write("contexts.py", "print('nothing that is a result')\n");
    write(
        "trim.py",
        "import tell\ndef check():\n    raise ValueError('broken')\ntell.main(check)\n",
    );
    let plan = packed.join("suite/plan.py");
    let text = std::fs::read_to_string(&plan).unwrap();
    let short = text.replace("(\"limits\", EACH, 20,", "(\"limits\", EACH, 2,");
    assert_ne!(text, short);
    std::fs::write(&plan, short).unwrap();
    let only = ["answers", "limits", "contexts", "trim", "lookups"];
    let options: Vec<&str> = only.iter().flat_map(|name| ["--only", name]).collect();
    let (results, said, status) = run(&packed, &folder.path().join("out"), &options);
    let counts = &results["counts"];
    let expected = serde_json::json!({"pass": 3, "fail": 3, "error": 6, "timeout": 3, "skip": 0});
    assert_eq!((counts, status), (&expected, Some(1)), "{said}");
}
