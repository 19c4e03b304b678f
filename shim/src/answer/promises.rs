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
use crate::sys::{self, File, Listing, Stat};

/// The sum of all slices' promises, including ours, from the file names alone.
pub(crate) fn promised(slice: &LoadedSlice) -> Bytes {
    sum(slice, |_, _, promise| promise.budget)
}

/// The memory promised to the other slices that they have not spent.
pub(crate) fn unspent(slice: &LoadedSlice) -> Bytes {
    let own = slice.promise().and_then(|path| Stat::at(path).ok());
    sum(slice, |folder, name, promise| {
        unspent_of(folder, name, promise, own.as_ref())
    })
}

fn sum(slice: &LoadedSlice, amount: impl Fn(&File, &CStr, &Promise<'_>) -> Bytes) -> Bytes {
    let Some(path) = slice.promises() else {
        return Bytes::ZERO;
    };
    let Ok(folder) = File::open_folder(path) else {
        let line = [
            Str("the promises in "),
            Raw(path.to_bytes()),
            Str(" cannot be read: nothing is kept for other slices"),
        ];
        counters::PROMISES.warn(&line);
        return Bytes::ZERO;
    };
    let mut sum = Bytes::ZERO;
    let mut listing = Listing::new();
    while let Ok(listed @ [_, ..]) = folder.list(&mut listing) {
        for name in directory::names(listed) {
            if let Some(promise) = Promise::named(name.to_bytes()) {
                sum = sum.plus(amount(&folder, name, &promise));
            }
        }
    }
    sum
}

fn unspent_of(folder: &File, name: &CStr, promise: &Promise<'_>, own: Option<&Stat>) -> Bytes {
    let file = match folder.open_entry(name) {
        Ok(file) => file,
        // A link is not a promise, and neither is a file that has just been removed.
        Err(sys::ELOOP | sys::ENOENT) => return Bytes::ZERO,
        Err(_) => return promise.budget,
    };
    let Ok(stat) = file.stat() else {
        return promise.budget;
    };
    if !stat.regular || own.is_some_and(|own| own.identity == stat.identity) {
        return Bytes::ZERO;
    }
    let mut head = [0u8; HEAD];
    promise.unused(file.read(&mut head).unwrap_or_default())
}

/// Publishes the memory that this slice has spent.
pub(crate) fn write(slice: &LoadedSlice, bytes: Bytes) {
    let Some(path) = slice.promise() else {
        return;
    };
    let file = File::open_itself(path);
    let file = file
        .ok()
        .filter(|file| file.stat().is_ok_and(|stat| stat.regular));
    let written = file.map(|file| file.write_at_start(&spent(bytes)));
    if !matches!(written, Some(Ok(HEAD))) {
        counters::PROMISES.warn(&[
            Str("the promise "),
            Raw(path.to_bytes()),
            Str(" cannot be written: all of the slice counts as unspent"),
        ]);
    }
}
