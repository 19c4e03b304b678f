//! Finds the slice file and reads it, or else the copy of it in the environment.
//! Touches: the slice file, the environment.

use core::ffi::CStr;
use core::fmt::Write;
use core::mem::MaybeUninit;

use gpuslice_config::slice::{self, MAX_FILE, Slice};
use gpuslice_config::words::paths;
use gpuslice_config::words::units::Bytes;

use crate::log::Piece::{Raw, Str};
use crate::log::counters;
use crate::log::{self, Level};
use crate::sys::{self, File, Stat};

/// The result of looking for a slice file.
pub(super) enum Opened {
    Nothing,
    File(File, &'static CStr),
    Failed(&'static CStr, sys::Errno),
}

pub(super) fn open() -> Opened {
    for mounted in [paths::MOUNTED_SLICE, paths::MOUNTED_IN_DEV] {
        match File::open(mounted) {
            // A file that the hook has mounted wins, even when it cannot be used.
            Ok(file) => return Opened::File(file, mounted),
            Err(sys::ENOENT | sys::ENOTDIR) => {}
            // Without a free descriptor, `open` does not reveal whether the file exists.
            Err(why) if why.is_passing() && !is_there(mounted) => {}
            Err(why) => return Opened::Failed(mounted, why),
        }
    }
    let Some(path) = log::environment(paths::CONFIG).filter(|path| !path.is_empty()) else {
        if log::environment(paths::SLICE).is_some_and(|text| !text.is_empty()) {
            // The variable with the text is set: only the variable that names the file was lost on
            // the way.
            return Opened::Failed(paths::CONFIG, sys::ENOENT);
        }
        log::say(
            Level::Debug,
            &[Str("libgpuslice.so is loaded, without a slice")],
            None,
        );
        return Opened::Nothing;
    };
    match File::open(path) {
        Ok(file) => Opened::File(file, path),
        Err(why) => Opened::Failed(path, why),
    }
}

/// Whether the file exists. Uses no descriptor.
fn is_there(path: &CStr) -> bool {
    !matches!(Stat::at(path), Err(sys::ENOENT | sys::ENOTDIR))
}

/// Whether the hook has mounted the file.
fn is_mounted(path: &CStr) -> bool {
    [paths::MOUNTED_SLICE, paths::MOUNTED_IN_DEV].contains(&path)
}

/// The slice as of the start of the run, which the environment carries beside the file's name. An
/// image can set a container's environment, so this never replaces a file that the hook mounted.
pub(super) fn in_environment(path: &CStr) -> Option<&'static CStr> {
    let text = log::environment(paths::SLICE).filter(|text| !text.is_empty());
    text.filter(|_| !is_mounted(path) && path != paths::SLICE)
}

/// The reason logged when a file cannot be opened for want of descriptors or memory.
pub(super) const PASSING: &[u8] = b"cannot be opened for the moment (too many open files?)";
/// The reason logged when the kernel refuses memory to load a file that another thread is loading.
pub(super) const NO_MEMORY: &[u8] = b"cannot be loaded for the moment (out of memory)";

/// Logs why a slice cannot be read, and the consequence.
#[cold]
#[inline(never)]
pub(super) fn unusable(path: &CStr, why: &[u8]) {
    let follows = if why == NO_MEMORY {
        "; GPU memory is refused until it can be loaded"
    } else if in_environment(path).is_some() {
        "; the slice as it was at the start stays in force"
    } else if why == PASSING {
        "; GPU memory is refused until it can be opened"
    } else if is_mounted(path) {
        "; GPU memory is refused (start the container again)"
    } else if path == paths::SLICE {
        "; GPU memory is refused (start the program in a slice again)"
    } else {
        "; GPU memory is refused (repair the file, or unset GPUSLICE_CONFIG)"
    };
    let (kind, verb) = match path {
        path if path == paths::CONFIG => ("", " "),
        path if path == paths::SLICE => ("the slice in ", ": "),
        _ => ("slice file ", ": "),
    };
    let line = [
        Str(kind),
        Raw(path.to_bytes()),
        Str(verb),
        Raw(why),
        Str(follows),
    ];
    counters::SLICE.warn(&line);
}

/// Reads the slice file into its place.
fn read<'a>(file: &File, path: &CStr, text: &'a mut [u8; MAX_FILE]) -> Option<&'a [u8]> {
    let length = match file.length() {
        Ok(length) if length <= MAX_FILE => length,
        Ok(_) => {
            unusable(path, b"larger than a slice file can be");
            return None;
        }
        Err(sys::EINVAL) => {
            unusable(path, b"not a regular file");
            return None;
        }
        Err(why) => {
            let mut text = log::Text::<96>::new();
            let _ = write!(
                text,
                "cannot be examined (fstat fails with {why}{hint})",
                hint = why.hint()
            );
            unusable(path, text.as_bytes());
            return None;
        }
    };
    match file.read(text.get_mut(..length).unwrap_or_default()) {
        Ok(text) => Some(text),
        Err(_) => {
            unusable(path, b"cannot be read");
            None
        }
    }
}

/// Parses a slice into its place; logs the error if that fails.
fn parse(text: &[u8], path: &CStr, place: &mut MaybeUninit<Slice>) -> bool {
    let parsed = slice::parse_into(text, begin(place));
    if let Err(error) = &parsed {
        unparsable(path, error);
    }
    parsed.is_ok()
}

/// Reads the slice from the file, or else from the environment. Returns the source.
#[cold]
#[inline(never)]
pub(super) fn find(
    file: Result<File, sys::Errno>,
    path: &'static CStr,
    text: &mut [u8; MAX_FILE],
    place: &mut MaybeUninit<Slice>,
) -> Option<&'static CStr> {
    let text = match file {
        Ok(file) => read(&file, path, text),
        Err(why) => {
            unusable(
                path,
                match why {
                    _ if path == paths::CONFIG => b"is not set",
                    sys::ENOENT | sys::ENOTDIR => b"does not exist",
                    sys::EACCES => b"this user may not open it",
                    why if why.is_passing() => PASSING,
                    _ => b"cannot be opened",
                },
            );
            None
        }
    };
    if text.is_some_and(|text| parse(text, path, place)) {
        return Some(path);
    }
    let text = in_environment(path)?.to_bytes();
    parse(text, paths::SLICE, place).then_some(paths::SLICE)
}

/// A slice that grants no memory of any device and changes nothing else: one was configured, and
/// its limit is unknown.
#[cold]
#[inline(never)]
pub(super) fn refuse(place: &mut MaybeUninit<Slice>) {
    let slice = begin(place);
    *slice = Slice::default();
    slice.memory = Some(Bytes::new(1 << 60));
}

#[inline(never)]
pub(super) fn begin(place: &mut MaybeUninit<Slice>) -> &mut Slice {
    place.write(Slice::default())
}

#[cold]
#[inline(never)]
fn unparsable(path: &CStr, error: &slice::SliceError) {
    let mut why = log::Text::<256>::new();
    let _ = write!(why, "{error}");
    unusable(path, why.as_bytes());
}
