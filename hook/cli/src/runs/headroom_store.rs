//! Stores the headroom that earlier runs needed, by slice name and device.
//! Touches: one file in the state folder, and the lock beside it.
//!
//! A program that sizes itself by TOTAL and then requests more than is left was shown too much. The
//! excess is the amount by which its request exceeded the free memory. The next run of that name is
//! shown a TOTAL smaller by that amount. Amounts are measured bytes, never percentages.

use crate::base::text;
use crate::runs::run_dir;
use crate::slice::budget::Headrooms;
use crate::slice::file as slice_file;
use crate::slice::ledger as slice_ledger;
use gpuslice_config::ledger::Refusals;
use gpuslice_config::slice::Slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// Headroom by slice name.
pub(crate) type HeadroomsByName = BTreeMap<String, Headrooms>;

/// Reasons why headroom cannot be learned or stored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadroomError {
    /// The user has no home folder.
    #[error("cannot store learned headroom: neither XDG_STATE_HOME nor HOME is set")]
    NoPlace,
    /// The file cannot be read or replaced.
    #[error("cannot {verb} {path}, where learned headroom is remembered")]
    File {
        verb: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file does not hold learned headroom.
    #[error("{path} does not hold learned headroom: {why} (`gpuslice headroom reset` removes it)")]
    Garbled {
        path: PathBuf,
        /// The fault in it.
        why: String,
    },
}

/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// The length in bytes to which the file may grow. It is enough for thousands of slices.
const MAX_GROWTH: usize = 1 << 20;

const VERSION: u64 = 1;

/// The file's contents.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Remembered {
    version: u64,
    slices: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Returns the path of the stored headroom.
///
/// # Errors
/// When this user has no home folder.
pub(crate) fn place() -> Result<PathBuf, HeadroomError> {
    let folder = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = match folder("XDG_STATE_HOME") {
        Some(state) => state,
        None if geteuid().is_root() => "/var/lib".into(),
        None => folder("HOME")
            .ok_or(HeadroomError::NoPlace)?
            .join(".local/state"),
    };
    Ok(state.join("gpuslice/headroom.json"))
}

/// Reads all stored headroom.
///
/// # Errors
/// When the file cannot be read, or does not hold learned headroom.
pub(crate) fn read(path: &Path) -> Result<HeadroomsByName, HeadroomError> {
    let garbled = |why: String| HeadroomError::Garbled {
        path: path.to_owned(),
        why: text::printable(&why),
    };
    let text = match read_text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HeadroomsByName::new()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(garbled(error.to_string()));
        }
        text => text.map_err(failed("read", path))?,
    };
    let remembered: Remembered =
        serde_json::from_slice(&text).map_err(|error| garbled(error.to_string()))?;
    if remembered.version != VERSION {
        return Err(garbled(format!(
            "its version is {}, not {VERSION}",
            remembered.version
        )));
    }
    remembered
        .slices
        .into_iter()
        .map(|(name, devices)| {
            let devices = devices.into_iter().map(|(uuid, bytes)| {
                let device = uuid.parse::<DeviceUuid>();
                device
                    .map(|device| (device, Bytes::new(bytes)))
                    .map_err(|_| garbled(format!("\"{uuid}\" is not a device's uuid")))
            });
            Ok((name, devices.collect::<Result<Headrooms, HeadroomError>>()?))
        })
        .collect()
}

fn read_text(path: &Path) -> io::Result<Vec<u8>> {
    // Without this flag, a pipe in the file's place would block this process.
    let flags = OFlag::O_NONBLOCK.bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let facts = file.metadata()?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why);
    if !facts.is_file() {
        return Err(wrong("it is not a regular file"));
    }
    if facts.len() > MAX_FILE {
        return Err(wrong("it is longer than 16 MiB"));
    }
    let mut text = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut text)?;
    Ok(text)
}

/// Changes the stored headroom. Concurrent updates wait for each other; a reader sees the old file
/// or the new one.
///
/// # Errors
/// When this user must not change the file, or it cannot be replaced.
pub(crate) fn update(
    path: &Path,
    change: impl FnOnce(&mut HeadroomsByName),
) -> Result<(), HeadroomError> {
    make_folder(path).map_err(failed("lock", path))?;
    update_existing(path, change)
}

/// Changes the stored headroom, if its folder exists.
fn update_existing(
    path: &Path,
    change: impl FnOnce(&mut HeadroomsByName),
) -> Result<(), HeadroomError> {
    let _lock = lock(path).map_err(failed("lock", path))?;
    let mut learned = read(path)?;
    let before = learned.clone();
    change(&mut learned);
    match learned == before {
        true => Ok(()),
        false => replace(path, &learned).map_err(failed("replace", path)),
    }
}

/// Removes all stored headroom, whatever the file contains.
///
/// # Errors
/// When the file cannot be removed.
pub(crate) fn forget_all(path: &Path) -> Result<(), HeadroomError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

fn failed(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> HeadroomError {
    move |source| HeadroomError::File {
        verb,
        path: path.to_owned(),
        source,
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    DirBuilder::new().mode(0o700).recursive(true).create(folder)
}

fn lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path.with_extension("lock"))?;
    file.lock()?;
    Ok(file)
}

fn replace(path: &Path, learned: &HeadroomsByName) -> io::Result<()> {
    let slices = learned.iter().map(|(name, devices)| {
        let devices = devices
            .iter()
            .map(|(uuid, bytes)| (uuid.to_string(), bytes.get()));
        (name.clone(), devices.collect())
    });
    let remembered = Remembered {
        version: VERSION,
        slices: slices.collect(),
    };
    let mut text = serde_json::to_vec_pretty(&remembered)?;
    text.push(b'\n');
    // A file that is already too long may still be replaced by a shorter one.
    let old = fs::metadata(path).map_or(0, |facts| facts.len());
    if text.len() > MAX_GROWTH && text.len() as u64 >= old {
        return Err(io::Error::other(
            "it would be longer than 1 MiB (`gpuslice headroom reset NAME` makes room)",
        ));
    }
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(path))?;
    file.write_all(&text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// Marks a run so that headroom is learned from it when it ends. The folder of the stored headroom is
/// created now: at the end of the run it would create a home again that was removed meanwhile.
///
/// # Errors
/// When the private folder cannot be written to.
pub(crate) fn remember(private: &Path, place: &Path) -> io::Result<()> {
    // No run fails because its headroom cannot be stored: `gpuslice headroom` gives the reason.
    let _ = make_folder(place);
    symlink(place, private.join(run_dir::HEADROOM))
}

/// Learns from a run that has ended.
///
/// # Errors
/// When the stored headroom cannot be read, or the new headroom cannot be written.
pub(crate) fn learn(private: &Path) -> Result<(), HeadroomError> {
    let Ok(place) = fs::read_link(private.join(run_dir::HEADROOM)) else {
        return Ok(());
    };
    let file = private.join(run_dir::SLICE);
    let Ok(slice) = slice_file::read(&file) else {
        return Ok(());
    };
    let Some(ledger) = slice_ledger::path(&file, &slice) else {
        return Ok(());
    };
    let refusals = slice_ledger::refusals(&ledger);
    let shortfalls = shortfalls(&slice, &refusals);
    if shortfalls.is_empty() {
        return Ok(());
    }
    update_existing(&place, |learned| {
        let known = learned.entry(slice.name.as_str().to_owned()).or_default();
        for (device, headroom) in shortfalls {
            let known = known.entry(device).or_default();
            *known = known.at_least(headroom);
        }
    })
}

/// Returns the shortfall of the worst refusal on each device. The shortfall is not added to earlier
/// headroom. An allocator such as PyTorch's empties its caches after a refusal and retries; it
/// reaches the limit in every run, whatever TOTAL it is shown. A request that exceeds the whole
/// slice is ignored, because no program derives it from TOTAL.
fn shortfalls(slice: &Slice, refusals: &[(DeviceUuid, Refusals)]) -> Headrooms {
    let shortfall = |(uuid, refusals): &(DeviceUuid, Refusals)| {
        let possible = Bytes::new(1)..slice.device(*uuid)?.memory;
        let regret = refusals.regret;
        possible.contains(&regret).then_some((*uuid, regret))
    };
    refusals.iter().filter_map(shortfall).collect()
}

/// Checks whether the headroom of a device of a run was learned. Headroom set by the user is
/// recorded for the whole slice, not for a device.
#[must_use]
pub(crate) fn is_learned(file: &Path, slice: &Slice, device: DeviceUuid) -> bool {
    let ours = run_dir::private_folder(file).is_some();
    ours && slice
        .devices()
        .any(|listed| listed.uuid == device && listed.headroom.is_some())
}

#[cfg(test)]
#[path = "headroom_store_tests.rs"]
mod tests;
