//! Model files for the tests of the page cache, and how much of a file is resident.
//! Touches: `models/` in the build output, slice files, the kernel's mincore.

use crate::run::Run;
use crate::{place, slice};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Model files, written once for each build output when a test asks for them. One test at a time
/// has them, because other tests that load the same file keep it resident.
pub struct Models {
    folder: PathBuf,
    mib: u64,
    _locked: File,
    _one: MutexGuard<'static, ()>,
}

static ONE: Mutex<()> = Mutex::new(());

impl Models {
    /// The files `model.bin`, `model.safetensors` and `model.gguf`, of `mib` MiB each.
    ///
    /// # Panics
    /// When they cannot be created.
    #[must_use]
    pub fn of(mib: u64) -> Models {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let all = place::target().join("models");
        std::fs::create_dir_all(&all)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", all.display()));
        // Another test binary may be using the models.
        let locked = File::create(all.join("lock")).and_then(|file| file.lock().map(|()| file));
        let locked = locked.unwrap_or_else(|error| panic!("cannot lock the models: {error}"));
        let folder = all.join(mib.to_string());
        std::fs::create_dir_all(&folder)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
        Models {
            folder,
            mib,
            _locked: locked,
            _one: one,
        }
    }

    /// One of the files, without a page in the page cache. A missing file is written first.
    ///
    /// # Panics
    /// When it cannot be written or dropped.
    #[must_use]
    pub fn cold(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        if !path.exists() {
            let suffix = name.rsplit('.').next().unwrap_or(name);
            let unfinished = self.folder.join("unfinished");
            // PyTorch is only there after tests/setup.sh loaders.
            let python = match suffix {
                "pt" => place::target().join("loaders-venv/bin/python"),
                _ => place::venv("python"),
            };
            let _ = Run::new(python)
                .arg(place::source("python/make_models.py"))
                .arg(&unfinished)
                .args([suffix, &self.mib.to_string()])
                .patience(Duration::from_secs(600))
                .answer()
                .clean();
            std::fs::rename(&unfinished, &path)
                .unwrap_or_else(|error| panic!("cannot keep the model: {error}"));
        }
        evict(&path);
        path
    }

    /// Removes a file that is too large to stay.
    pub fn remove(&self, name: &str) {
        let _ = std::fs::remove_file(self.folder.join(name));
    }

    /// A file beside the models that is no model: its name has no model's suffix.
    #[must_use]
    pub fn other(&self) -> PathBuf {
        self.copy("other.dat", "model.bin")
    }

    /// A copy of one of the files under another name, made once.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn copy(&self, name: &str, of: &str) -> PathBuf {
        let path = self.folder.join(name);
        if !path.exists() {
            std::fs::copy(self.cold(of), &path)
                .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        }
        evict(&path);
        path
    }
}

/// Writes a file's pages to its disk, and drops them.
///
/// # Panics
/// When pages stay.
pub fn evict(path: &Path) {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.sync_all()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // A page that is still being read, from the disk or by a process, may survive one attempt.
    for _ in 0..100 {
        // SAFETY: takes no pointers.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if resident(path) == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{} stays cached", path.display());
}

/// The length of a file.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn length(path: &Path) -> u64 {
    let data = path.metadata();
    data.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .len()
}

/// How many bytes of a file are in the page cache. It uses mincore, because cachestat does not see
/// through an overlay. The caller has to own the file; otherwise mincore reports all of it as
/// resident.
///
/// # Panics
/// When mincore fails.
#[must_use]
pub fn resident(path: &Path) -> u64 {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let bytes = usize::try_from(length(path)).unwrap_or(usize::MAX);
    let mut pages = vec![0u8; bytes.div_ceil(4096)];
    let (read, shared, fd) = (libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd());
    // SAFETY: a new mapping disturbs nobody.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes, read, shared, fd, 0) };
    assert_ne!(
        place,
        libc::MAP_FAILED,
        "{} cannot be mapped",
        path.display()
    );
    // SAFETY: the mapping has these bytes, `pages` one for each of its pages.
    let code = unsafe { libc::mincore(place, bytes, pages.as_mut_ptr()) };
    // SAFETY: nobody else knows of the mapping.
    unsafe { libc::munmap(place, bytes) };
    assert_eq!(code, 0, "mincore");
    4096 * pages.iter().filter(|page| **page & 1 != 0).count() as u64
}

/// Whether a file has stayed in the page cache, except for pages that the kernel itself may have
/// evicted.
#[must_use]
pub fn stays(path: &Path) -> bool {
    resident(path) > length(path) / 4 * 3
}

/// A slice file with these `keys`, which decide what happens to model files. They are written as
/// JSON, without braces.
#[must_use]
pub fn slice_file(folder: &Path, keys: &str) -> PathBuf {
    let file = folder.join("page-cache.json");
    let comma = if keys.is_empty() { "" } else { "," };
    let text = format!("{{\"version\":1,\"memory\":8589934592{comma}{keys}}}");
    slice::write(&file, text.as_bytes());
    file
}

/// A program that has loaded a file, has printed one line, and waits.
pub struct Loaded {
    child: Child,
    stdout: ChildStdout,
    /// The line that it has printed.
    pub said: String,
}

impl Loaded {
    /// Starts a program, and waits for its line.
    ///
    /// # Panics
    /// When it prints nothing.
    #[must_use]
    pub fn by(run: Run) -> Loaded {
        let mut command = run.into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let Some(mut stdout) = child.stdout.take() else {
            panic!("no standard output");
        };
        let mut said = String::new();
        let mut byte = [0u8];
        while matches!(stdout.read(&mut byte), Ok(1)) && byte != *b"\n" {
            said.push(char::from(byte[0]));
        }
        assert!(!said.is_empty(), "{command:?} has printed nothing");
        Loaded {
            child,
            stdout,
            said,
        }
    }

    /// Lets the program end.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn end(mut self) {
        if let Some(mut stdin) = self.child.stdin.take() {
            let _ = stdin.flush();
        }
        let mut rest = String::new();
        let _ = self.stdout.read_to_string(&mut rest);
        let ended = self.child.wait();
        assert!(
            ended.as_ref().is_ok_and(std::process::ExitStatus::success),
            "{ended:?} {rest}"
        );
    }
}
