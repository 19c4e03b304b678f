//! Reads the promises of this machine's slices: the memory that others may still spend, and
//! publishes the memory that this slice has spent.
//! Touches: the folder of promises, read-only; this slice's own file.
//! Law: no link is followed and no file is mapped. A malformed file claims the budget in its name,
//! which the host has chosen.

use core::ffi::CStr;

use gpuslice_config::promises::{HEAD, Promise, directory, spent};
use gpuslice_config::words::units::Bytes;

use crate::log::Piece::{Raw, Str};
use crate::log::counters;
use crate::slice::loaded_slice::LoadedSlice;
use crate::sys::{self, Errno, File, Listing, Stat};

/// The sum of all slices' promises, including ours, from the file names alone.
///
/// # Errors
/// When they cannot be read for the moment.
pub(crate) fn promised(slice: &LoadedSlice) -> Result<Bytes, Errno> {
    sum(slice, |_, _, promise| Some(promise.budget))
}

/// The memory promised to the other slices that they have not spent.
///
/// # Errors
/// When the promises cannot be read for the moment.
pub(crate) fn unspent(slice: &LoadedSlice) -> Result<Bytes, Errno> {
    let own = OwnPromise::of(slice);
    sum(slice, |folder, name, promise| match own.is(promise) {
        true => Some(Bytes::ZERO),
        false => unspent_of(folder, name, promise, own.file.as_ref()),
    })
}

/// What identifies this slice's own promise. A resize renames the file, so its path may lead to
/// nothing.
struct OwnPromise<'a> {
    /// The slice's id, if its path names it: the path of a run's promise does.
    id: Option<&'a [u8]>,
    /// The file, if the path still leads to it: in a container it always does.
    file: Option<Stat>,
}

impl<'a> OwnPromise<'a> {
    fn of(slice: &'a LoadedSlice) -> OwnPromise<'a> {
        let path = slice.promise();
        OwnPromise {
            id: path.and_then(|path| Promise::id_of(path.to_bytes())),
            file: path.and_then(|path| Stat::at(path).ok()),
        }
    }

    fn is(&self, promise: &Promise<'_>) -> bool {
        self.id == Some(promise.slice)
    }
}

/// How often a folder is listed if it changes meanwhile.
const LISTINGS: usize = 4;

/// Adds up an amount of each promise. The amount is `None` for a file that is gone by now.
///
/// # Errors
/// When the folder cannot be read for the moment.
fn sum(
    slice: &LoadedSlice,
    amount: impl Fn(&File, &CStr, &Promise<'_>) -> Option<Bytes>,
) -> Result<Bytes, Errno> {
    let Some(path) = slice.promises() else {
        return Ok(Bytes::ZERO);
    };
    let mut most = Bytes::ZERO;
    for _ in 0..LISTINGS {
        let folder = match File::open_folder(path) {
            Ok(folder) => folder,
            Err(why) if why.is_passing() => return Err(why),
            Err(_) => {
                let line = [
                    Str("the promises in "),
                    Raw(path.to_bytes()),
                    Str(" cannot be read: nothing is kept for other slices"),
                ];
                counters::PROMISES.warn(&line);
                return Ok(Bytes::ZERO);
            }
        };
        let changed = || folder.stat().map_or(0, |stat| stat.changed);
        let (before, mut sum, mut is_whole) = (changed(), Bytes::ZERO, true);
        let parts = each(&folder, |name, promise| {
            match amount(&folder, name, promise) {
                Some(amount) => sum = sum.plus(amount),
                // It may have been renamed, and not removed.
                None => is_whole = false,
            }
        });
        most = most.at_least(sum);
        // The kernel lists one part of a folder as it is at one moment. Between two parts, a promise
        // that is renamed can get out of sight.
        if is_whole && (parts <= 1 || changed() == before) {
            break;
        }
    }
    Ok(most)
}

/// Lists the promises of a folder. Returns the number of parts in which the kernel has listed it.
fn each(folder: &File, mut see: impl FnMut(&CStr, &Promise<'_>)) -> usize {
    let mut listing = Listing::new();
    let mut parts = 0usize;
    while let Ok(listed @ [_, ..]) = folder.list(&mut listing) {
        for name in directory::names(listed) {
            if let Some(promise) = Promise::named(name.to_bytes()) {
                see(name, &promise);
            }
        }
        parts = parts.saturating_add(1);
    }
    parts
}

fn unspent_of(
    folder: &File,
    name: &CStr,
    promise: &Promise<'_>,
    own: Option<&Stat>,
) -> Option<Bytes> {
    let file = match folder.open_entry(name) {
        Ok(file) => file,
        // A link is not a promise.
        Err(sys::ELOOP) => return Some(Bytes::ZERO),
        Err(sys::ENOENT) => return None,
        Err(_) => return Some(promise.budget),
    };
    let Ok(stat) = file.stat() else {
        return Some(promise.budget);
    };
    if !stat.regular || own.is_some_and(|own| own.identity == stat.identity) {
        return Some(Bytes::ZERO);
    }
    let mut head = [0u8; HEAD];
    Some(promise.unused(file.read(&mut head).unwrap_or_default()))
}

/// Publishes the memory that this slice has spent.
pub(crate) fn write(slice: &LoadedSlice, bytes: Bytes) {
    let Some(path) = slice.promise() else {
        return;
    };
    let file = match File::open_itself(path) {
        Err(sys::ENOENT) => renamed(slice, path),
        opened => opened.ok(),
    };
    let file = file.filter(|file| file.stat().is_ok_and(|stat| stat.regular));
    let written = file.map(|file| file.write_at_start(&spent(bytes)));
    if !matches!(written, Some(Ok(HEAD))) {
        counters::PROMISES.warn(&[
            Str("the promise "),
            Raw(path.to_bytes()),
            Str(" cannot be written: all of the slice counts as unspent"),
        ]);
    }
}

/// This slice's promise under the name that a resize has given it.
#[cold]
fn renamed(slice: &LoadedSlice, path: &CStr) -> Option<File> {
    let id = Promise::id_of(path.to_bytes())?;
    // It can be renamed again between the listing and the opening.
    for _ in 0..LISTINGS {
        let folder = File::open_folder(slice.promises()?).ok()?;
        let mut found = None;
        each(&folder, |name, promise| {
            if promise.slice == id {
                found = folder.open_entry_to_write(name).ok();
            }
        });
        if found.is_some() {
            return found;
        }
    }
    None
}
