//! The limit of a run is the same whether the driver or the library enforces it, on every machine, and
//! every API reports it.
//! Touches: `gpuslice run` and `check` on simulated machines; the cgroups of those runs.

use super::cgroups::{Cgroup, path};
use super::{CONTEXT, DMEM, LIMIT, MISC, kept};
use gpuslice_suite::compile;
use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, OUT_OF_MEMORY, Said, Worker};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Machines, what holds a slice there, and why it is not the driver.
const MACHINES: [(&str, &str, &str); 6] = [
    ("rtx3090", "preload", "its driver cannot limit cgroups"),
    (DMEM, "driver", "dmem"),
    (MISC, "driver", "misc"),
    ("h200-mig@615", "preload", "it is a MIG instance"),
    ("gb10@615", "preload", "it shares the host's memory"),
    ("thor@615", "preload", "it shares the host's memory"),
];

/// Runs gpuslice on a simulated machine that it starts itself.
fn gpuslice(scenario: &str, state: &Path, words: &[&str]) -> Run {
    let (verb, rest) = words.split_first().unwrap();
    let run = Run::new(place::gpuslice()).arg(verb);
    let run = run.args(["--sim", scenario, "--memory", "6GiB"]);
    run.args(rest).env("GPUSLICE_SIM_STATE", state)
}

fn check(scenario: &str, words: &[&str]) -> (Value, Answer) {
    let folder = tempfile::tempdir().unwrap();
    let words = [&["check", "--json"], words].concat();
    let answer = gpuslice(scenario, folder.path(), &words).answer();
    let said = serde_json::from_str(&answer.stdout);
    (said.unwrap_or(Value::Null), answer)
}

/// Whether this machine lets the tests make cgroups, as the driver's limits require.
fn has_cgroups() -> bool {
    Cgroup::new("probe").is_some()
}

/// The cgroups of runs that exist now.
fn leaves() -> Vec<PathBuf> {
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let mount = mounts
        .iter()
        .find(|mount| mount.join("cgroup.controllers").exists());
    let listed = mount.map(|mount| fs::read_dir(mount).unwrap());
    let folders = listed
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let is_leaf = |folder: &PathBuf| {
        let name = folder.file_name().unwrap().to_string_lossy();
        name.starts_with("gpuslice-run-")
    };
    folders.filter(is_leaf).collect()
}

/// The cgroup of a process.
fn cgroup_of(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    own.unwrap().to_owned()
}

fn is_removed_soon(folder: &Path) {
    let start = Instant::now();
    while folder.exists() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{} stays",
            folder.display()
        );
        std::thread::yield_now();
    }
}

#[test]
fn every_api_shows_the_same_limit_whatever_holds_it() {
    if !has_cgroups() {
        return;
    }
    for (scenario, fence, _) in MACHINES {
        let (said, answer) = check(scenario, &[]);
        assert_eq!(answer.end, "exit 0", "{scenario}: {answer:?}");
        assert_eq!(said["consistent"], true, "{scenario}: {said}");
        assert_eq!(said["slice"]["fence"], fence, "{scenario}");
        let rows = said["rows"].as_array().unwrap();
        assert!(rows.len() > 20, "{scenario}: {said}");
        for row in rows {
            let total = row["total"]
                .as_u64()
                .filter(|total| *total > u64::from(u32::MAX));
            let is_whole = row["error"].is_null() && total.is_some();
            assert!(!is_whole || total == Some(LIMIT), "{scenario}: {row}");
        }
    }
}

#[test]
fn check_says_in_words_what_holds_the_limit() {
    if !has_cgroups() {
        return;
    }
    for (scenario, line) in [
        (DMEM, "\nlimit held by: driver (dmem)\n"),
        (MISC, "\nlimit held by: driver (misc)\n"),
        ("rtx3090", "\nlimit held by: preload (cooperative)\n"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let said = gpuslice(scenario, folder.path(), &["check"]).answer();
        assert!(said.stdout.contains(line), "{scenario}: {said:?}");
    }
}

#[test]
fn a_run_that_asks_for_the_driver_is_refused_with_the_reason_where_it_cannot_be() {
    if !has_cgroups() {
        return;
    }
    for (scenario, fence, why) in MACHINES {
        let folder = tempfile::tempdir().unwrap();
        let words = ["run", "--fence", "driver", "--", "true"];
        let answer = gpuslice(scenario, folder.path(), &words).answer();
        if fence == "driver" {
            assert_eq!(answer.clean(), "", "{scenario}");
            continue;
        }
        assert_eq!(answer.end, "exit 125", "{scenario}: {answer:?}");
        let start = "gpuslice: the driver cannot enforce the limit of this slice: ";
        assert!(answer.stderr.starts_with(start), "{scenario}: {answer:?}");
        assert!(answer.stderr.contains(why), "{scenario}: {answer:?}");
    }
    for (words, why) in [
        (
            ["--total", "device"],
            "programs would see the limit as TOTAL",
        ),
        (
            ["--maximum", "20GiB"],
            "programs would see the limit as TOTAL",
        ),
        (
            ["--no-enforce", "--overcommit"],
            "the slice refuses no memory",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let words = [&["run", "--fence", "driver"], &words[..], &["--", "true"]].concat();
        let answer = gpuslice(DMEM, folder.path(), &words).answer();
        assert_eq!(answer.end, "exit 125", "{answer:?}");
        assert!(answer.stderr.contains(why), "{answer:?}");
    }
}

/// A run of `gpuslice run`, whose program is a worker that does not load the library.
fn bare_worker(machine: &Machine, scenario: &str, fence: &str) -> Worker {
    let worker = compile::worker();
    let worker = worker.display().to_string();
    let drop = [
        "env",
        "-u",
        "LD_PRELOAD",
        "-u",
        "GPUSLICE_CONFIG",
        "-u",
        "GPUSLICE_SLICE",
    ];
    let words = [&["run", "--fence", fence, "--"], &drop[..], &[&*worker]].concat();
    let mut worker = Worker::start(gpuslice(scenario, &machine.state(), &words));
    worker.must("start 0");
    worker
}

#[test]
fn the_driver_holds_programs_that_leave_the_library_and_the_library_does_not() {
    if !has_cgroups() {
        return;
    }
    for scenario in [DMEM, MISC] {
        let machine = Machine::new(scenario);
        let mut bare = bare_worker(&machine, scenario, "auto");
        assert_eq!(bare.info().total, LIMIT, "{scenario}");
        assert_eq!(bare.code(&format!("alloc 0 {LIMIT}")), OUT_OF_MEMORY);
        bare.must(&format!("alloc 0 {}", 5 * GIB));
        drop(bare);
        let mut bare = bare_worker(&machine, scenario, "preload");
        bare.must(&format!("alloc 0 {}", 7 * GIB));
    }
}

#[test]
fn the_cgroup_of_a_run_is_removed_at_its_end_also_after_sigkill() {
    if !has_cgroups() {
        return;
    }
    let machine = Machine::new(DMEM);
    for kill in [false, true] {
        let worker = bare_worker(&machine, DMEM, "driver");
        let own = cgroup_of(worker.pid());
        let folder = leaves()
            .into_iter()
            .find(|folder| folder.display().to_string().ends_with(&own));
        let folder = folder.unwrap_or_else(|| panic!("{own}"));
        if kill {
            worker.kill();
        } else {
            drop(worker);
        }
        is_removed_soon(&folder);
    }
}

/// A process that has neither the library nor the variables of the slice stays in its cgroup, and
/// with it the limit.
#[test]
fn a_run_lasts_until_its_cgroup_is_empty() {
    if !has_cgroups() {
        return;
    }
    let machine = Machine::new(MISC);
    let script = "env -i sleep 1000 >&- 2>&- & echo $!";
    let words = ["run", "--", "sh", "-c", script];
    let said = gpuslice(MISC, &machine.state(), &words).answer().clean();
    let pid: u32 = said.trim().parse().unwrap();
    let own = cgroup_of(pid);
    assert!(own.contains("gpuslice-run-"), "{own}");
    // Longer than the watcher takes to end a run without processes.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(cgroup_of(pid), own);
    let folder = leaves()
        .into_iter()
        .find(|folder| folder.display().to_string().ends_with(&own));
    let _ = std::process::Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    is_removed_soon(&folder.unwrap());
}

#[test]
fn a_run_outside_its_slice_leaves_the_cgroup_and_its_limit() {
    if !has_cgroups() {
        return;
    }
    let machine = Machine::new(DMEM);
    let gpuslice_path = place::gpuslice().display().to_string();
    let inner = [
        &*gpuslice_path,
        "run",
        "--bare",
        "--",
        "sh",
        "-c",
        "grep ^0:: /proc/self/cgroup",
    ];
    let words = [&["run", "--"], &inner[..]].concat();
    let said = gpuslice(DMEM, &machine.state(), &words).answer();
    assert!(!said.stdout.contains("gpuslice-run-"), "{said:?}");
}

#[test]
fn no_guarantee_is_left_above_the_cgroups_of_runs() {
    if !has_cgroups() {
        return;
    }
    let counted = Counted::new(DMEM, LIMIT);
    let _first = counted.neighbour();
    for _ in 0..3 {
        let worker = bare_worker(counted.machine(), DMEM, "driver");
        let own = cgroup_of(worker.pid());
        assert_eq!(kept(&counted, &own), (Some((0, LIMIT)), 0));
        worker.kill();
    }
    let root = Cgroup::new("root").unwrap();
    let root = Path::new(&path(&root))
        .parent()
        .unwrap()
        .display()
        .to_string();
    assert_eq!(kept(&counted, &root), (None, 0));
}

/// By the driver's own table, a limit of a run would stand in place of a lower one above it.
#[test]
fn a_run_below_a_limited_cgroup_does_not_escape_its_limit() {
    for scenario in [DMEM, MISC] {
        let Some(above) = Cgroup::new("above-run") else {
            return;
        };
        let machine = Machine::new(scenario);
        let worker = compile::worker().display().to_string();
        let mut first = Worker::start(machine.place(Run::new(&worker)));
        first.must("start 0");
        let said = super::backends::set_by_nvml(&machine, &above, 0, 4 * GIB);
        assert_eq!(said, "0\n", "{scenario}");
        let script = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", path(&above));
        let gpuslice = place::gpuslice().display().to_string();
        let words = ["run", "--sim", scenario, "--memory", "6GiB"];
        let run = |fence: &str, words_of_run: &[&str]| {
            let run = Run::new("sh")
                .args(["-c", &script, "sh", &gpuslice])
                .args(words);
            run.args(["--fence", fence, "--"])
                .args(words_of_run)
                .env("GPUSLICE_SIM_STATE", machine.state())
        };
        let drop = ["env", "-u", "LD_PRELOAD", &*worker];
        let mut bare = Worker::start(run("auto", &drop));
        bare.must("start 0");
        assert_eq!(bare.code(&format!("alloc 0 {}", 5 * GIB)), OUT_OF_MEMORY);
        std::mem::drop(bare);
        let refused = run("driver", &["true"]).answer();
        assert_eq!(refused.end, "exit 125", "{refused:?}");
        assert!(
            refused.stderr.contains("has a limit of the driver"),
            "{refused:?}"
        );
    }
}

/// A larger limit needs the driver's to be raised first, and a smaller one lowers it afterwards.
#[test]
fn the_drivers_limit_follows_a_resize() {
    if !has_cgroups() {
        return;
    }
    for scenario in [DMEM, MISC] {
        let counted = Counted::new(scenario, LIMIT);
        let state = counted.machine().state();
        let worker = compile::worker().display().to_string();
        let name = &*format!("resized-{scenario}");
        let words = ["run", "--name", name, "--fence", "driver", "--", &worker];
        let mut worker = Worker::start(gpuslice(scenario, &state, &words));
        worker.must("start 0");
        let own = cgroup_of(worker.pid());
        for (limit, words) in [(10, "10GiB"), (3, "3GiB"), (8, "8GiB")] {
            let run = Run::new(place::gpuslice()).args(["resize", name, words]);
            let said = run.env("GPUSLICE_SIM_STATE", &state).answer();
            assert_eq!(said.end, "exit 0", "{scenario}: {said:?}");
            let limit = limit * GIB;
            assert_eq!(kept(&counted, &own), (Some((0, limit)), 0), "{scenario}");
            let free = limit - CONTEXT;
            assert_eq!(worker.info(), Said { total: limit, free }, "{scenario}");
            assert_eq!(worker.nvml(), [free, limit, CONTEXT], "{scenario}");
            let too_much = format!("alloc 0 {}", free + GRANULE);
            assert_eq!(worker.code(&too_much), OUT_OF_MEMORY, "{scenario}");
            worker.must(&format!("alloc 0 {free}"));
            worker.must("free 0");
        }
    }
}

/// Only root sets limits of the driver. Another user's run is held by the library, and says so if the
/// driver was asked for.
#[test]
fn without_root_the_library_holds_the_limit() {
    // SAFETY: geteuid takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not run: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let gpuslice = place::gpuslice().display().to_string();
    let other = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        &*gpuslice,
    ];
    let run = |words: &[&str]| {
        let run = Run::new("setpriv").args(other).args(words);
        run.env("HOME", folder.path()).answer()
    };
    let slice = ["--sim", DMEM, "--memory", "6GiB"];
    let said = run(&[&["check", "--json"], &slice[..]].concat());
    let json: Value =
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    assert_eq!(json["slice"]["fence"], "preload", "{said:?}");
    let asked = [&["run"], &slice[..], &["--fence", "driver", "--", "true"]].concat();
    let refused = run(&asked);
    assert_eq!(refused.end, "exit 125", "{refused:?}");
    assert!(
        refused
            .stderr
            .contains("only root can set the limit of a cgroup"),
        "{refused:?}"
    );
}

/// The watcher of a process's run, by its command line.
fn watcher_of(pid: u32) -> Option<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|watcher| {
        let line = fs::read(format!("/proc/{watcher}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&&b"tidy-up"[..]) && words.get(3) == Some(&pid.to_string().as_bytes())
    })
}

#[test]
fn the_cgroup_of_a_run_whose_watcher_was_killed_is_removed_by_status() {
    if !has_cgroups() {
        return;
    }
    let machine = Machine::new(DMEM);
    let worker = bare_worker(&machine, DMEM, "driver");
    let own = cgroup_of(worker.pid());
    let folder = leaves()
        .into_iter()
        .find(|folder| folder.display().to_string().ends_with(&own));
    let folder = folder.unwrap_or_else(|| panic!("{own}"));
    let watcher = watcher_of(worker.pid()).expect("a run has a watcher");
    let killed = std::process::Command::new("kill")
        .args(["-KILL", &watcher.to_string()])
        .status();
    assert!(killed.unwrap().success());
    // kill(1) does not wait for the end. A watcher that still lives removes the folder itself.
    let has_ended = || {
        let stat = fs::read_to_string(format!("/proc/{watcher}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    let start = Instant::now();
    while !has_ended() {
        assert!(start.elapsed() < Duration::from_secs(60), "{watcher} lives");
        std::thread::yield_now();
    }
    assert!(folder.exists(), "nobody has removed it yet");
    worker.kill();
    let status = Run::new(place::gpuslice()).arg("status").answer();
    assert!(!folder.exists(), "{status:?}");
}
