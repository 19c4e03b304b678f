//! The driver's own limits, per cgroup: set by `gpuslice driver-limit`, held by the driver, and
//! never taken off twice.
//! Touches: workers on simulated machines; cgroups of its own, where this machine lets it.

use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, GRANULE, OUT_OF_MEMORY, Said, Worker};
use gpuslice_suite::{compile, slice};
use std::fs;
use std::path::PathBuf;

const UUID: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";
const TOTAL: u64 = 25_438_126_080;
const LIMIT: u64 = 6 * GIB;
const CONTEXT: u64 = 254 << 20;

/// A folder for a cgroup of version 2, which goes with it.
struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// None where this machine does not let us, which is then said.
    fn new(name: &str) -> Option<Cgroup> {
        let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
        let mount = mounts
            .iter()
            .find(|mount| mount.join("cgroup.controllers").exists());
        let folder =
            mount.map(|mount| mount.join(format!("gpuslice-{name}-{}", std::process::id())));
        let made = folder.filter(|folder| fs::create_dir(folder).is_ok());
        if made.is_none() {
            eprintln!("not run: no cgroup can be made here ({name})");
        }
        made.map(|folder| Cgroup { folder })
    }

    fn takes(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// A worker in it, with a context.
    fn worker(&self, run: Run) -> Worker {
        let mut worker = Worker::start(run);
        self.takes(worker.pid());
        worker.must("start 0");
        worker
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel needs a moment to see that the last process is gone.
        while fs::remove_dir(&self.folder).is_err_and(|error| error.raw_os_error() == Some(16)) {
            std::thread::yield_now();
        }
    }
}

/// A card whose driver has limits, as a scenario's file.
fn scenario(folder: &tempfile::TempDir) -> String {
    let text = include_str!("../../sim/scenarios/rtx3090.toml");
    let newer = text.replace("cuda = 13000", "cuda = 13050");
    assert_ne!(text, newer);
    let file = folder.path().join("newer.toml");
    slice::write(&file, newer.as_bytes());
    file.display().to_string()
}

fn set(counted: &Counted, cgroup: &str, memory: &str) -> Answer {
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
            "gpuslice: the driver has no limits per cgroup (nvmlDeviceSetMemoryLimits_v1 answers \
             3): the library alone holds the slice\n",
            "exit 3"
        )
    );
}

#[test]
fn a_limit_that_the_driver_refuses_is_an_error_that_names_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let counted = Counted::new(&scenario(&folder), LIMIT);
    let answer = set(&counted, "/sys/fs/cgroup/no/such/cgroup", "6GiB");
    let refused = match Cgroup::new("refused") {
        Some(_) => "answers 6 (Not Found)",
        // Without root the driver does not get as far.
        None => "answers 4 (Insufficient Permissions)",
    };
    assert_eq!(answer.end, "exit 125");
    assert!(answer.stderr.contains(refused), "{answer:?}");
}

#[test]
fn the_driver_holds_all_of_a_cgroup_to_its_limit_and_forgets_it_with_the_cgroup() {
    let folder = tempfile::tempdir().unwrap();
    let counted = Counted::new(&scenario(&folder), LIMIT);
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
    // Who is not in it, is not held to it.
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

#[test]
fn a_slice_within_the_drivers_limit_is_as_large_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = scenario(&folder);
    let counted = Counted::new(&scenario, LIMIT);
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
        .args(["check", "--sim", &scenario, "--memory", "6GiB"]);
    let state = counted.machine().state();
    let answer = run.env("GPUSLICE_SIM_STATE", state).answer();
    assert_eq!(answer.end, "exit 0", "{answer:?}");
}

#[test]
fn a_driver_limit_below_the_slice_is_the_one_that_holds() {
    let folder = tempfile::tempdir().unwrap();
    let counted = Counted::new(&scenario(&folder), LIMIT);
    let Some(cgroup) = Cgroup::new("below") else {
        return;
    };
    let _ = set(&counted, &cgroup.folder.display().to_string(), "4GiB").clean();
    let mut worker = cgroup.worker(counted.run(compile::worker()));
    let fits = 4 * GIB - CONTEXT;
    assert_eq!(
        worker.code(&format!("alloc 0 {}", fits + GRANULE)),
        OUT_OF_MEMORY
    );
    // What the driver has refused is not held in the ledger.
    assert_eq!(counted.counted(), CONTEXT);
    worker.must(&format!("alloc 0 {fits}"));
    assert_eq!((counted.counted(), counted.held()), (4 * GIB, 4 * GIB));
    assert!(counted.held() < TOTAL);
}
