//! Half-written records: the files that runs and containers keep on the host are cut at any byte.
//! Touches: hosts of their own. Needs root.

use super::bench::containers::ContainerHost;
use super::bench::host::{Host, ends, succeeds};
use super::row::{Fault, Outcome, Row, injections, is_root, not_run, right, spread};
use gpuslice_suite::worker::Worker;
use std::fs;
use std::path::PathBuf;

const NEEDS_ROOT: &str = "a host of its own needs root";

/// The small files that a run has on its host, apart from the ledger and the simulated machine. The
/// records of admission are left out: see LIMITS.md.
fn records(host: &Host) -> Vec<PathBuf> {
    let is_record = |path: &PathBuf| {
        let Ok(facts) = fs::symlink_metadata(path) else {
            return false;
        };
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        facts.is_file()
            && facts.len() > 0
            && facts.len() < 60_000
            && !name.starts_with("ledger")
            && !["machine", "alive", "meminfo"].contains(&&*name)
            && !path.components().any(|part| part.as_os_str() == "tenants")
    };
    host.new_files().into_iter().filter(is_record).collect()
}

/// Starts a run of 8 GiB on `host`, whose program waits for commands.
fn run(host: &Host) -> Worker {
    let program = gpuslice_suite::compile::worker().display().to_string();
    let mut worker = Worker::start(host.slice("8GiB", &[&program]));
    worker.must("start 0");
    worker
}

/// One record of a running slice is cut to a part of its length.
fn cut(host: &Host, case: usize, of: usize) -> Outcome {
    let mut worker = run(host);
    let records = records(host);
    right(!records.is_empty(), || "a run has no records".into())?;
    let record = &records[case % records.len()];
    let text = fs::read(record).unwrap_or_default();
    let length = text.len() * (case / records.len()) / (of / records.len() + 1);
    let file = fs::File::options().write(true).open(record);
    let is_cut = file.and_then(|file| file.set_len(length as u64));
    let case = format!(
        "{} cut to {length} of {} bytes",
        record.display(),
        text.len()
    );
    right(is_cut.is_ok(), || format!("{case}: {is_cut:?}"))?;
    let outcome = beside_cut_record(host, &mut worker);
    worker.kill();
    let collected = host
        .is_idle()
        .and_then(|()| succeeds(host.gpuslice(&["gc", "--force"])));
    let named = |fault| match fault {
        Fault::Wrong(said) => Fault::Wrong(format!("{case}: {said}")),
        Fault::Hang(said) => Fault::Hang(format!("{case}: {said}")),
        Fault::Leak(said) => Fault::Leak(format!("{case}: {said}")),
    };
    outcome
        .and(collected.map(drop))
        .and_then(|()| host.is_as_new())
        .map_err(named)
}

/// Commands read the record, and none of them crashes or promises the memory a second time.
fn beside_cut_record(host: &Host, worker: &mut Worker) -> Outcome {
    for words in [
        &["status", "--json"][..],
        &["gc"],
        &["report"],
        &["events"],
        &["history"],
    ] {
        let said = ends(host.gpuslice(words))?;
        let is_known = ["exit 0", "exit 1", "exit 125"].contains(&&*said.end);
        right(is_known && !said.stderr.contains("panicked"), || {
            format!("{words:?}: {said:?}")
        })?;
    }
    let twice = ends(host.slice("20GiB", &["true"]))?;
    right(twice.end == "exit 125", || {
        format!("the memory is promised twice: {twice:?}")
    })?;
    let info = worker.info();
    right(info.total == 8 << 30, || format!("{info:?}"))?;
    let refused = worker.code(&format!("alloc 0 {}", 8u64 << 30));
    right(refused == 2, || {
        format!("the whole slice is granted: {refused}")
    })
}

#[test]
fn half_a_record_of_a_run_promises_no_memory_twice() {
    const NAME: &str = "half-records-run";
    const TITLE: &str = "Half-written records of a run: each file is cut at any byte";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    let host = Host::new();
    let count = injections(5);
    for case in 0..count {
        row.inject(format!("case {case}"), || cut(&host, case, count));
    }
    row.finish();
}

/// The record of a running container is cut.
fn cut_record_of_container(host: &ContainerHost, part: usize, of: usize) -> Outcome {
    let container = host.container("cut", "16GiB");
    let said = container.hook("createRuntime");
    right(said.end == "exit 0", || format!("{said:?}"))?;
    let record = host.path("run/gpuslice/slices/cut.json");
    let length = fs::metadata(&record).map_or(0, |facts| facts.len()) * part as u64 / of as u64;
    let file = fs::File::options()
        .write(true)
        .open(&record)
        .expect("the record");
    file.set_len(length).expect("a length");
    let other = host.container("other", "16GiB");
    let said = other.hook("createRuntime");
    right(said.end == "exit 1", || {
        format!("{length} bytes: promised twice: {said:?}")
    })?;
    drop(other);
    container.ends()?;
    host.is_as_new()
}

#[test]
fn half_a_record_of_a_container_promises_no_memory_twice() {
    const NAME: &str = "half-records-container";
    const TITLE: &str = "Half-written records of a container: cut at any byte";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    let host = ContainerHost::new();
    let count = injections(10);
    for part in 0..count {
        row.inject(format!("{part} of {count}"), || {
            cut_record_of_container(&host, part, count)
        });
    }
    row.finish();
}

/// The list of GPUs is cut: no container starts by it, and the whole list serves again.
fn cut_list(host: &ContainerHost, part: usize, of: usize) -> Outcome {
    let list = host.path("run/gpuslice/devices.json");
    let whole = fs::read(&list).expect("the list");
    fs::write(&list, &whole[..whole.len() * part / of]).expect("written");
    let container = host.container("listless", "8GiB");
    let said = container.hook("createRuntime");
    let is_told = said.end == "exit 1" && said.stderr.contains("devices.json");
    fs::write(&list, &whole).expect("written");
    right(is_told, || format!("{said:?}"))?;
    drop(container);
    host.is_as_new()
}

#[test]
fn half_a_list_of_gpus_starts_no_container() {
    const NAME: &str = "half-device-list";
    const TITLE: &str = "A half-written list of GPUs: cut at any byte";
    if !is_root() {
        return not_run(NAME, TITLE, NEEDS_ROOT);
    }
    let mut row = Row::new(NAME, TITLE);
    let host = ContainerHost::new();
    let count = injections(8);
    for part in spread(count, count) {
        row.inject(format!("{part} of {count}"), || {
            cut_list(&host, part, count)
        });
    }
    row.finish();
}
