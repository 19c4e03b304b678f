//! Formats the results for files: as text, and as JSON.
//! Touches: its arguments.

use super::holders::Holder;
use crate::base::exit;
use crate::base::text::{self, aligned, printable};
use gpuslice_config::words::units::Bytes;
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
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

    fn name(&self) -> String {
        match self.path.to_str() {
            Some(text) => printable(text),
            None => printable(&self.path.to_string_lossy()),
        }
    }

    /// Returns the reason for the file's state.
    fn reason(&self) -> String {
        if self.why.is_none() && self.mapped_by.is_empty() {
            return String::new();
        }
        let holders: Vec<String> = self
            .mapped_by
            .iter()
            .map(|holder| format!("{} (pid {})", printable(&holder.name), holder.pid))
            .collect();
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
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) files: Vec<FileReport>,
    pub(super) dry_run: bool,
    pub(super) seconds: f64,
    /// The number of processes whose mappings could not be read.
    pub(super) unseen_processes: usize,
}

impl Report {
    /// Creates a report on files.
    pub(super) fn new(files: Vec<FileReport>, took: Duration) -> Report {
        Report {
            files,
            dry_run: false,
            seconds: took.as_secs_f64(),
            unseen_processes: 0,
        }
    }

    /// Formats the report as JSON.
    ///
    /// # Errors
    /// When the report cannot be serialized.
    pub(super) fn json(&self) -> serde_json::Result<String> {
        let sum = |part: fn(&FileReport) -> Option<u64>| self.sum(|_| true, part).get();
        let mut value = serde_json::to_value(self)?;
        if let Some(object) = value.as_object_mut() {
            object.insert("before".to_owned(), sum(|file| file.before).into());
            object.insert("after".to_owned(), sum(|file| file.after).into());
        }
        Ok(format!("{}\n", serde_json::to_string_pretty(&value)?))
    }

    fn sum(
        &self,
        of: impl Fn(&FileReport) -> bool,
        part: impl Fn(&FileReport) -> Option<u64>,
    ) -> Bytes {
        let parts = self.files.iter().filter(|file| of(file)).filter_map(part);
        parts.fold(Bytes::ZERO, |sum, part| sum.plus(Bytes::new(part)))
    }

    /// Formats the output of `gpuslice residency`.
    pub(super) fn residency(&self) -> String {
        let mut rows = vec![["RESIDENT", "OF", "FILE"].map(str::to_owned)];
        for file in self.files.iter().filter(|file| file.before != Some(0)) {
            let resident = match file.before {
                Some(bytes) => Bytes::new(bytes).to_string(),
                None => "?".to_owned(),
            };
            let name = match file.reason() {
                reason if reason.is_empty() => file.name(),
                reason => format!("{} ({reason})", file.name()),
            };
            rows.push([resident, Bytes::new(file.size).to_string(), name]);
        }
        let table = match rows.len() {
            1 => String::new(),
            _ => aligned(&rows),
        };
        let is_known = |file: &&FileReport| file.before.is_some();
        let known = self.files.iter().filter(is_known).count();
        let cached = self.files.iter().filter(|file| file.before > Some(0));
        let size = |known: bool| {
            let is_one = move |file: &FileReport| file.before.is_some() == known;
            self.sum(is_one, |file| Some(file.size))
        };
        let unknown = self.files.len().saturating_sub(known);
        let seen = format!(
            "{} of {} cached, in {} of {}\n",
            self.sum(|_| true, |file| file.before),
            size(true),
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
        let unseen = match (self.unseen_processes, self.dry_run || self.has(State::Left)) {
            (0, _) | (_, false) => String::new(),
            (count, true) => {
                format!("processes whose mappings cannot be read: {count}\n")
            }
        };
        format!("{}{unseen}{end}", aligned(&rows))
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
mod tests {
    use super::*;

    fn seen(files: &[Option<u64>]) -> String {
        let files = files.iter().map(|before| FileReport {
            before: *before,
            ..FileReport::new("/m/a.gguf".into(), 8 << 20, State::Cached)
        });
        Report::new(files.collect(), Duration::ZERO).residency()
    }

    #[test]
    fn what_may_not_be_read_is_unknown_and_not_nothing() {
        let last = |text: String| text.lines().next_back().unwrap().to_owned();
        let unknown = "cached amount unknown for 2 files (16.00 MiB)";
        assert_eq!(last(seen(&[None, None])), unknown);
        assert!(!seen(&[None, None]).contains("0 B"));
        let some = seen(&[Some(4 << 20), None]);
        let known = "4.00 MiB of 8.00 MiB cached, in 1 of 1 file\n\
                     cached amount unknown for 1 file (8.00 MiB)\n";
        assert!(some.ends_with(known), "{some}");
        let all = "4.00 MiB of 16.00 MiB cached, in 1 of 2 files";
        assert_eq!(last(seen(&[Some(4 << 20), Some(0)])), all);
    }
}
