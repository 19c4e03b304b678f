//! Slices on a machine with unified memory. A run is admitted while the host can keep its promises,
//! and its promise ends with the run.

use crate::support::machine::{Machine, end};
use crate::support::{Home, Installation, eventually, told};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static HERE: LazyLock<Installation> = LazyLock::new(|| Installation::new("promises"));

/// A simulated GB10: 115.65 GiB are available, and 8 GiB of them are reserved for the host.
fn spark() -> Machine {
    Machine::new(&HERE, "gb10")
}

fn keys(config: &Path) -> Value {
    serde_json::from_slice(&fs::read(config).unwrap()).unwrap()
}

#[test]
fn a_slice_that_the_host_cannot_promise_is_refused_and_names_holders() {
    let spark = spark();
    let (child, config) = spark.slice(&["--memory=60GiB", "--name=llama"]);
    let file = keys(&config)["promise"].as_str().map(PathBuf::from);
    assert_eq!(spark.records("promises"), [file.unwrap()]);
    let (out, err, status) = told(&mut spark.run(&["--memory=48GiB"], "echo started"));
    assert_eq!((out.as_str(), status), ("", 125));
    let pid = child.id();
    assert_eq!(
        err,
        format!(
            "gpuslice: a slice of 48.00 GiB does not fit on this host, which can promise 47.65 GiB: \
             115.65 GiB is available, 8.00 GiB of it stays the host's, 60.00 GiB is promised to \
             other slices and not used yet:\n  llama (pid {pid})  60.00 GiB, 60.00 GiB of it not \
             used\nUse --overcommit to start anyway; FREE is then the memory that is actually free on the \
             host\n"
        )
    );
    let (out, err, status) = told(&mut spark.run(&["--memory=47GiB"], "echo started"));
    assert_eq!((out.as_str(), err.as_str(), status), ("started\n", "", 0));
    end(child);
    spark.is_empty("promises");
    let (out, _, status) = told(&mut spark.run(&["--memory=107GiB"], "echo started"));
    assert_eq!((out.as_str(), status), ("started\n", 0));
}

#[test]
fn of_many_that_start_at_once_as_many_are_admitted_as_fit() {
    let spark = spark();
    let (children, started) = spark.start_at_once(12, "--memory=20GiB");
    // 107.65 GiB can be promised.
    assert_eq!(started, 5);
    assert_eq!(spark.records("promises").len(), 5);
    children.into_iter().for_each(end);
    spark.is_empty("promises");
}

#[test]
fn an_overcommitted_run_is_warned_and_takes_nothing_from_others() {
    let spark = spark();
    let (first, _) = spark.slice(&["--memory=100GiB", "--name=first"]);
    for option in ["--overcommit", "--no-enforce"] {
        let mut command = spark.run(&["--memory=50GiB", option], "cat $GPUSLICE_CONFIG");
        let (out, err, status) = told(&mut command);
        assert_eq!(status, 0, "{option}: {err}");
        assert!(
            err.starts_with("gpuslice: warning: a slice of 50.00 GiB does not fit"),
            "{err}"
        );
        let slice: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(slice["memory"], 50u64 << 30);
        let name = PathBuf::from(slice["promise"].as_str().unwrap());
        let name = name.file_name().unwrap().to_str().unwrap().to_owned();
        let budget: u64 = name.split('.').next().unwrap().parse().unwrap();
        // The remainder of 107.65 GiB after a run of 100 GiB: 121267812 kB less 8.0 GiB
        // less 100 GiB.
        assert_eq!(budget, (121_267_812 << 10) - (108u64 << 30), "{option}");
        eventually("one promise is left", || {
            spark.records("promises").len() == 1
        });
    }
    end(first);
    spark.is_empty("promises");
}

#[test]
fn a_promise_whose_run_and_watcher_were_killed_is_dropped_by_the_next() {
    let spark = spark();
    drop(told(&mut spark.run(&["--memory=1GiB"], "true")));
    spark.is_empty("promises");
    let folder = spark.state.path().join("promises");
    let left = folder.join(format!(
        "{}.run@{}.0.left",
        100u64 << 30,
        std::process::id()
    ));
    fs::write(&left, [0; 4096]).unwrap();
    let (out, err, status) = told(&mut spark.run(&["--memory=50GiB"], "echo started"));
    assert_eq!((out.as_str(), err.as_str(), status), ("started\n", "", 0));
    assert!(!left.exists());
}

#[test]
fn a_command_that_cannot_be_started_is_promised_nothing() {
    let spark = spark();
    let mut command = spark.run_command(&["--memory=50GiB"], &["/nowhere"]);
    let (_, _, status) = told(&mut command);
    assert_eq!(status, 127);
    assert_eq!(spark.records("promises"), [] as [PathBuf; 0]);
}

#[test]
fn a_card_with_memory_of_its_own_promises_nothing() {
    let spark = spark();
    let mut command = HERE.run(&["--sim=rtx3090", "--memory=8GiB"], "cat $GPUSLICE_CONFIG");
    let (out, _, status) = told(spark.home.of(&mut command));
    assert_eq!(status, 0);
    let slice: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&slice["promise"], &slice["promises"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn status_shows_what_was_promised_and_what_is_spent() {
    let spark = spark();
    let (child, config) = spark.slice(&["--memory=60GiB", "--name=llama"]);
    let slice = keys(&config);
    let file = slice["promise"].as_str().unwrap();
    let mut bytes = [0; 4096];
    bytes[..8].copy_from_slice(&(20u64 << 30).to_le_bytes());
    fs::write(file, bytes).unwrap();
    let mut command = HERE.gpuslice();
    let (out, _, _) = told(spark.home.of(&mut command).args(["status", "--json"]));
    let status: Value = serde_json::from_str(&out).unwrap();
    let available = 121_267_812u64 << 10;
    let expected = serde_json::json!({
        "file": file, "budget": 60u64 << 30, "spent": 20u64 << 30, "unused": 40u64 << 30,
        "host_available": available, "host_left": available - (48u64 << 30),
    });
    assert_eq!(status["slices"][0]["promise"], expected);
    end(child);
}

#[test]
fn what_was_asked_of_a_host_that_runs_short_stands_in_the_slice_file() {
    let spark = spark();
    let options = [
        "--memory=8GiB",
        "--host-allowance=1GiB",
        "--pressure=release",
        "--threshold=available=16GiB",
        "--threshold=full=7",
    ];
    let (out, _, status) = told(&mut spark.run(&options, "cat $GPUSLICE_CONFIG"));
    assert_eq!(status, 0);
    let slice: Value = serde_json::from_str(&out).unwrap();
    let asked = [
        "host_allowance",
        "pressure",
        "pressure_available",
        "pressure_full",
    ];
    let expected = serde_json::json!([1u64 << 30, "release", 16u64 << 30, 7]);
    let found: Vec<&Value> = asked.iter().map(|key| &slice[key]).collect();
    assert_eq!(serde_json::json!(found), expected);
}

#[test]
fn a_run_that_follows_another_at_once_does_not_find_the_others_promise() {
    let spark = spark();
    for _ in 0..10 {
        let (out, err, status) = told(&mut spark.run(&["--memory=100GiB"], "echo started"));
        assert_eq!((out.as_str(), err.as_str(), status), ("started\n", "", 0));
    }
}

#[test]
fn what_a_command_left_in_the_background_keeps_the_promise() {
    let spark = spark();
    // The test kills the sleeper. The minute ends it only if the test has failed.
    let script = "sleep 60 <&- >&- 2>&- & echo $!";
    let (out, _, status) = told(&mut spark.run(&["--memory=100GiB"], script));
    assert_eq!(status, 0);
    let left = Pid::from_raw(out.trim().parse().unwrap());
    let mut next = spark.run(&["--memory=100GiB"], "echo started");
    let (out, err, status) = told(&mut next);
    kill(left, Signal::SIGKILL).unwrap();
    assert_eq!((out.as_str(), status), ("", 125), "{err}");
    spark.is_empty("promises");
}

#[test]
fn on_a_real_machine_a_user_has_one_folder_of_promises() {
    let home = Home::new();
    let mut command = HERE.gpuslice();
    let sim = HERE.folder.join("../sim");
    home.of(&mut command)
        .env("LD_LIBRARY_PATH", sim)
        .env("GPUSLICE_SIM", "gb10")
        .args(["run", "--memory=16MiB", "--", "sh", "-c"])
        .arg("cat $GPUSLICE_CONFIG; ls $XDG_RUNTIME_DIR/gpuslice/promises");
    let (out, err, status) = told(&mut command);
    assert_eq!((err.as_str(), status), ("", 0));
    let (slice, listed) = out.split_at(out.rfind('}').unwrap() + 1);
    let slice: Value = serde_json::from_str(slice).unwrap();
    let own = Path::new(slice["promise"].as_str().unwrap()).to_owned();
    let folder = home.runtime.path().join("gpuslice/promises");
    assert_eq!(own.parent(), Some(folder.as_path()));
    assert_eq!(own.file_name().unwrap().to_str(), Some(listed.trim()));
    eventually("the promise is removed", || {
        fs::read_dir(&folder).unwrap().next().is_none()
    });
}
