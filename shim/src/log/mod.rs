//! The log: off unless the environment enables it; each line is one write.
//! Touches: the environment once, standard error or the log file. Never: stdout, errno, malloc.

pub(crate) mod counters;

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU8, Ordering};

use gpuslice_config::words::paths;
pub(crate) use gpuslice_config::words::paths::LogLevel as Level;

use crate::sys;

/// A part of a line.
#[derive(Clone, Copy)]
pub(crate) enum Piece<'a> {
    Str(&'a str),
    /// A text from outside the library.
    Raw(&'a [u8]),
    Dec(u64),
}

/// The longest line.
const LINE: usize = 512;
/// The beginning of each line, and so of a log file.
const BEGINNING: &[u8; 9] = b"gpuslice[";
/// The longest path of a log file.
const PATH: usize = 256;

/// The settings, kept apart from the path, which is rarely set: see `layout.ld`.
struct Settings {
    state: AtomicU8,
    level: AtomicU8,
}

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

struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Line {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length = self.length.saturating_add(1);
        }
    }

    fn text(&mut self, text: &[u8]) {
        // Control characters in a path or a name must not break the line.
        for byte in text {
            self.push(if byte.is_ascii_control() { b'?' } else { *byte });
        }
    }

    fn decimal(&mut self, number: u64) {
        let mut digits = [0u8; 20];
        let (mut rest, mut count) = (number, 0usize);
        for digit in digits.iter_mut().rev() {
            *digit = b'0'.saturating_add((rest % 10) as u8);
            rest /= 10;
            count = count.saturating_add(1);
            if rest == 0 {
                break;
            }
        }
        let start = digits.len().saturating_sub(count);
        self.text(digits.get(start..).unwrap_or_default());
    }
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

/// Writes a line, if its level is enabled.
#[cold]
#[inline(never)]
pub(crate) fn say(level: Level, module: &str, pieces: &[Piece<'_>], count: Option<u64>) {
    if !enabled(level) || SETTINGS.state.load(Ordering::Acquire) != READ {
        return;
    }
    let mut line = Line {
        bytes: [0; LINE],
        length: 0,
    };
    line.text(BEGINNING);
    line.decimal(sys::pid());
    line.text(b".");
    line.decimal(sys::tid());
    line.text(match level {
        Level::Debug => b"] DEBUG ",
        Level::Info => b"] INFO ",
        Level::Off | Level::Warn => b"] WARN ",
    });
    line.text(module.as_bytes());
    line.text(b": ");
    for piece in pieces {
        match piece {
            Piece::Str(text) => line.text(text.as_bytes()),
            Piece::Raw(text) => line.text(text),
            Piece::Dec(number) => line.decimal(*number),
        }
    }
    if let Some(count) = count {
        line.text(b" (time ");
        line.decimal(count);
        line.text(b")");
    }
    line.length = line.length.min(LINE.saturating_sub(1));
    line.push(b'\n');
    let bytes = line.bytes.get(..line.length).unwrap_or_default();
    // SAFETY: the state is READ, after which the buffer is never written.
    let path = unsafe { &*FILE.0.get() };
    match CStr::from_bytes_until_nul(path) {
        Ok(path) if !path.is_empty() => {
            // A seccomp filter may allow a write but not opening a file.
            if !sys::filters::is_filtered()
                && let Ok(file) = sys::File::append_to_log(path, BEGINNING)
            {
                file.write(bytes);
            }
        }
        _ => sys::write_stderr(bytes),
    }
}
