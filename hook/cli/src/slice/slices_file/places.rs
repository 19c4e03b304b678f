//! The places of slices files, and the search for a slice by its name.
//! Touches: `slices.toml` of this user and of the host, or the file that an option names.
//! Law: a file that another user may write to is not used, because it names commands to run.

use super::{Fault, NamedSlice, parse};
use crate::base::text::{alternatives, printable};
use gpuslice_host::base::read;
use nix::unistd::geteuid;
use std::env;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The host's file.
pub(crate) const OF_HOST: &str = "/etc/gpuslice/slices.toml";

/// The user's file, below the folder of the user's configuration.
const OF_USER: &str = "gpuslice/slices.toml";

/// The most bytes of a slices file.
const CAP: usize = 1 << 20;

/// Why a slice cannot be taken from a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SlicesFileError {
    /// The file cannot be read, or others may write to it.
    #[error("cannot use slices file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The text has a fault.
    #[error("{path}, {fault}")]
    Parse { path: PathBuf, fault: Fault },
    /// There is no file at any place.
    #[error("there is no slices file: neither {places} exists (gpuslice-slices(5) has an example)")]
    NoFile {
        /// The places, in a sentence.
        places: String,
    },
    /// No file has that slice.
    #[error("there is no slice \"{name}\" in {files}; there {existing}")]
    NoSlice {
        name: String,
        /// The files that were read, in a sentence.
        files: String,
        /// The slices of these files, in a sentence.
        existing: String,
    },
}

/// A slice, and the file that has it.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) slice: NamedSlice,
    pub(crate) file: PathBuf,
}

/// The use of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its commands are run.
    Run,
    /// It is only shown.
    Show,
}

/// The slices of all files. Of two slices with one name, the first counts.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    /// The files that were read.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) found: Vec<Found>,
}

/// Finds a slice in `file`, or else in the user's file and then in the host's.
///
/// # Errors
/// When no file has it, or a file cannot be used. A file with a fault is not skipped.
pub(crate) fn find(name: &str, file: Option<&Path>) -> Result<Found, SlicesFileError> {
    let Slices { files, found } = read_all(file, Use::Run)?;
    let names: Vec<String> = found
        .iter()
        .map(|found| printable(found.slice.name()))
        .collect();
    let mut found = found.into_iter();
    let wanted = found.find(|found| found.slice.name() == name);
    wanted.ok_or_else(|| SlicesFileError::NoSlice {
        name: printable(name),
        files: alternatives(&files),
        existing: match names.as_slice() {
            [] => "are no slices".to_owned(),
            [only] => format!("is {only}"),
            names => format!("are {}", names.join(", ")),
        },
    })
}

/// Reads the slices of `file`, or else of the user's file and the host's.
///
/// # Errors
/// When there is no file, or a file cannot be used.
pub(crate) fn read_all(file: Option<&Path>, used: Use) -> Result<Slices, SlicesFileError> {
    let places = match file {
        Some(file) => vec![file.to_owned()],
        None => places(),
    };
    let mut slices = Slices::default();
    for place in &places {
        let text = match text(place, used) {
            Err(error) if file.is_none() && is_absent(place, &error) => continue,
            read => read.map_err(|source| SlicesFileError::Read {
                path: place.clone(),
                source,
            })?,
        };
        let parsed = parse(&text).map_err(|fault| SlicesFileError::Parse {
            path: place.clone(),
            fault,
        })?;
        slices.files.push(place.clone());
        for slice in parsed {
            let is_known = |found: &Found| found.slice.name() == slice.name();
            if !slices.found.iter().any(is_known) {
                let file = place.clone();
                slices.found.push(Found { slice, file });
            }
        }
    }
    match slices.files.is_empty() {
        false => Ok(slices),
        true => Err(SlicesFileError::NoFile {
            places: alternatives(&places).replace(" or ", " nor "),
        }),
    }
}

/// Returns the places that are searched: the user's file and the host's.
fn places() -> Vec<PathBuf> {
    let absolute = |name: &str| {
        let path = env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let home = || Some(absolute("HOME")?.join(".config"));
    let own = absolute("XDG_CONFIG_HOME").or_else(home);
    let own = own.map(|folder| folder.join(OF_USER));
    own.into_iter().chain([OF_HOST.into()]).collect()
}

/// Whether a file does not exist as far as this process can see: a service may have no home, or one that
/// it cannot enter (`ProtectHome=`).
fn is_absent(place: &Path, error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => true,
        io::ErrorKind::PermissionDenied => place
            .metadata()
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied),
        _ => false,
    }
}

fn text(path: &Path, used: Use) -> io::Result<String> {
    let file = read::open_unless_absent(path)?;
    if used == Use::Run {
        match path == Path::new(OF_HOST) {
            true => read::only_roots(&file)?,
            false => only_ours(&file)?,
        }
    }
    let bytes = read::whole(file, CAP)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"))
}

/// Checks that only this user and root decide what the file says. The group may write to it where
/// that is the usual mode of a user's own files, but not for root.
fn only_ours(file: &File) -> io::Result<()> {
    let facts = file.metadata()?;
    let own = geteuid();
    if ![0, own.as_raw()].contains(&facts.uid()) {
        return Err(io::Error::other(format!(
            "it belongs to user {}, whose commands would run",
            facts.uid()
        )));
    }
    let others = if own.is_root() { 0o022 } else { 0o002 };
    match facts.mode() & others {
        0 => Ok(()),
        _ => Err(io::Error::other(
            "other users may write to it, and their commands would run",
        )),
    }
}
