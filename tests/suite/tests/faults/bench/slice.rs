//! A slice with a witness: a process that holds memory in it, and whose answers must stay right
//! whatever happens to other processes of the slice.
//! Touches: a slice with a ledger on a simulated card, and its processes.

use super::super::row::{Fault, Outcome, right};
use super::life::{self, Judge};
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Silence, Worker};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The limit of the slice.
pub(crate) const LIMIT: u64 = 8 * GIB;
/// How long one answer may take. A program that stops while it measures its context delays others
/// by two seconds, once; the rest is for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The slice, and its witness.
pub(crate) struct Bench {
    pub(crate) slice: Counted,
    pub(crate) witness: Worker,
    free: u64,
    descriptors: usize,
    files: BTreeSet<PathBuf>,
}

impl Bench {
    /// A slice of an RTX 3090, whose witness holds 1 GiB.
    pub(crate) fn new() -> Bench {
        Bench::with(&json!({}))
    }

    /// Like [`Bench::new`], with further keys of the slice file.
    pub(crate) fn with(keys: &Value) -> Bench {
        let mut all = json!({"memory": LIMIT});
        for (key, value) in keys.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        let slice = Counted::with("rtx3090", &all);
        let mut witness = slice.worker();
        witness.must(&format!("alloc 0 {GIB}"));
        // NVML is initialised, and the size of a context is known, before anything is injected.
        witness.nvml();
        let free = witness.free();
        let (descriptors, files) = (descriptors(witness.pid()), files(slice.folder()));
        Bench {
            slice,
            witness,
            free,
            descriptors,
            files,
        }
    }

    /// A program in the slice that lives once, and is judged so.
    pub(crate) fn life(&self, name: &str, judge: Judge) -> Run {
        let run = self.slice.run(life::program(name)).arg(judge.word());
        run.arg(LIMIT.to_string()).env("GPUSLICE_LOG", "off")
    }

    /// Asks the witness.
    pub(crate) fn ask(&mut self, line: &str) -> Outcome<Vec<i64>> {
        answer(&mut self.witness, line)
    }

    /// Asserts that the witness's answers are right and complete, beside other processes that may
    /// hold memory.
    pub(crate) fn goes_on(&mut self) -> Outcome {
        let info = self.ask("info")?;
        let [0, free, total] = info[..] else {
            return Err(Fault::Wrong(format!("cuMemGetInfo: {info:?}")));
        };
        let (free, total) = (free.cast_unsigned(), total.cast_unsigned());
        right(total == LIMIT && free <= self.free, || {
            format!("free {free} of {total}")
        })?;
        // Another process may hold all the rest.
        let code = if free < 4 << 20 { OUT_OF_MEMORY } else { 0 };
        let said = self.ask("alloc 1 4194304")?;
        right(said == [i64::from(code)], || {
            format!("an allocation of 4 MiB while {free} is free: {said:?}")
        })?;
        self.ask("free 1")?;
        let refused = self.ask(&format!("alloc 1 {LIMIT}"))?;
        let is_refused = refused == [i64::from(OUT_OF_MEMORY)];
        right(is_refused, || {
            format!("an allocation of the whole slice: {refused:?}")
        })
    }

    /// Asserts that only the witness is left: every number is what it was at first, what is reported
    /// as free is granted, and no descriptor and no file was left behind.
    pub(crate) fn is_clean(&mut self) -> Outcome {
        self.only(1)?;
        let info = self.ask("info")?;
        let expected = [0, self.free.cast_signed(), LIMIT.cast_signed()];
        right(info == expected, || {
            format!("CUDA reports {info:?}, not {expected:?}")
        })?;
        let nvml = self.ask("nvml")?;
        let used = LIMIT - self.free;
        let expected = [0, self.free, LIMIT, used].map(u64::cast_signed);
        right(nvml == expected, || {
            format!("NVML reports {nvml:?}, not {expected:?}")
        })?;
        let (held, counted) = (self.slice.held(), self.slice.counted());
        right(held == counted && counted == used, || {
            format!("{counted} counted, {held} held, {used} used")
        })?;
        for (line, code) in [
            (format!("alloc 1 {}", self.free), 0),
            ("alloc 2 2097152".to_owned(), OUT_OF_MEMORY),
            ("free 1".to_owned(), 0),
        ] {
            let said = self.ask(&line)?;
            right(said == [i64::from(code)], || {
                format!("{line}: {said:?}, not {code}")
            })?;
        }
        let descriptors = descriptors(self.witness.pid());
        if descriptors != self.descriptors {
            return Err(Fault::Leak(format!(
                "{descriptors} descriptors, not {}",
                self.descriptors
            )));
        }
        let left: Vec<_> = files(self.slice.folder())
            .difference(&self.files)
            .cloned()
            .collect();
        match left.is_empty() {
            true => Ok(()),
            false => Err(Fault::Leak(format!("files: {left:?}"))),
        }
    }

    /// Waits until only this number of processes hold memory. The kernel needs a moment to release
    /// the locks of dead ones.
    pub(crate) fn only(&self, living: usize) -> Outcome {
        let start = Instant::now();
        loop {
            let records = self.slice.records();
            if records.len() == living {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                return Err(Fault::Leak(format!(
                    "{living} live, but the ledger has {records:?}"
                )));
            }
            std::thread::yield_now();
        }
    }

    /// Ends the witness, and asserts that the ledger is back at 0 bytes.
    pub(crate) fn ends_empty(self) -> Outcome {
        let Bench { slice, witness, .. } = self;
        witness.kill();
        let start = Instant::now();
        while !slice.records().is_empty() {
            if start.elapsed() > PATIENCE {
                return Err(Fault::Leak(format!("{:?}", slice.records())));
            }
            std::thread::yield_now();
        }
        match (slice.counted(), slice.held()) {
            (0, 0) => Ok(()),
            left => Err(Fault::Leak(format!("counted and held: {left:?}"))),
        }
    }
}

/// Asks a worker, and waits a limited time.
pub(crate) fn answer(worker: &mut Worker, line: &str) -> Outcome<Vec<i64>> {
    worker
        .try_ask(line, PATIENCE)
        .map_err(|silence| match silence {
            Silence::Ended => Fault::Wrong(format!("the worker has ended at `{line}`")),
            Silence::Late => Fault::Hang(format!("no answer to `{line}` within {PATIENCE:?}")),
        })
}

/// The number of descriptors that a process has open.
pub(crate) fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// All files below a folder.
pub(crate) fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
            found.insert(entry.path());
        }
    }
    found
}
