//! What a process needs runs out: descriptors, address space, the memory of its cgroup, stack; and
//! threads are cancelled.
//! Touches: a slice with a witness; memory cgroups of its own, where this machine lets it.

use super::bench::life::Judge;
use super::bench::slice::Bench;
use super::row::{Outcome, Row, injections, is_root, not_run, right, spread};
use std::fs;
use std::path::{Path, PathBuf};

/// A life with a fault that the program injects itself. It ends with a second life, which has to be
/// right in every way.
fn lives(bench: &mut Bench, name: &str, judge: Judge, words: &[&str]) -> Outcome {
    let answer = bench.life(name, judge).args(words).answer();
    judge.answer(&answer)?;
    bench.is_clean()
}

#[test]
fn without_descriptors_nothing_exceeds_the_limit_and_with_them_all_is_well() {
    let mut row = Row::new(
        "descriptors",
        "Descriptors are exhausted: only 0 to 39 are left",
    );
    let mut bench = Bench::new();
    for left in spread(40, injections(14)) {
        let left = left.to_string();
        let words = ["descriptors", &left];
        row.inject(&left, || lives(&mut bench, "life", Judge::Safely, &words));
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

#[test]
fn without_address_space_nothing_exceeds_the_limit_and_with_it_all_is_well() {
    let mut row = Row::new(
        "address-space",
        "Address space is exhausted: 0 to 6 MiB are left",
    );
    let mut bench = Bench::new();
    for left in spread(1536, injections(14)) {
        let left = (left * 4).to_string();
        let words = ["address-space", &left];
        row.inject(format!("{left} KiB"), || {
            lives(&mut bench, "life", Judge::Safely, &words)
        });
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

#[test]
fn threads_with_stacks_of_16_kib_get_right_answers() {
    let mut row = Row::new("small-stacks", "Stacks of 16 KiB: a life in such a thread");
    let mut bench = Bench::new();
    for round in 0..injections(4) {
        row.inject(round, || {
            lives(
                &mut bench,
                "life_threads",
                Judge::Strictly,
                &["stack", "16"],
            )
        });
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

#[test]
fn cancelled_threads_leave_no_lock_and_no_more_than_they_hold() {
    let mut row = Row::new(
        "cancelled-threads",
        "25 threads that allocate are cancelled at any moment",
    );
    let mut bench = Bench::new();
    for round in 0..injections(4) {
        let seed = round.to_string();
        row.inject(format!("seed {seed}"), || {
            lives(
                &mut bench,
                "life_threads",
                Judge::Strictly,
                &["cancel", "25", &seed],
            )
        });
    }
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}

/// A memory cgroup of version 1 or 2 with a limit.
struct MemoryCgroup {
    folder: PathBuf,
    limit: &'static str,
}

impl MemoryCgroup {
    fn new() -> Option<MemoryCgroup> {
        let name = format!("gpuslice-faults-{}", std::process::id());
        let one = Path::new("/sys/fs/cgroup/memory");
        let two = Path::new("/sys/fs/cgroup");
        let has_two = fs::read_to_string(two.join("cgroup.subtree_control"))
            .is_ok_and(|on| on.split_whitespace().any(|name| name == "memory"));
        let (mount, limit) = match has_two {
            true => (two, "memory.max"),
            false => (one, "memory.limit_in_bytes"),
        };
        let folder = mount.join(name);
        let is_made = mount.join("cgroup.procs").exists() && fs::create_dir(&folder).is_ok();
        is_made.then_some(MemoryCgroup { folder, limit })
    }

    fn limit(&self, bytes: usize) -> Outcome {
        let file = self.folder.join(self.limit);
        let written = fs::write(&file, bytes.to_string());
        right(written.is_ok(), || {
            format!("{}: {written:?}", file.display())
        })
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The program enters the cgroup and lives there; the kernel may kill it.
fn lives_in(bench: &mut Bench, cgroup: &MemoryCgroup, bytes: usize) -> Outcome<bool> {
    // What the process before has left in the cgroup would keep the limit from being lowered.
    cgroup.limit(1 << 30)?;
    let _ = fs::write(cgroup.folder.join("memory.force_empty"), "0");
    cgroup.limit(bytes)?;
    let program = super::bench::life::program("life");
    let script = "echo $$ >\"$PROCS\" && exec \"$0\" \"$@\"";
    let run = bench.slice.run("sh").args(["-c", script]).arg(program);
    let run = run.args(["safely", &super::bench::slice::LIMIT.to_string()]);
    let answer = run
        .env("PROCS", cgroup.folder.join("cgroup.procs"))
        .answer();
    let is_killed = answer.end == "signal 9";
    if !is_killed {
        Judge::Safely.answer(&answer)?;
    }
    bench.is_clean()?;
    Ok(is_killed)
}

#[test]
fn a_program_that_the_kernel_kills_for_memory_leaves_its_slice_as_it_was() {
    const NAME: &str = "host-memory";
    const TITLE: &str = "The memory of its cgroup is gone: the kernel kills the program";
    let cgroup = if is_root() { MemoryCgroup::new() } else { None };
    let Some(cgroup) = cgroup else {
        return not_run(NAME, TITLE, "no memory cgroup can be made here");
    };
    let mut row = Row::new(NAME, TITLE);
    let mut bench = Bench::new();
    let mut killed = 0;
    for step in spread(96, injections(16)) {
        let bytes = (128 + 32 * step) << 10;
        row.inject(format!("{} KiB", bytes >> 10), || {
            killed += u32::from(lives_in(&mut bench, &cgroup, bytes)?);
            Ok(())
        });
    }
    row.check("the kernel has killed", || {
        right(killed > 0, || "nobody".into())
    });
    row.check("after the last process", || bench.ends_empty());
    row.finish();
}
