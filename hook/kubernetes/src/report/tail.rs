//! Reads the new lines of the host's event file, also after a restart of this process and after the
//! file was renamed.
//! Touches: the event file, by reading it; the file with the place.
//! Law: a position is saved only after all lines before it were handled.

use gpuslice_config::ledger::key_of;
use gpuslice_host::base::{files, read};
use gpuslice_host::events::store;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most bytes that one call reads.
const CHUNK: u64 = 256 << 10;

/// The most bytes of a line. A longer one is left out.
const LINE: usize = 64 << 10;

/// The bytes in which the first line has its time.
const START: usize = 256;

/// A place in the event file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// The file's inode; 0: no file.
    inode: u64,
    /// The hash of its first line, which has the time of its first event: a new file can have the
    /// inode of one that was dropped.
    start: u64,
    /// The bytes that were read.
    offset: u64,
}

/// The event file of a folder.
#[derive(Debug)]
pub struct Tail {
    folder: PathBuf,
    /// The file with the place.
    saved_in: PathBuf,
    saved: Option<Place>,
    place: Option<Place>,
}

impl Tail {
    /// The event file of a folder, from the saved place. Without one, it begins with lines that are
    /// written from now on.
    #[must_use]
    pub fn new(folder: PathBuf, saved_in: PathBuf) -> Tail {
        let saved = restored(&saved_in);
        let place = saved.or_else(|| Some(end_of(&folder.join(store::FILE))));
        Tail {
            folder,
            saved_in,
            saved,
            place,
        }
    }

    /// The next lines; none if there are no whole ones.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn lines(&mut self) -> io::Result<Vec<String>> {
        let place = self.place.unwrap_or_default();
        // From the newest file to the oldest.
        let mut newer: Option<File> = None;
        for name in store::file_names() {
            let Some(file) = opened(&self.folder.join(name))? else {
                continue;
            };
            if !is_of(&file, &place)? {
                newer = Some(file);
                continue;
            }
            let lines = self.read(file, place.offset)?;
            // A renamed file grows no more. The next call begins with the one after it.
            let Some(newer) = newer.filter(|_| lines.is_empty()) else {
                return Ok(lines);
            };
            return self.read(newer, 0);
        }
        // The file of the place was dropped, or there was none. The oldest line that is left may be
        // hours old, so the newest file is enough.
        match opened(&self.folder.join(store::FILE))? {
            Some(file) => self.read(file, 0),
            None => Ok(Vec::new()),
        }
    }

    /// The next lines of a file. A chunk can end within a line that is too long, and then has none.
    fn read(&mut self, mut file: File, mut offset: u64) -> io::Result<Vec<String>> {
        loop {
            let lines = self.chunk(&mut file, offset)?;
            let reached = self.place.map_or(offset, |place| place.offset);
            if !lines.is_empty() || reached <= offset {
                return Ok(lines);
            }
            offset = reached;
        }
    }

    fn chunk(&mut self, file: &mut File, offset: u64) -> io::Result<Vec<String>> {
        let facts = file.metadata()?;
        // A shorter file has another content.
        let offset = if offset > facts.len() { 0 } else { offset };
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        (&*file).take(CHUNK).read_to_end(&mut bytes)?;
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last.saturating_add(1),
            // A line of this length is none of ours.
            None if bytes.len() as u64 == CHUNK => bytes.len(),
            None => 0,
        };
        self.place = Some(Place {
            inode: facts.ino(),
            start: start_of(file)?,
            offset: offset.saturating_add(whole as u64),
        });
        let whole = bytes.get(..whole).unwrap_or_default();
        let lines = whole.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty() && line.len() <= LINE);
        Ok(lines
            .filter_map(|line| String::from_utf8(line.to_vec()).ok())
            .collect())
    }

    /// Saves the place, so that the lines before it are not read again.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&mut self) -> io::Result<()> {
        if self.place == self.saved {
            return Ok(());
        }
        if let Some(place) = self.place {
            let Place {
                inode,
                start,
                offset,
            } = place;
            let text = format!("{inode} {start} {offset}\n");
            files::replace(&self.saved_in, text.as_bytes(), 0o600)?;
        }
        self.saved = self.place;
        Ok(())
    }
}

fn opened(path: &Path) -> io::Result<Option<File>> {
    match read::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

fn restored(from: &Path) -> Option<Place> {
    let text = String::from_utf8(read::file(from, 100).ok()?).ok()?;
    let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
    let mut number = || numbers.next().flatten();
    Some(Place {
        inode: number()?,
        start: number()?,
        offset: number()?,
    })
}

fn end_of(file: &Path) -> Place {
    let end = || {
        let file = opened(file)?.ok_or(io::ErrorKind::NotFound)?;
        let facts = file.metadata()?;
        io::Result::Ok(Place {
            inode: facts.ino(),
            start: start_of(&file)?,
            offset: facts.len(),
        })
    };
    end().unwrap_or_default()
}

fn start_of(file: &File) -> io::Result<u64> {
    let mut first = [0; START];
    let length = file.read_at(&mut first, 0)?;
    let first = first.get(..length).unwrap_or_default();
    let line = first.split(|byte| *byte == b'\n').next();
    Ok(key_of(line.unwrap_or_default()))
}

/// Whether a place is in this file.
fn is_of(file: &File, place: &Place) -> io::Result<bool> {
    let is_same = file.metadata()?.ino() == place.inode;
    Ok(is_same && (place.offset == 0 || start_of(file)? == place.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Files {
            Files(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn add(&self, text: &str) {
            let mut options = File::options();
            let file = options
                .append(true)
                .create(true)
                .open(self.path(store::FILE));
            file.unwrap().write_all(text.as_bytes()).unwrap();
        }

        /// As the store renames full files.
        fn rotate(&self) {
            for (from, to) in [
                ("events.jsonl.1", "events.jsonl.2"),
                (store::FILE, "events.jsonl.1"),
            ] {
                let _ = fs::rename(self.path(from), self.path(to));
            }
        }

        fn tail(&self) -> Tail {
            Tail::new(self.0.path().to_owned(), self.path("place"))
        }
    }

    fn all(tail: &mut Tail) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let lines = tail.lines().unwrap();
            if lines.is_empty() {
                return all;
            }
            all.extend(lines);
        }
    }

    #[test]
    fn the_first_start_reads_nothing_old_and_a_restart_continues() {
        let files = Files::new();
        files.add("old\n");
        let mut tail = files.tail();
        assert!(all(&mut tail).is_empty());
        files.add("a\nb\nhalf");
        assert_eq!(all(&mut tail), ["a", "b"]);
        tail.save().unwrap();
        files.add(" c\nd\n");
        assert_eq!(all(&mut tail), ["half c", "d"]);
        // Killed before it has saved the place.
        let mut again = files.tail();
        assert_eq!(all(&mut again), ["half c", "d"]);
        again.save().unwrap();
        assert!(all(&mut files.tail()).is_empty());
    }

    #[test]
    fn a_file_that_is_renamed_is_read_to_its_end() {
        let files = Files::new();
        let mut tail = files.tail();
        files.add("a\n");
        assert_eq!(all(&mut tail), ["a"]);
        tail.save().unwrap();
        files.add("b\n");
        files.rotate();
        files.add("c\n");
        files.rotate();
        files.add("d\n");
        assert_eq!(all(&mut tail), ["b", "c", "d"]);
        assert_eq!(all(&mut files.tail()), ["b", "c", "d"]);
        // All of the files that it knew are gone.
        for _ in 0..3 {
            files.rotate();
        }
        fs::remove_file(files.path("events.jsonl.2")).unwrap_or_default();
        files.add("e\n");
        assert_eq!(all(&mut files.tail()), ["e"]);
    }

    #[test]
    fn a_truncated_file_and_a_strange_line_are_no_error() {
        let files = Files::new();
        files.add("a\n");
        let mut tail = files.tail();
        fs::write(files.path(store::FILE), "").unwrap();
        files.add(&format!("{}\n", "x".repeat(300 << 10)));
        files.add("b\n");
        let lines = all(&mut tail);
        assert_eq!(lines.last().unwrap(), "b");
        assert!(lines.iter().all(|line| line.len() <= LINE));
    }
}
