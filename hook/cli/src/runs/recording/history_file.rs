//! The files of the history: one for each run, with its use of memory over time.
//! Touches: the history's folder beside the event file; the history of a running slice, in its
//! private folder.

use super::RunStart;
use super::limit_changes::{LimitChange, LimitChanges};
use super::series::{Point, Series};
use gpuslice_host::events::store::Store;
use gpuslice_host::events::{Event, EventKind};
use nix::fcntl::OFlag;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The number of runs that are kept.
const RUNS: usize = 200;

/// The longest file that is read.
const LONGEST: u64 = 4 << 20;

/// The folder of the history, beside the event file.
#[must_use]
pub(crate) fn folder(events: &Path) -> PathBuf {
    events.join("history")
}

/// A run's history.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunHistory {
    pub(crate) run: RunStart,
    pub(crate) series: Series,
    pub(crate) limits: LimitChanges,
    /// The run's end; None while it runs.
    pub(crate) end: Option<Event>,
}

/// Reads a run's history; None if the file is none.
#[must_use]
pub(crate) fn read(path: &Path) -> Option<RunHistory> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(flags.bits())
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    let run: RunStart = serde_json::from_str(lines.next()?).ok()?;
    let mut history = RunHistory {
        run,
        ..RunHistory::default()
    };
    let devices = history.run.devices.len();
    for line in lines {
        if let Some(point) = Series::read(line, devices) {
            history.series.push(point);
        } else if let Some(change) = LimitChange::read(line, devices) {
            let limits = history.run.devices.iter_mut().zip(&change.limits);
            limits.for_each(|(device, limit)| device.limit = *limit);
            history.limits.push(change);
        } else if let Ok(event) = serde_json::from_str::<Event>(line)
            && event.event == EventKind::End
        {
            history.end = Some(event);
        }
    }
    Some(history)
}

/// The file name of a run. Names sort by the time of the start.
#[must_use]
pub(crate) fn name_of(run: &RunStart) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_".contains(letter);
    let letters = run.name.chars().take(64);
    let name: String = letters
        .map(|letter| if plain(letter) { letter } else { '_' })
        .collect();
    // Programs of the slice can write to the file that the start is read from.
    let letters = run.started.chars().filter(|letter| !"-:".contains(*letter));
    let time: String = letters.filter(|letter| plain(*letter)).take(32).collect();
    format!("{time}-{}-{name}.jsonl", run.pid)
}

/// Stores the history of a run that has ended, and drops the oldest ones.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn store(events: &Store, history: &RunHistory) -> io::Result<()> {
    events.make_folder()?;
    let folder = folder(events.folder());
    match fs::DirBuilder::new().create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut text = serde_json::to_string(&history.run)?;
    text.push('\n');
    text.extend(history.limits.all().iter().map(LimitChange::line));
    text.extend(history.series.points().iter().map(Series::line));
    text.extend(history.end.as_ref().map(Event::line));
    // Its mode lets only the owner read it.
    let mut file = tempfile::Builder::new()
        .prefix(".new")
        .tempfile_in(&folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(folder.join(name_of(&history.run)))?;
    drop_oldest(&folder);
    Ok(())
}

/// The files of a folder of the history, the oldest first.
#[must_use]
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_history = |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl");
    let mut files: Vec<PathBuf> = paths.filter(is_history).collect();
    files.sort();
    files
}

fn drop_oldest(folder: &Path) {
    let files = files(folder);
    for old in files.iter().rev().skip(RUNS) {
        let _ = fs::remove_file(old);
    }
}

/// The history of a run in its private folder, while the run lasts.
#[derive(Debug)]
pub(crate) struct LiveFile {
    path: PathBuf,
    file: File,
    /// The lines that were written.
    lines: usize,
}

/// The lines of a live file after which it is written anew.
const LINES: usize = 4000;

impl LiveFile {
    /// Opens the file for the points that follow.
    ///
    /// # Errors
    /// When it does not exist.
    pub(crate) fn open(path: PathBuf) -> io::Result<LiveFile> {
        let flags = OFlag::O_NOFOLLOW.bits();
        let file = OpenOptions::new()
            .append(true)
            .custom_flags(flags)
            .open(&path)?;
        Ok(LiveFile {
            path,
            file,
            lines: 0,
        })
    }

    /// Adds the last point of a history.
    pub(crate) fn add(&mut self, history: &RunHistory, point: &Point) {
        self.write(history, &Series::line(point));
    }

    /// Adds the last change of a history's limits.
    pub(crate) fn add_limits(&mut self, history: &RunHistory, change: &LimitChange) {
        self.write(history, &change.line());
    }

    fn write(&mut self, history: &RunHistory, line: &str) {
        // The program may have removed the folder, or filled the file system.
        let _ = self.file.write_all(line.as_bytes());
        self.lines = self.lines.saturating_add(1);
        if self.lines > LINES {
            self.lines = history.series.points().len();
            let _ = self.replace(history);
        }
    }

    fn replace(&mut self, history: &RunHistory) -> io::Result<()> {
        let mut text = serde_json::to_string(&history.run)?;
        text.push('\n');
        text.extend(history.limits.all().iter().map(LimitChange::line));
        text.extend(history.series.points().iter().map(Series::line));
        let folder = self.path.parent().unwrap_or(&self.path);
        let mut new = tempfile::Builder::new().append(true).tempfile_in(folder)?;
        new.write_all(text.as_bytes())?;
        self.file = new.persist(&self.path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_stored_in_its_folder_whatever_its_start_says() {
        let run = |started: &str| RunStart {
            name: "../a b".to_owned(),
            pid: 7,
            started: started.to_owned(),
            ..RunStart::default()
        };
        let usual = name_of(&run("2026-11-23T08:00:05.250Z"));
        assert_eq!(usual, "20261123T080005.250Z-7-.._a_b.jsonl");
        let long = format!("/tmp/../{}", "1".repeat(500));
        for started in ["/etc/cron.d/x", "../../x", "a/b", &long] {
            let name = name_of(&run(started));
            let path = Path::new("/events/history").join(&name);
            assert_eq!(path.parent(), Some(Path::new("/events/history")), "{name}");
            assert!(name.len() < 255, "{name}");
        }
    }
}
