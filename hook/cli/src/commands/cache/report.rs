//! Formats the results for files: as text, and as JSON.
//! Touches: its arguments.

use super::holders::Holder;
use crate::base::text::{self, aligned, printable};
use crate::base::{exit, json};
use gpuslice_config::words::units::Bytes;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Some of it is in the page cache.
    Cached,
    /// None of it is in the page cache.
    NotCached,
    /// Its pages were dropped.
    Dropped,
    /// Some of its pages could not be dropped now.
    Left,
    /// Its pages are the file itself; the value names the kind of filesystem.
    NotDroppable(&'static str),
    /// Unknown: the kernel reports it only to the file's owner.
    Unknown,
    /// The file cannot be opened.
    Unreadable,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Cached => "cached",
            State::NotCached => "not-cached",
            State::Dropped => "dropped",
            State::Left => "left",
            State::NotDroppable(_) => "not-droppable",
            State::Unknown => "unknown",
            State::Unreadable => "unreadable",
        }
    }
}

impl Serialize for State {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.word())
    }
}

/// The facts about a file.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FileReport {
    #[serde(serialize_with = "text::serialize_path")]
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) state: State,
    pub(super) before: Option<u64>,
    pub(super) after: Option<u64>,
    pub(super) dirty: Option<u64>,
    pub(super) counted_by: Option<&'static str>,
    pub(super) why: Option<String>,
    pub(super) mapped_by: Vec<Holder>,
}

impl FileReport {
    /// A report on a file about which no other facts are known.
    pub(super) fn new(path: PathBuf, size: u64, state: State) -> FileReport {
        FileReport {
            path,
            size,
            state,
            before: None,
            after: None,
            dirty: None,
            counted_by: None,
            why: match state {
                State::NotDroppable(kind) => Some(format!("{kind}: its pages are the file itself")),
                State::Unknown => Some(NOT_TOLD.to_owned()),
                _ => None,
            },
            mapped_by: Vec::new(),
        }
    }

    fn resident(&self) -> ResidentFile<'_> {
        ResidentFile {
            path: &self.path,
            size: self.size,
            state: self.state,
            before: self.before,
            dirty: self.dirty,
            counted_by: self.counted_by,
            why: self.why.as_deref(),
        }
    }

    fn name(&self) -> String {
        printable(&self.path.to_string_lossy())
    }

    /// Returns the reason for the file's state.
    fn reason(&self) -> String {
        if self.why.is_none() && self.mapped_by.is_empty() {
            return String::new();
        }
        let holders: Vec<String> = self.mapped_by.iter().map(Holder::shown).collect();
        match (&self.why, holders.is_empty()) {
            (Some(why), _) => printable(why),
            (None, false) => format!("mapped by {}", holders.join(", ")),
            (None, true) => String::new(),
        }
    }
}

const NOT_TOLD: &str =
    "only the owner, users who may write the file, and root may see how much is cached";

/// The complete report.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) files: Vec<FileReport>,
    pub(super) dry_run: bool,
    pub(super) seconds: f64,
    /// The processes whose mappings could not be read.
    pub(super) unseen_processes: Vec<Holder>,
}

/// The JSON of `drop-cache`.
#[derive(Serialize)]
struct DropJson<'a> {
    files: &'a [FileReport],
    before: u64,
    after: u64,
    seconds: f64,
    dry_run: bool,
    unseen_processes: &'a [Holder],
}

/// The JSON of `residency`.
#[derive(Serialize)]
struct ResidencyJson<'a> {
    files: Vec<ResidentFile<'a>>,
    before: u64,
    seconds: f64,
}

/// A file in the JSON of `residency`.
#[derive(Serialize)]
struct ResidentFile<'a> {
    #[serde(serialize_with = "text::serialize_path")]
    path: &'a Path,
    size: u64,
    state: State,
    before: Option<u64>,
    dirty: Option<u64>,
    counted_by: Option<&'static str>,
    why: Option<&'a str>,
}

impl Report {
    /// Creates a report on files.
    pub(super) fn new(files: Vec<FileReport>, took: Duration) -> Report {
        Report {
            files,
            dry_run: false,
            seconds: took.as_secs_f64(),
            unseen_processes: Vec::new(),
        }
    }

    /// Formats the report of `drop-cache` as JSON.
    ///
    /// # Errors
    /// When the report cannot be serialized.
    pub(super) fn drop_cache_json(&self) -> serde_json::Result<String> {
        json::document(&DropJson {
            files: &self.files,
            before: self.sum(|_| true, |file| file.before).get(),
            after: self.sum(|_| true, |file| file.after).get(),
            seconds: self.seconds,
            dry_run: self.dry_run,
            unseen_processes: &self.unseen_processes,
        })
    }

    /// Formats the report of `residency` as JSON.
    ///
    /// # Errors
    /// When the report cannot be serialized.
    pub(super) fn residency_json(&self) -> serde_json::Result<String> {
        json::document(&ResidencyJson {
            files: self.files.iter().map(FileReport::resident).collect(),
            before: self.sum(|_| true, |file| file.before).get(),
            seconds: self.seconds,
        })
    }

    fn sum(
        &self,
        of: impl Fn(&FileReport) -> bool,
        part: impl Fn(&FileReport) -> Option<u64>,
    ) -> Bytes {
        let parts = self.files.iter().filter(|file| of(file)).filter_map(part);
        parts.fold(Bytes::ZERO, |sum, part| sum.plus(Bytes::new(part)))
    }

    /// Formats the output of `gpuslice residency`: a line for each cached file, unless only the
    /// sums are wanted, and the sums.
    pub(super) fn residency(&self, summary: bool) -> String {
        let mut shown: Vec<&FileReport> = self
            .files
            .iter()
            .filter(|file| file.before != Some(0))
            .collect();
        // Unknown amounts come last.
        shown.sort_by_key(|file| (std::cmp::Reverse(file.before), &file.path));
        let mut rows = vec![["CACHED", "PART", "OF", "FILE"].map(str::to_owned)];
        for file in shown {
            let cached = file.before.map(Bytes::new);
            let name = match file.reason() {
                reason if reason.is_empty() => file.name(),
                reason => format!("{} ({reason})", file.name()),
            };
            rows.push([
                cached.map_or("?".to_owned(), |cached| cached.to_string()),
                part(file.before, file.size),
                Bytes::new(file.size).to_string(),
                name,
            ]);
        }
        let table = match summary {
            true => String::new(),
            false => aligned(&rows),
        };
        let is_known = |file: &&FileReport| file.before.is_some();
        let known = self.files.iter().filter(is_known).count();
        let cached = self.files.iter().filter(|file| file.before > Some(0));
        let size = |known: bool| {
            let is_one = move |file: &FileReport| file.before.is_some() == known;
            self.sum(is_one, |file| Some(file.size))
        };
        let unknown = self.files.len().saturating_sub(known);
        let sum = self.sum(|_| true, |file| file.before);
        let seen = format!(
            "{} of {} cached ({}), in {} of {}\n",
            sum,
            size(true),
            part(Some(sum.get()), size(true).get()),
            cached.count(),
            files(known),
        );
        let unseen = format!(
            "cached amount unknown for {} ({})\n",
            files(unknown),
            size(false),
        );
        match (known, unknown) {
            (_, 0) => format!("{table}{seen}"),
            (0, _) => format!("{table}{unseen}"),
            _ => format!("{table}{seen}{unseen}"),
        }
    }

    /// Formats the output of `gpuslice drop-cache`.
    pub(super) fn drop_cache(&self) -> String {
        let is = |state: State| move |file: &&FileReport| file.state == state;
        let mut rows = Vec::new();
        for file in &self.files {
            let (what, bytes) = match file.state {
                State::Left if self.dry_run => ("would leave", file.after),
                State::Left => ("left", file.after),
                State::NotDroppable(_) if file.before > Some(0) => ("not droppable", file.before),
                State::Unknown if self.dry_run => ("not known", None),
                State::Unknown => ("not verified", None),
                State::Unreadable => ("not seen", None),
                State::Cached if self.dry_run => ("would drop", file.before),
                _ => continue,
            };
            let bytes = bytes.map_or("?".to_owned(), |bytes| Bytes::new(bytes).to_string());
            rows.push([what.to_owned(), bytes, file.name(), file.reason()]);
        }
        let dropped = self.sum(
            |file| matches!(file.state, State::Dropped | State::Cached | State::Left),
            |file| Some(file.before?.saturating_sub(file.after?)),
        );
        let touched = self.files.iter().filter(is(State::Dropped)).count();
        let end = match self.dry_run {
            true => {
                let count = self.files.iter().filter(is(State::Cached)).count();
                format!("would drop {dropped} of {}\n", files(count))
            }
            false => format!(
                "dropped {dropped} of {}{}; {} before, {} after\n",
                files(touched),
                Rate(dropped, self.seconds),
                self.sum(|_| true, |file| file.before),
                self.sum(|_| true, |file| file.after),
            ),
        };
        let unseen = match self.dry_run || self.has(State::Left) {
            true => self.unseen(),
            false => String::new(),
        };
        format!("{}{unseen}{end}", aligned(&rows))
    }

    /// Names the processes whose mappings cannot be read.
    fn unseen(&self) -> String {
        const NAMED: usize = 5;
        let all = &self.unseen_processes;
        if all.is_empty() {
            return String::new();
        }
        let mut named: Vec<String> = all.iter().take(NAMED).map(Holder::shown).collect();
        let rest = all.len().saturating_sub(NAMED);
        if rest > 0 {
            named.push(format!("{rest} more"));
        }
        format!("mappings cannot be read of {}\n", named.join(", "))
    }

    fn has(&self, state: State) -> bool {
        self.files.iter().any(|file| file.state == state)
    }

    /// Returns the exit status of `gpuslice drop-cache`.
    pub(super) fn status(&self) -> u8 {
        let is_left = |file: &FileReport| {
            matches!(file.state, State::Left | State::Unknown | State::Unreadable)
        };
        match self.files.iter().any(is_left) {
            true => exit::LEFT,
            false => exit::SUCCESS,
        }
    }

    /// Returns the exit status of `gpuslice residency`.
    pub(super) fn residency_status(&self) -> u8 {
        match self.has(State::Unknown) || self.has(State::Unreadable) {
            true => exit::LEFT,
            false => exit::SUCCESS,
        }
    }
}

impl Holder {
    /// The process in a sentence.
    fn shown(&self) -> String {
        format!("{} (pid {})", printable(&self.name), self.pid)
    }
}

/// Formats a part of a whole in percent: `?` if it is unknown, `<1%` if it is not nothing.
fn part(part: Option<u64>, whole: u64) -> String {
    let Some(bytes) = part else {
        return "?".to_owned();
    };
    let percent = u128::from(bytes).saturating_mul(100);
    match percent.checked_div(u128::from(whole)) {
        None => "-".to_owned(),
        Some(0) if bytes > 0 => "<1%".to_owned(),
        // The last page of a file counts as a whole one.
        Some(percent) => format!("{}%", percent.min(100)),
    }
}

fn files(count: usize) -> String {
    match count {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    }
}

/// The bytes dropped, and the rate.
struct Rate(Bytes, f64);

impl fmt::Display for Rate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rate(bytes, seconds) = *self;
        write!(out, " in {seconds:.2} s")?;
        if seconds <= 0.0 || bytes == Bytes::ZERO {
            return Ok(());
        }
        // A rate is meaningful to two digits only.
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown to two digits")]
        let rate = bytes.get() as f64 / seconds / (1u64 << 30) as f64;
        write!(out, ", {rate:.2} GiB/s")
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
