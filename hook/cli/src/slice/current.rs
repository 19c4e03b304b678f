//! Finds the slice that this process is in: mounted by the OCI hook, or named in the environment.
//! Touches: the hook's mounts; the environment variable that names a slice file.

use crate::base::text;
use gpuslice_config::words::paths;
use std::ffi::{CStr, OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::{env, fs};

/// The error when the options contradict the slice that this process is in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InSliceError {
    /// The OCI hook has already mounted a slice.
    #[error("this container already has a slice, which takes precedence: {0}")]
    Mounted(PathBuf),
    /// The program is in a slice already, and the options describe a second one.
    #[error(
        "this program is in a slice already (GPUSLICE_CONFIG names {0}), and a slice cannot be divided: \
         leave out --memory and --device to stay in it, or leave it with `gpuslice run --bare -- \
         gpuslice run --memory ...`"
    )]
    Limit(PathBuf),
    /// The program is in a slice already, and the options name the file of another one.
    #[error(
        "this program is in a slice already (GPUSLICE_CONFIG names {0}), and a slice cannot be divided: \
         leave out --config to stay in it, or leave it with `gpuslice run --bare -- gpuslice run --config \
         ...`"
    )]
    File(PathBuf),
    /// The program is in a slice already, and options would change it.
    #[error(
        "this program is in a slice already (GPUSLICE_CONFIG names {0}), whose options cannot be changed: \
         leave out the options of the slice to stay in it, or leave it with `gpuslice run --bare -- \
         gpuslice run --memory ...`"
    )]
    Options(PathBuf),
    /// The program is in a slice, and cannot say which.
    #[error(
        "this program is in a slice (GPUSLICE_SLICE is set), but GPUSLICE_CONFIG, which names its file, did \
         not reach gpuslice: pass both on, or leave the slice with `gpuslice run --bare -- ...`"
    )]
    Lost,
}

/// Returns the path of the slice that the OCI hook has mounted, if any.
#[must_use]
pub(crate) fn mounted() -> Option<PathBuf> {
    let places = [paths::MOUNTED_SLICE, paths::MOUNTED_IN_DEV];
    places.map(path_of).into_iter().find(|path| path.exists())
}

/// Returns the slice file that the environment names, if any.
#[must_use]
pub(crate) fn named() -> Option<PathBuf> {
    let named = env::var_os(name_of(paths::CONFIG));
    named.filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Checks whether the environment carries a slice and does not name its file. Something on the way here
/// has removed that variable.
#[must_use]
pub(crate) fn has_lost_name() -> bool {
    let is_carried = env::var_os(name_of(paths::SLICE)).is_some_and(|text| !text.is_empty());
    is_carried && named().is_none()
}

/// Returns the path and text of the file in which the OCI hook gives the reason why this
/// container's programs run without its slice.
#[must_use]
pub(crate) fn missing() -> Option<(PathBuf, String)> {
    let places = [paths::MOUNTED_SLICE, paths::MOUNTED_IN_DEV];
    places.map(path_of).into_iter().find_map(|slice| {
        let path = slice.with_file_name(paths::NO_SLICE);
        let is_file = fs::metadata(&path).is_ok_and(|facts| facts.is_file());
        let file = is_file.then(|| fs::File::open(&path).ok())??;
        let mut why = String::new();
        file.take(LONGEST_REASON).read_to_string(&mut why).ok()?;
        Some((path, text::printable(why.trim_end())))
    })
}

/// The most bytes that are read of such a file. A reason is one sentence.
const LONGEST_REASON: u64 = 4096;

fn path_of(name: &CStr) -> PathBuf {
    OsStr::from_bytes(name.to_bytes()).into()
}

fn name_of(variable: &CStr) -> OsString {
    OsStr::from_bytes(variable.to_bytes()).to_owned()
}
