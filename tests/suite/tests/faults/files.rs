//! File systems that are full or broken: ENOSPC and EIO on tmpfs and on disk, and at each system
//! call of a program and of `gpuslice run`.
//! Touches: hosts of their own, loop devices; traced programs. Needs root.

use super::bench::containers::ContainerHost;
use super::bench::host::{EXECS, Host, PATIENCE, ends, succeeds};
use super::bench::life::{self, Judge};
use super::bench::slice::{Bench, LIMIT};
use super::bench::trace::{Act, CAN_FAIL_CALLS, Call, Director, trace};
use super::row::{Outcome, Row, injections, is_root, not_run, right, spread};
use gpuslice_suite::run::{Answer, Run};
use std::collections::BTreeSet;

const NEEDS_ROOT: &str = "a host of its own needs root";

/// A run of a life either does not start, and names the reason, or has its slice.
fn starts_or_says_why(answer: &Answer) -> Outcome {
    let is_refused = answer.end == "exit 125" && answer.stderr.starts_with("gpuslice: ");
    let is_well = answer.end == life::LIVED || answer.end == life::REFUSED;
    right(is_refused || is_well, || format!("{answer:?}"))
}

/// Runs a life on a host whose `folder` has only so many pages left.
fn on_full(host: &Host, folder: &str, pages: usize) -> Outcome {
    let fill = format!(
        "mount -o remount,size=1G {folder} && used=$(df -B4096 --output=used {folder} | tail -n1) && \
         mount -o remount,size=$(((used + {pages}) * 4096)) {folder}"
    );
    succeeds(host.run("sh").args(["-c", &fill]))?;
    let answer = ends(host.life(Judge::Safely))?;
    succeeds(host.run("mount").args(["-o", "remount,size=1G", folder]))?;
    starts_or_says_why(&answer)?;
    host.is_as_new()
}

fn full(name: &'static str, title: &'static str, folder: &str, most: usize, by_default: usize) {
    if !is_root() {
        return not_run(name, title, NEEDS_ROOT);
    }
    let mut row = Row::new(name, title);
    let host = Host::new();
    // tmpfs takes a size of 0 for no limit, and the folder itself needs one page.
    for pages in spread(most, injections(by_default)) {
        row.inject(format!("{pages} pages left"), || {
            on_full(&host, folder, pages + 1)
        });
    }
    row.finish();
}

#[test]
fn a_run_on_a_full_dev_shm_has_its_slice_or_does_not_start() {
    full(
        "enospc-shm",
        "ENOSPC on tmpfs: /dev/shm is full at any page",
        "/dev/shm",
        60,
        5,
    );
}

#[test]
fn a_run_on_a_full_run_has_its_slice_or_does_not_start() {
    full(
        "enospc-run",
        "ENOSPC on tmpfs: /run is full at any page",
        "/run",
        12,
        3,
    );
}

/// A disk of this many KiB at /mnt/disk: a file system on a loop device, whose file is on tmpfs.
fn mount_disk(host: &Host, kib: usize) -> Outcome {
    let script = format!(
        "mkdir -p /mnt/disk && truncate -s {kib}K /mnt/image && \
         mkfs.ext4 -q -F -m 0 -O ^has_journal /mnt/image && mount -o loop,errors=continue /mnt/image /mnt/disk"
    );
    succeeds(host.run("sh").args(["-c", &script])).map(drop)
}

fn unmount_disk(host: &Host) -> Outcome {
    let script = "umount /mnt/disk && rm -r /mnt/disk /mnt/image";
    succeeds(host.run("sh").args(["-c", script])).map(drop)
}

/// A host on which a disk can be mounted. If there is none, the row is reported as not run.
fn host_with_disk(name: &'static str, title: &'static str) -> Option<Host> {
    if !is_root() {
        not_run(name, title, NEEDS_ROOT);
        return None;
    }
    let host = Host::new();
    if !has_disk(&host) {
        not_run(name, title, "no loop device can be mounted here");
        return None;
    }
    Some(host)
}

/// Whether a loop device can be mounted here.
fn has_disk(host: &Host) -> bool {
    mount_disk(host, 512)
        .and_then(|()| unmount_disk(host))
        .is_ok()
}

/// A run that keeps its log, its events and its private folder on the disk.
fn life_on_disk(host: &Host) -> Run {
    let run = host
        .life(Judge::Safely)
        .env("XDG_STATE_HOME", "/mnt/disk/state");
    run.env("GPUSLICE_LOG", "info")
        .env("GPUSLICE_LOG_FILE", "/mnt/disk/log")
}

fn on_full_disk(host: &Host, blocks: usize) -> Outcome {
    mount_disk(host, 512)?;
    let fill = format!(
        "mkdir /mnt/disk/state; cd /mnt/disk; avail=$(df -B1024 --output=avail . | tail -n1); \
         head -c $(((avail - {blocks}) * 1024)) /dev/zero >filler"
    );
    let outcome = succeeds(host.run("sh").args(["-c", &fill])).and_then(|_| {
        // What is not on the disk does not need it: the program lives.
        let answer = ends(life_on_disk(host))?;
        right(answer.end == life::LIVED, || format!("{answer:?}"))?;
        host.is_idle()
    });
    unmount_disk(host)?;
    outcome?;
    host.is_as_new()
}

#[test]
fn a_full_disk_below_log_and_events_stops_no_run() {
    const NAME: &str = "enospc-disk";
    const TITLE: &str = "ENOSPC on disk: the disk of log and events is full at any block";
    let Some(host) = host_with_disk(NAME, TITLE) else {
        return;
    };
    let mut row = Row::new(NAME, TITLE);
    for blocks in spread(16, injections(3)) {
        row.inject(format!("{blocks} KiB left"), || on_full_disk(&host, blocks));
    }
    row.finish();
}

/// The device below a mounted disk loses its data: every access that is not cached fails with EIO.
fn on_broken_disk(host: &Host, round: usize) -> Outcome {
    mount_disk(host, 2048)?;
    // The slice file is on the disk, or only what a run can do without.
    let slice = format!("{{\"version\":1,\"memory\":{}}}", 8u64 << 30);
    let broken = std::fs::write(host.path("/mnt/disk/slice.json"), slice)
        .and_then(|()| std::fs::create_dir(host.path("/mnt/disk/state")));
    right(broken.is_ok(), || format!("{broken:?}"))?;
    // Mounted again, no file is in the page cache.
    let script = "umount /mnt/disk && mount -o loop,errors=continue /mnt/image /mnt/disk && \
                  truncate -s 0 /mnt/image";
    succeeds(host.run("sh").args(["-c", script]))?;
    let outcome = match round % 2 {
        0 => {
            let answer = ends(life_on_disk(host));
            answer.and_then(|answer| right(answer.end == life::LIVED, || format!("{answer:?}")))
        }
        _ => {
            let program = life::program("life").display().to_string();
            let words = [
                "run",
                "--sim",
                "rtx3090",
                "--config",
                "/mnt/disk/slice.json",
                "--",
                &program,
            ];
            let run = host.gpuslice(&words).args(["safely", &LIMIT.to_string()]);
            ends(run).and_then(|answer| starts_or_says_why(&answer))
        }
    };
    let idle = host.is_idle();
    unmount_disk(host)?;
    outcome?;
    idle?;
    host.is_as_new()
}

#[test]
fn a_broken_disk_stops_no_run_that_does_not_need_it() {
    const NAME: &str = "eio-disk";
    const TITLE: &str = "EIO on disk: the device below log, events or slice file is lost";
    let Some(host) = host_with_disk(NAME, TITLE) else {
        return;
    };
    let mut row = Row::new(NAME, TITLE);
    for round in 0..injections(2) {
        row.inject(format!("round {round}"), || on_broken_disk(&host, round));
    }
    row.finish();
}

/// Fails one call after the program's `main` has begun, or after the command's start.
struct Failing {
    begun: bool,
    first: usize,
    at: usize,
    errno: i32,
    done: bool,
    /// The processes whose program the loader has started.
    loaded: BTreeSet<i32>,
}

impl Failing {
    fn new(begun: bool, at: usize, errno: i32) -> Failing {
        Failing {
            begun,
            first: 0,
            at,
            errno,
            done: false,
            loaded: BTreeSet::new(),
        }
    }

    /// Whether the loader asks for memory before it can report that there is none. It then ends by
    /// SIGSEGV, whatever the program is.
    fn is_loaders_memory(&mut self, call: &Call) -> bool {
        match call.number {
            libc::SYS_execve => drop(self.loaded.remove(&call.pid)),
            libc::SYS_set_robust_list => drop(self.loaded.insert(call.pid)),
            _ => {}
        }
        let is_anonymous = call.arguments[4] & 0xffff_ffff == 0xffff_ffff;
        call.number == libc::SYS_mmap && is_anonymous && !self.loaded.contains(&call.pid)
    }
}

/// Calls that cannot fail, or whose failure the kernel never reports in this way.
const NEVER: [i64; 7] = [
    // On failure it returns the old end of the heap.
    libc::SYS_brk,
    libc::SYS_exit_group,
    libc::SYS_exit,
    libc::SYS_rt_sigreturn,
    libc::SYS_execve,
    libc::SYS_getpid,
    libc::SYS_gettid,
];

impl Director for Failing {
    fn call(&mut self, call: &Call) -> Act {
        if !self.begun && call.number == life::MARK {
            (self.begun, self.first) = (true, call.index + 1);
        }
        let is_due = self.begun && !self.done && call.index >= self.first + self.at;
        let is_loaders = self.is_loaders_memory(call);
        if !is_due || is_loaders || NEVER.contains(&call.number) {
            return Act::Go;
        }
        self.done = true;
        Act::Fail(self.errno)
    }
}

/// Counts the calls of a life from its mark on.
#[derive(Default)]
struct FromMark {
    first: Option<usize>,
}

impl Director for FromMark {
    fn call(&mut self, call: &Call) -> Act {
        if call.number == life::MARK {
            self.first = Some(call.index + 1);
        }
        Act::Go
    }
}

const ERRNOS: [i32; 5] = [
    libc::ENOSPC,
    libc::EIO,
    libc::EMFILE,
    libc::ENOMEM,
    libc::EACCES,
];

#[test]
fn a_call_of_a_program_that_fails_lifts_no_limit() {
    const NAME: &str = "errno-program";
    const TITLE: &str =
        "Any system call of a program's life fails (ENOSPC, EIO, EMFILE, ENOMEM, EACCES)";
    if !CAN_FAIL_CALLS {
        return not_run(NAME, TITLE, "calls are failed on x86-64 only");
    }
    let mut row = Row::new(NAME, TITLE);
    let mut bench = Bench::new();
    let mut counter = FromMark::default();
    let whole = trace(
        bench.life("life", Judge::Strictly),
        0,
        PATIENCE,
        &mut counter,
    );
    let calls = whole.calls - counter.first.unwrap_or_default();
    for case in spread(calls * ERRNOS.len(), injections(40)) {
        let (at, errno) = (case / ERRNOS.len(), ERRNOS[case % ERRNOS.len()]);
        row.inject(format!("call {at} of {calls}, errno {errno}"), || {
            let mut failing = Failing::new(false, at, errno);
            let traced = trace(bench.life("life", Judge::Safely), 0, PATIENCE, &mut failing);
            Judge::Safely.traced(&traced)?;
            bench.is_clean()
        });
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

/// How a run ends that has said on stderr why its program did not start, or has no limit.
const REASONS: [(&str, &str); 7] = [
    ("exit 125", "gpuslice: "),
    ("exit 126", "gpuslice: "),
    // The reasons of the loader.
    ("exit 127", "error while loading"),
    ("exit 127", "cannot set up thread-local storage"),
    ("exit 4", "from LD_PRELOAD cannot be preloaded"),
    // No place for a ledger is known to be on tmpfs.
    ("exit 4", "neither counted nor refused"),
    // Rust's library ends a program at a failure that it holds to be impossible.
    ("signal 6", "panicked at /rustc/"),
];

fn fails_in_a_run(host: &Host, at: usize, errno: i32) -> Outcome {
    let mut failing = Failing::new(true, at, errno);
    let traced = trace(host.life(Judge::Safely), EXECS, PATIENCE, &mut failing);
    let is_said = REASONS
        .iter()
        .any(|(end, reason)| traced.end == *end && traced.stderr.contains(reason));
    let is_well = [life::LIVED, life::REFUSED].contains(&&*traced.end);
    right(!traced.is_late && (is_said || is_well), || {
        format!("{traced:?}")
    })?;
    host.is_as_new()
}

#[test]
fn a_call_of_a_run_that_fails_leaves_a_slice_or_a_reason() {
    const NAME: &str = "errno-run";
    const TITLE: &str =
        "Any system call of gpuslice run fails (ENOSPC, EIO, EMFILE, ENOMEM, EACCES)";
    if !is_root() || !CAN_FAIL_CALLS {
        return not_run(
            NAME,
            TITLE,
            "needs root, and calls are failed on x86-64 only",
        );
    }
    let mut row = Row::new(NAME, TITLE);
    let host = Host::new();
    let whole = trace(
        host.life(Judge::Strictly),
        EXECS,
        PATIENCE,
        &mut FromMark::default(),
    );
    let calls = whole.calls;
    for case in spread(calls * ERRNOS.len(), injections(8)) {
        let (at, errno) = (case / ERRNOS.len(), ERRNOS[case % ERRNOS.len()]);
        row.inject(format!("call {at} of {calls}, errno {errno}"), || {
            fails_in_a_run(&host, at, errno)
        });
    }
    row.finish();
}

#[test]
fn a_container_on_a_full_run_has_its_slice_or_does_not_start() {
    const NAME: &str = "enospc-hook";
    const TITLE: &str = "The host's /run is full at any page when a container starts";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    for pages in spread(64, injections(6)) {
        row.inject(format!("{pages} pages left"), || {
            let host = ContainerHost::new();
            host.mount_run(pages)?;
            let container = host.container("full", "24GiB");
            let said = container.hook("createRuntime");
            let is_refused = said.end == "exit 1" && said.stderr.starts_with("gpuslice: ");
            right(is_refused || said.end == "exit 0", || format!("{said:?}"))?;
            host.resize_run()?;
            match said.end == "exit 0" {
                true => container.ends()?,
                false => drop(container),
            }
            host.is_as_new()
        });
    }
    row.finish();
}
