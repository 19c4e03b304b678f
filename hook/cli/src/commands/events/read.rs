//! Finds and reads event files: this user's, and for root those of the other users.
//! Touches: the event files, /etc/passwd.
//! Law: a file of another user is read only if that user owns it, and its events are that user's,
//! whatever it says.

use super::tail::Tail;
use crate::runs::recording;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::events::Event;
use gpuslice_host::events::store::file_names;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most bytes that are read of a file: one that cannot be renamed ends at 16 MiB.
const LONGEST: u64 = 20 << 20;

/// The text with which each line begins. A full disk may have cut the line before it.
const BEGINNING: &str = "{\"schema\":";

/// A folder with event files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) folder: PathBuf,
    /// The user whose folder it is, by number and name, if it is another user's.
    pub(crate) owner: Option<(u32, String)>,
}

/// An event, as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) event: Event,
}

/// The events of the older files, and the files that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) lines: Vec<Line>,
    pub(crate) faults: Vec<String>,
}

/// Returns the folders that this user can read, this user's own first.
#[must_use]
pub(crate) fn sources() -> Vec<Source> {
    let own = recording::store().map(|store| Source {
        folder: store.folder().to_owned(),
        owner: None,
    });
    // Root that has chosen a folder works apart from the rest of the machine.
    let reads_others = geteuid().is_root() && env::var_os("XDG_STATE_HOME").is_none();
    let others = reads_others.then(others).into_iter().flatten();
    own.into_iter().chain(others).collect()
}

/// The folders of the users in /etc/passwd.
fn others() -> Vec<Source> {
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut sources: Vec<Source> = Vec::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let name = fields.next().unwrap_or_default();
        let user = fields.nth(1).and_then(|number| number.parse().ok());
        let home = fields.nth(2).filter(|home| home.starts_with('/'));
        let (Some(user @ 1..), Some(home)) = (user, home) else {
            continue;
        };
        let folder = recording::in_home(Path::new(home));
        if folder.exists() && sources.iter().all(|known| known.folder != folder) {
            sources.push(Source {
                folder,
                owner: Some((user, name.to_owned())),
            });
        }
    }
    sources
}

/// Opens an event file.
pub(super) fn open(source: &Source, path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags.bits()).open(path)?;
    let facts = file.metadata()?;
    let is_theirs = source
        .owner
        .as_ref()
        .is_none_or(|(user, _)| facts.uid() == *user);
    match (facts.is_file() && is_theirs, facts.len() <= LONGEST) {
        (true, true) => Ok(file),
        (true, false) => Err(io::Error::other(format!(
            "it is longer than any file of events ({}): remove it",
            Bytes::new(LONGEST)
        ))),
        (false, _) => Err(io::Error::other("it is not a regular file of this user")),
    }
}

impl Source {
    /// Reads whole lines. What is not an event is skipped.
    pub(super) fn lines(&self, text: &[u8]) -> Vec<Line> {
        let text = String::from_utf8_lossy(text);
        text.lines().filter_map(|line| self.line(line)).collect()
    }

    fn line(&self, line: &str) -> Option<Line> {
        let at = line.rfind(BEGINNING).unwrap_or(0);
        let read = |text: &str| serde_json::from_str::<Event>(text).ok();
        let mut event = read(line).or_else(|| read(line.get(at..)?))?;
        if let Some((_, name)) = &self.owner {
            event.user = Some(name.clone());
        }
        Some(Line { event })
    }
}

/// Reads the older files of all sources; `tails` have the current ones open.
#[must_use]
pub(super) fn past(sources: &[Source], tails: &[Tail]) -> Past {
    let mut past = Past::default();
    let readable = |(_, tail): &(&Source, &Tail)| tail.fault.is_none();
    for (source, tail) in sources.iter().zip(tails).filter(readable) {
        // From the newest to the oldest: a file that is renamed meanwhile is met twice, not missed.
        let mut seen = vec![tail.identity()];
        let mut files = Vec::new();
        for name in file_names().skip(1) {
            let path = source.folder.join(name);
            match open(source, &path) {
                Ok(file) => {
                    let identity = file.metadata().map(|facts| (facts.dev(), facts.ino())).ok();
                    if !seen.contains(&identity) {
                        seen.push(identity);
                        files.push(file);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    past.faults
                        .push(format!("cannot read {}: {error}", path.display()));
                }
            }
        }
        for file in files.into_iter().rev() {
            let mut text = Vec::new();
            let _ = file.take(LONGEST).read_to_end(&mut text);
            past.lines.extend(source.lines(&text));
        }
    }
    past
}

/// Reads all events, in the order of their times, and returns them with the files that could not be
/// read.
#[must_use]
pub(crate) fn all() -> (Vec<Event>, Vec<String>) {
    let sources = sources();
    let mut tails: Vec<Tail> = sources.iter().map(Tail::new).collect();
    let mut current = Vec::new();
    for tail in &mut tails {
        current.extend(tail.new_lines());
    }
    let Past { mut lines, faults } = past(&sources, &tails);
    lines.extend(current);
    let of_current = tails.iter_mut().filter_map(|tail| tail.fault.take());
    let faults = of_current.chain(faults).collect();
    let mut events: Vec<Event> = lines.into_iter().map(|line| line.event).collect();
    events.sort_by(|one, other| one.time.cmp(&other.time));
    (events, faults)
}
