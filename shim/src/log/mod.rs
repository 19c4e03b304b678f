//! The log: off unless the environment enables it; each line is one write.
//! Touches: the environment once, standard error or the log file. Never: stdout, errno, malloc.

pub(crate) mod counters;
mod line;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use gpuslice_config::words::paths;
pub(crate) use gpuslice_config::words::paths::LogLevel as Level;
use gpuslice_config::words::text;
use gpuslice_config::words::time;

use crate::sys;
use line::Line;
pub(crate) use line::Piece;

/// The word after the time of each line, by which a log file is recognised.
const PROGRAM: &[u8; 10] = b" gpuslice ";
/// How the lines of gpuslice 0.2 began. Their files are continued.
const FORMERLY: &[u8; 9] = b"gpuslice[";
/// The length of the beginning of a line that tells a log file from another one.
const BEGINNING: usize = time::LENGTH + PROGRAM.len();

/// Whether the beginning of a file is that of a log.
fn is_log(begins: &[u8; BEGINNING]) -> bool {
    let (time, rest) = begins.split_at(time::LENGTH);
    begins.starts_with(FORMERLY) || time::is_rfc3339(time) && rest == PROGRAM
}

/// The longest path of a log file.
const PATH: usize = 256;

/// The settings, kept apart from the path, which is rarely set: see `layout.ld`.
struct Settings {
    state: AtomicU8,
    level: AtomicU8,
    /// The slice's name. Null until the slice is loaded.
    slice: AtomicPtr<SliceName>,
}

/// A slice's name, as its file holds it.
pub(crate) type SliceName = text::Text<128>;

struct LogPath(UnsafeCell<[u8; PATH]>);

// SAFETY: written only by the thread that moves `state` from UNREAD to READING, and read only in
// the state READ.
unsafe impl Sync for LogPath {}

const UNREAD: u8 = 0;
const READING: u8 = 1;
const READ: u8 = 2;

#[unsafe(link_section = ".data")]
static SETTINGS: Settings = Settings {
    state: AtomicU8::new(UNREAD),
    level: AtomicU8::new(0),
    slice: AtomicPtr::new(null_mut()),
};

static FILE: LogPath = LogPath(UnsafeCell::new([0; PATH]));

unsafe extern "C" {
    /// Returns null in a program with more rights than its caller. /etc/ld.so.preload loads us into
    /// such programs too, and the caller must not choose the files that they open.
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// A variable of the environment.
pub(crate) fn environment(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: secure_getenv's contract.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: secure_getenv returns a string that ends in NUL. Callers copy it at once.
    Some(unsafe { CStr::from_ptr(value) })
}

#[cold]
#[inline(never)]
fn read_settings() {
    let state = &SETTINGS.state;
    // If another thread is already reading, do not wait: a line may be lost instead.
    if state
        .compare_exchange(UNREAD, READING, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        return;
    }
    let level = Level::parse(environment(paths::LOG).map(CStr::to_bytes));
    if let Some(path) = environment(paths::LOG_FILE) {
        // SAFETY: this thread has moved the state to READING, so the buffer is its own until READ.
        let kept = unsafe { &mut *FILE.0.get() };
        let path = path.to_bytes();
        // A path that does not fit, with its NUL, is ignored.
        if path.len() < PATH {
            kept.iter_mut().zip(path).for_each(|(to, from)| *to = *from);
        }
    }
    SETTINGS.level.store(level as u8, Ordering::Relaxed);
    state.store(READ, Ordering::Release);
}

/// Whether lines of this level are logged.
#[inline]
pub(crate) fn enabled(level: Level) -> bool {
    if SETTINGS.state.load(Ordering::Acquire) == UNREAD {
        read_settings();
    }
    SETTINGS.level.load(Ordering::Relaxed) >= level as u8
}

/// Names the slice in all lines that follow.
#[inline]
pub(crate) fn name_slice(name: &'static SliceName) {
    let name = core::ptr::from_ref(name).cast_mut();
    SETTINGS.slice.store(name, Ordering::Release);
}

fn slice_name() -> Option<&'static SliceName> {
    let name = SETTINGS.slice.load(Ordering::Acquire);
    // SAFETY: `name_slice` has stored a reference that lives as long as the process.
    unsafe { name.as_ref() }.filter(|name| !name.as_bytes().is_empty())
}

/// A buffer for code that writes through `core::fmt`.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) const fn new() -> Text<N> {
        Text {
            bytes: [0; N],
            length: 0,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl<const N: usize> core::fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for byte in text.bytes() {
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = byte;
                self.length = self.length.saturating_add(1);
            }
        }
        Ok(())
    }
}

/// Writes a line, if its level is enabled:
/// `2026-11-22T13:31:02Z gpuslice slice=llama pid=23308 WARN refused ... (1st)`.
#[cold]
#[inline(never)]
pub(crate) fn say(level: Level, pieces: &[Piece<'_>], count: Option<u64>) {
    if !enabled(level) || SETTINGS.state.load(Ordering::Acquire) != READ {
        return;
    }
    let mut line = Line::new();
    line.text(&time::rfc3339(sys::seconds()));
    line.text(PROGRAM);
    if let Some(name) = slice_name() {
        line.text(b"slice=");
        line.name(name.as_bytes());
        line.text(b" ");
    }
    line.text(b"pid=");
    line.decimal(sys::pid());
    line.text(match level {
        Level::Debug => b" DEBUG ",
        Level::Info => b" INFO ",
        Level::Off | Level::Warn => b" WARN ",
    });
    for piece in pieces {
        line.piece(piece);
    }
    if let Some(count) = count {
        line.text(b" (");
        line.decimal(count);
        // Only powers of ten are logged.
        line.text(if count == 1 { b"st)" } else { b"th)" });
    }
    let bytes = line.ended();
    // SAFETY: the state is READ, after which the buffer is never written.
    let path = unsafe { &*FILE.0.get() };
    match CStr::from_bytes_until_nul(path) {
        Ok(path) if !path.is_empty() => {
            // A seccomp filter may allow a write but not opening a file.
            if !sys::filters::is_filtered()
                && let Ok(file) = sys::File::append_to_log(path, is_log)
            {
                file.write(bytes);
            }
        }
        _ => sys::write_stderr(bytes),
    }
}
