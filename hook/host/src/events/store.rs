//! The event file: lines are appended by every writer, and old ones are dropped by size.
//! Touches: the event file, the files beside it.
//! Law: each line is one write at the file's end, so lines of several writers never mix. A file is
//! only renamed under the lock beside it.

use crate::base::paths::HostPaths;
use nix::fcntl::{Flock, FlockArg, OFlag};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The name of the event file.
pub const FILE: &str = "events.jsonl";

/// The length at which a file is renamed, in bytes.
const SIZE: u64 = 8 << 20;

/// The number of files: the one that is written, and the older ones.
const FILES: usize = 4;

/// The event file of one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    folder: PathBuf,
    /// Whether other users may pass through the folder.
    is_public: bool,
    /// Whether missing folders above the folder are created with it.
    creates_parents: bool,
    size: u64,
}

impl Store {
    /// The host's own: that of root's runs and of containers.
    #[must_use]
    pub fn of_host(paths: &HostPaths) -> Store {
        Store {
            folder: paths.events(),
            is_public: true,
            creates_parents: true,
            size: SIZE,
        }
    }

    /// A user's own.
    #[must_use]
    pub fn in_folder(folder: PathBuf) -> Store {
        Store {
            folder,
            is_public: false,
            creates_parents: true,
            size: SIZE,
        }
    }

    /// The same place, of which only the folder itself is created. Who records the end of a run
    /// uses it: a home that was removed meanwhile stays removed.
    #[must_use]
    pub fn without_parents(self) -> Store {
        Store {
            creates_parents: false,
            ..self
        }
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the folder. Only root and the owner can read the files in it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make_folder(&self) -> io::Result<()> {
        let mode = if self.is_public { 0o755 } else { 0o700 };
        let made = DirBuilder::new()
            .mode(mode)
            .recursive(self.creates_parents)
            .create(&self.folder);
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// Appends a line.
    ///
    /// # Errors
    /// When the line cannot be written as a whole.
    pub fn append(&self, line: &str) -> io::Result<()> {
        let mut file = self.open()?;
        let length = line.len() as u64;
        if file.metadata()?.len().saturating_add(length) > self.size {
            self.rotate(&file)?;
            file = self.open()?;
        }
        // Where the file cannot be renamed, it does not grow without end.
        if file.metadata()?.len() > self.size.saturating_mul(2) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match file.write(line.as_bytes())? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    fn open(&self) -> io::Result<File> {
        let path = self.folder.join(FILE);
        let open = || {
            let mut options = OpenOptions::new();
            let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
            let options = options.append(true).create(true).mode(0o600);
            options.custom_flags(flags.bits()).open(&path)
        };
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_folder()?;
                open()?
            }
            opened => opened?,
        };
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Renames the files, unless another writer has done so, or does.
    fn rotate(&self, full: &File) -> io::Result<()> {
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).mode(0o600);
        let lock = options
            .custom_flags(flags.bits())
            .open(self.folder.join("events.lock"))?;
        let Ok(_lock) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) else {
            return Ok(());
        };
        let now = match fs::symlink_metadata(self.folder.join(FILE)) {
            // Another writer has renamed it, and no line was written since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            now => now?,
        };
        let full = full.metadata()?;
        if (now.dev(), now.ino()) != (full.dev(), full.ino()) {
            return Ok(());
        }
        for index in (1..FILES).rev() {
            let newer = file_name(index.saturating_sub(1));
            let renamed = fs::rename(self.folder.join(newer), self.folder.join(file_name(index)));
            match renamed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The names of the files, from the one that is written to the oldest.
pub fn file_names() -> impl DoubleEndedIterator<Item = String> {
    (0..FILES).map(file_name)
}

fn file_name(index: usize) -> String {
    match index {
        0 => FILE.to_owned(),
        index => format!("{FILE}.{index}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::thread;

    fn all(store: &Store) -> Vec<String> {
        let read = |name| fs::read_to_string(store.folder().join(name)).unwrap_or_default();
        let texts = file_names().rev().map(read).collect::<String>();
        texts.lines().map(str::to_owned).collect()
    }

    #[test]
    fn old_lines_are_dropped_and_new_ones_never() {
        let place = tempfile::tempdir().unwrap();
        let mut store = Store::in_folder(place.path().join("a/b"));
        store.size = 1000;
        for number in 0..1000 {
            store.append(&format!("{number:09}\n")).unwrap();
        }
        let kept = all(&store);
        assert_eq!(kept.last().unwrap(), "000000999");
        let first: usize = kept.first().unwrap().parse().unwrap();
        let expected: Vec<String> = (first..1000).map(|number| format!("{number:09}")).collect();
        assert_eq!(kept, expected);
        assert!((300..=400).contains(&kept.len()), "{}", kept.len());
    }

    #[test]
    fn lines_of_several_writers_are_whole_and_all_there() {
        let place = tempfile::tempdir().unwrap();
        let mut store = Store::in_folder(place.path().to_owned());
        store.size = 100_000;
        let write = |writer: usize| {
            let store = store.clone();
            move || {
                for number in 0..1000 {
                    let line = format!("{writer} {number:04} {}\n", "x".repeat(40));
                    store.append(&line).unwrap();
                }
            }
        };
        let writers: Vec<_> = (0..4).map(|writer| thread::spawn(write(writer))).collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        let lines = all(&store);
        assert_eq!(lines.len(), 4000);
        assert!(lines.iter().all(|line| line.len() == 47));
        assert_eq!(lines.into_iter().collect::<BTreeSet<_>>().len(), 4000);
    }

    #[test]
    fn a_removed_folder_is_created_again_and_a_removed_home_is_not() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().join("home");
        let store = Store::in_folder(home.join("gpuslice"));
        store.append("start\n").unwrap();
        let at_the_end = store.clone().without_parents();
        fs::remove_dir_all(store.folder()).unwrap();
        at_the_end.append("end\n").unwrap();
        at_the_end.make_folder().unwrap();
        assert_eq!(all(&store), ["end"]);
        fs::remove_dir_all(&home).unwrap();
        let error = at_the_end.append("end\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!home.exists());
    }

    #[test]
    fn a_file_that_is_no_file_is_not_written() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::in_folder(place.path().to_owned());
        let file = place.path().join(FILE);
        std::os::unix::fs::symlink("/dev/null", &file).unwrap();
        assert!(store.append("x\n").is_err());
        fs::remove_file(&file).unwrap();
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(store.append("x\n").is_err());
    }
}
