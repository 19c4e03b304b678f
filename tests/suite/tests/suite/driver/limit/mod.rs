//! The driver's own limits, per cgroup: set by `gpuslice driver-limit`, held by the driver, and
//! never taken off twice.
//! Touches: workers on simulated machines; cgroups of its own, where this machine lets it.

mod backends;
pub(crate) mod cgroups;
mod fence;
pub(crate) mod held;
mod toolkit;

use cgroups::{Cgroup, path, two_levels};
use gpuslice_sim_machine::Machine;
use gpuslice_suite::compile;
use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, OUT_OF_MEMORY, Said};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const UUID: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";
const TOTAL: u64 = 25_438_126_080;
const LIMIT: u64 = 6 * GIB;
const CONTEXT: u64 = 254 << 20;

/// Cards whose driver limits cgroups, one for each of its two ways.
pub(crate) const DMEM: &str = "rtx3090@615";
pub(crate) const MISC: &str = "rtx3090@615-misc";

pub(crate) fn set(counted: &Counted, cgroup: &str, memory: &str) -> Answer {
    let run = Run::new(place::gpuslice()).args([
        "driver-limit",
        "--cgroup",
        cgroup,
        "--device",
        UUID,
        "--memory",
        memory,
    ]);
    counted.machine().place(run).answer()
}

#[test]
fn a_driver_without_limits_says_so_in_one_line() {
    let counted = Counted::new("rtx3090", LIMIT);
    let answer = set(&counted, "/sys/fs/cgroup", "6GiB");
    assert_eq!(
        (
            answer.stdout.as_str(),
            answer.stderr.as_str(),
            answer.end.as_str()
        ),
        (
            "",
            "gpuslice: the driver has no limits per cgroup (nvmlDeviceSetMemoryLimits_v1 returns \
             13): the library alone enforces the slice\n",
            "exit 3"
        )
    );
}

#[test]
fn a_limit_that_the_driver_refuses_is_an_error_that_names_its_answer() {
    let counted = Counted::new(DMEM, LIMIT);
    let answer = set(&counted, "/sys/fs/cgroup/no/such/cgroup", "6GiB");
    let refused = match Cgroup::new("refused") {
        Some(_) => "returns 6 (Not Found)",
        // Without root, the driver refuses before it reaches that check.
        None => "returns 4 (Insufficient Permissions)",
    };
    assert_eq!(answer.end, "exit 125");
    assert!(answer.stderr.contains(refused), "{answer:?}");
}

/// The hook runs the command. When an engine kills the hook, the container ends, and a limit that is
/// set later would stay.
#[test]
fn nothing_sets_the_limit_after_the_command_was_killed() {
    let counted = Counted::new(DMEM, LIMIT);
    let run = Run::new(place::gpuslice()).args(["driver-limit", "--cgroup", "/sys/fs/cgroup/none"]);
    let run = run.args(["--device", UUID, "--memory", "6GiB"]);
    let run = run.env(
        "GPUSLICE_SIM_FAULTS",
        "slow:nvmlDeviceGetHandleByUUID=600000ms",
    );
    let mut command = counted.machine().place(run).into_command().spawn().unwrap();
    let list = format!("/proc/{0}/task/{0}/children", command.id());
    let start = Instant::now();
    let wait = |what: &str| {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    };
    let in_the_driver = |pid: &str| {
        let sleep = libc::SYS_clock_nanosleep.to_string();
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        call.split(' ').next() == Some(&sleep)
    };
    let probe = loop {
        let children = fs::read_to_string(&list).unwrap();
        let mut children = children.split_whitespace();
        if let Some(probe) = children.find(|pid| in_the_driver(pid)) {
            break probe.to_owned();
        }
        wait("the driver is not asked");
    };
    command.kill().unwrap();
    command.wait().unwrap();
    while in_the_driver(&probe) {
        wait("the driver is still asked");
    }
}

#[test]
fn the_driver_limits_a_whole_cgroup_until_the_cgroup_is_removed() {
    for scenario in [DMEM, MISC] {
        let counted = Counted::new(scenario, LIMIT);
        let Some(cgroup) = Cgroup::new("held") else {
            return;
        };
        let path = cgroup.folder.display().to_string();
        let said = format!("the driver holds {path} to 6.00 GiB of {UUID}\n");
        assert_eq!(set(&counted, &path, "6GiB").clean(), said);

        let bare = || counted.machine().place(Run::new(compile::worker()));
        let (mut one, mut other) = (cgroup.worker(bare()), cgroup.worker(bare()));
        let left = LIMIT - 2 * CONTEXT;
        one.must(&format!("alloc 0 {}", 2 * GIB));
        let too_much = left - 2 * GIB + GRANULE;
        assert_eq!(other.code(&format!("alloc 0 {too_much}")), OUT_OF_MEMORY);
        other.must(&format!("alloc 0 {}", left - 2 * GIB));
        // A process outside the cgroup is not limited by it.
        let mut outside = counted.neighbour();
        outside.must(&format!("alloc 0 {}", 8 * GIB));
        drop((one, other, outside));

        // The next cgroup of that name is another one.
        let again = cgroup.folder.clone();
        drop(cgroup);
        fs::create_dir(&again).unwrap();
        let cgroup = Cgroup { folder: again };
        cgroup.worker(bare()).must(&format!("alloc 0 {}", 8 * GIB));
    }
}

/// What the simulated driver keeps of a cgroup: soft and hard limit, and dmem.min with what it has
/// gathered from the cgroups below.
fn kept(counted: &Counted, cgroup: &str) -> (Option<(u64, u64)>, u64) {
    let machine = Machine::open(&counted.machine().state()).unwrap();
    let limit = machine.limit(0, cgroup);
    let limit = limit.map(|limit| (limit.soft, limit.hard));
    (limit, machine.guaranteed(0, cgroup))
}

#[test]
fn no_guarantee_is_left_in_ancestors_when_containers_have_ended() {
    end_containers("left", 20, |round| round % 2 == 0);
}

/// `make limits` runs it.
#[test]
#[ignore = "ten thousand containers take minutes"]
fn no_guarantee_is_left_after_ten_thousand_containers() {
    end_containers("ten-thousand", 10_000, |_| true);
}

/// Ends containers, each a process in a cgroup with a limit of the driver, by SIGKILL or by SIGTERM.
/// Then the cgroup is removed, and nothing is set to 0 before.
fn end_containers(name: &str, number: u32, is_killed: fn(u32) -> bool) {
    let Some((above, leaf)) = two_levels(name) else {
        return;
    };
    let counted = Counted::new(DMEM, LIMIT);
    let _first = counted.neighbour();
    let leaf_path = path(&leaf);
    drop(leaf);
    for round in 0..number {
        fs::create_dir(&leaf_path).unwrap();
        let leaf = Cgroup {
            folder: PathBuf::from(&leaf_path),
        };
        let _ = set(&counted, &leaf_path, "6GiB").clean();
        assert_eq!(kept(&counted, &leaf_path), (Some((0, LIMIT)), 0));
        let mut sleeper = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        leaf.takes(sleeper.id());
        if is_killed(round) {
            sleeper.kill().unwrap();
        } else {
            let pid = sleeper.id().to_string();
            let ended = std::process::Command::new("kill")
                .args(["-TERM", &pid])
                .status();
            assert!(ended.unwrap().success());
        }
        sleeper.wait().unwrap();
        drop(leaf);
        assert_eq!(kept(&counted, &path(&above)), (None, 0), "after {round}");
    }
}

#[test]
fn a_guarantee_that_is_asked_for_stays_in_ancestors_until_it_is_zeroed() {
    let Some((above, leaf)) = two_levels("guarantee") else {
        return;
    };
    let counted = Counted::new(DMEM, LIMIT);
    let _first = counted.neighbour();
    let with = |guarantee: &str| {
        let run = Run::new(place::gpuslice()).args(["driver-limit", "--cgroup", &path(&leaf)]);
        let run = run.args([
            "--device",
            UUID,
            "--memory",
            "6GiB",
            "--guarantee",
            guarantee,
        ]);
        counted.machine().place(run).answer()
    };
    let _ = with("2GiB").clean();
    assert_eq!(kept(&counted, &path(&leaf)).0, Some((2 * GIB, LIMIT)));
    assert_eq!(kept(&counted, &path(&above)), (None, 2 * GIB));
    let too_much = with("7GiB");
    assert_eq!(too_much.end, "exit 125");
    let wanted = "gpuslice: --guarantee 7.00 GiB is more than --memory 6.00 GiB\n";
    assert_eq!(too_much.stderr, wanted);
    // The driver keeps it when the cgroup is removed.
    drop(leaf);
    assert_eq!(kept(&counted, &path(&above)), (None, 2 * GIB));
}

#[test]
fn a_slice_within_the_drivers_limit_is_as_large_as_it_says() {
    for scenario in [DMEM, MISC] {
        let counted = Counted::new(scenario, LIMIT);
        let Some(cgroup) = Cgroup::new("slice") else {
            return;
        };
        let path = cgroup.folder.display().to_string();
        let _ = set(&counted, &path, "6GiB").clean();
        let mut worker = cgroup.worker(counted.run(compile::worker()));
        let free = LIMIT - CONTEXT;
        assert_eq!(worker.info(), Said { total: LIMIT, free });
        assert_eq!(worker.nvml(), [free, LIMIT, CONTEXT]);
        worker.must(&format!("alloc 0 {free}"));
        assert_eq!(worker.code("alloc 1 1"), OUT_OF_MEMORY);
        drop(worker);

        // The same by every API and every route, also by the one that knows of the driver's limit.
        let script = format!("echo $$ > {path}/cgroup.procs && exec \"$@\"");
        let run = Run::new("sh").args(["-c", &script, "sh"]);
        let run = run
            .arg(place::gpuslice())
            .args(["check", "--sim", scenario, "--memory", "6GiB"]);
        let state = counted.machine().state();
        let answer = run.env("GPUSLICE_SIM_STATE", state).answer();
        assert_eq!(answer.end, "exit 0", "{answer:?}");
    }
}
