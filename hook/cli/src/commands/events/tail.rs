//! Reads the new lines of an event file, also after it was renamed.
//! Touches: the event file, by reading it.

use super::read::{Line, Source, open};
use gpuslice_host::events::store::FILE;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The bytes of a line that is not read: no event is so long.
const LONGEST: usize = 64 << 10;

/// An event file that is being followed.
#[derive(Debug)]
pub(super) struct Tail {
    source: Source,
    path: PathBuf,
    file: Option<File>,
    /// The start of a line that is not yet complete.
    partial: Vec<u8>,
    /// The reason why the file cannot be read.
    pub(super) fault: Option<String>,
}

impl Tail {
    pub(super) fn new(source: &Source) -> Tail {
        Tail {
            source: source.clone(),
            path: source.folder.join(FILE),
            file: None,
            partial: Vec::new(),
            fault: None,
        }
    }

    /// The device and inode of the file that is being read.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        let facts = self.file.as_ref()?.metadata().ok()?;
        Some((facts.dev(), facts.ino()))
    }

    /// Returns the lines that were added since the last call.
    pub(super) fn new_lines(&mut self) -> Vec<Line> {
        let mut lines = self.rest();
        let now = match fs::symlink_metadata(&self.path) {
            Ok(facts) => Some((facts.dev(), facts.ino())),
            Err(error) => {
                self.failed(&error);
                None
            }
        };
        if now.is_some() && now != self.identity() {
            // The last lines of the renamed file came before the new file.
            lines.extend(self.rest());
            self.partial.clear();
            match open(&self.source, &self.path) {
                Ok(file) => self.file = Some(file),
                Err(error) => self.failed(&error),
            }
            lines.extend(self.rest());
        }
        lines
    }

    /// Keeps the reason why the file cannot be read. One that does not exist yet has no events.
    fn failed(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound {
            self.fault = Some(format!("cannot read {}: {error}", self.path.display()));
        }
    }

    fn rest(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut block = vec![0; LONGEST];
        while let Some(file) = &mut self.file
            && let Ok(length @ 1..) = file.read(&mut block)
        {
            self.partial.extend(block.get(..length).unwrap_or_default());
            let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else {
                if self.partial.len() > LONGEST {
                    self.partial.clear();
                }
                continue;
            };
            let rest = self.partial.split_off(end.saturating_add(1));
            let whole = std::mem::replace(&mut self.partial, rest);
            lines.extend(self.source.lines(&whole));
        }
        lines
    }
}
