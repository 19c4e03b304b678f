//! Selects the entry point for a call: for a pointer that a look-up has found, and for a direct
//! call of an exported symbol.
//! Touches: atomics; the loader, when a call site or a copy of a library is new.
//! Law: a call continues in the library to which the loader would have bound it without us.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::interpose::origin::{Origin, Saved};
use crate::interpose::{callers, entries};
use crate::loader::dl;
use crate::loader::elf::{self, Object};
use crate::loader::versions;
use crate::log::Piece::{Dec, Str};
use crate::log::counters;
use crate::real::copies::{self, CopyId, Library, MOST_COPIES};
use crate::real::functions::{self, EXPORTS, Row};

/// The substitute for the real function `address` of a row: our entry for the copy of the library
/// that it belongs to. If there is none, the address itself.
pub(crate) fn stand_in(row: Row, address: *mut c_void) -> *mut c_void {
    stand_in_of(row, address, dl::object_of(address).as_ref())
}

fn stand_in_of(row: Row, address: *mut c_void, object: Option<&Object>) -> *mut c_void {
    match place(row, address, object) {
        Some(copy) => entries::entry(row, copy),
        None => address,
    }
}

/// Finds and remembers the copy of the library to which a real function belongs; `object` is that
/// library.
fn place(row: Row, address: *mut c_void, object: Option<&Object>) -> Option<CopyId> {
    let (library, name) = (functions::library(row), functions::name(row));
    let Some(object) = object else {
        counters::UNPLACED.warn(&[Str(name), Str(" lies in no library")]);
        return None;
    };
    if object.dynamic == elf::own_dynamic() {
        return None;
    }
    let Some(copy) = copies::claim(library, object) else {
        let line = [
            Str(name),
            Str(": more copies of its library are loaded than "),
            Dec(MOST_COPIES as u64),
            Str(": passed through"),
        ];
        counters::COPIES.warn(&line);
        return None;
    };
    let cells = functions::cells(row);
    let known = cells.known(copy);
    if !known.is_null() && known != address {
        // Another library now lies where an unloaded one was.
        copies::forget(library, copy);
    }
    cells.store(copy, address);
    if library == Library::Cuda {
        // The driver may have been loaded again with other visible devices: its ordinals are
        // queried again.
        copies::forget_devices(copy);
    }
    Some(copy)
}

/// The jump targets of the exports, each stored once it is valid for every caller. None is stored
/// for the runtime: its version separates the callers, and a process may load a second one later.
#[unsafe(link_section = ".data")]
pub(crate) static TARGET: [AtomicPtr<c_void>; EXPORTS] =
    [const { AtomicPtr::new(null_mut()) }; EXPORTS];

/// Selects the entry for an export that is called directly from `caller`.
///
/// The loader would have bound the call to the first definition in the global scope, or else in the
/// caller's own scope. This follows the same order, leaving this library out.
pub(crate) extern "C" fn choose(row: usize, caller: usize) -> *mut c_void {
    let Some(row) = functions::row(row) else {
        return entries::absent(Library::Cuda);
    };
    if let Some(copy) = callers::find(row, caller) {
        return entries::entry(row, copy);
    }
    let global = copies::behind(functions::name_c(row));
    if !global.is_null() {
        return for_all(row, global);
    }
    let object = dl::object_of(caller as *const c_void);
    for_one(row, not_global(row, object.as_ref()), Some(caller))
}

/// Selects the entry for an export of the runtime at the address `export`.
///
/// The runtime's symbols have versions, so the loader would have bound each caller to a runtime of
/// the version that it requires.
///
/// # Safety
/// `saved` has the registers at the call.
pub(crate) unsafe extern "C" fn choose_versioned(
    row: usize,
    saved: *const Saved,
    export: usize,
) -> *mut c_void {
    // SAFETY: the caller guarantees this.
    let (Some(row), Some(saved)) = (functions::row(row), unsafe { saved.as_ref() }) else {
        return entries::absent(Library::Cudart);
    };
    let known = match saved.by_register() {
        0 => callers::find(row, saved.caller),
        function => callers::find(row, function).or_else(|| {
            // With one runtime, it does not matter whose call this is, and the loader's lock can be
            // avoided.
            let is_own = function == export || copies::has_one(Library::Cudart);
            is_own.then(|| callers::find(row, saved.site()))?
        }),
    };
    if let Some(copy) = known {
        return entries::entry(row, copy);
    }
    let name = functions::name_c(row);
    let Origin { object, key } = saved.origin(export, name);
    let mut address = object.map_or(null_mut(), |object| of_version(&object, name));
    if address.is_null() {
        address = copies::behind(name);
    }
    if address.is_null() {
        address = not_global(row, object.as_ref());
    }
    // The copy of this library in a namespace of dlmopen does not see when the program closes a
    // library there.
    let key = key.filter(|_| elf::is_from_the_start(elf::own_dynamic()));
    for_one(row, address, key)
}

/// The definition that a caller in this object reaches if none is in the global scope.
fn not_global(row: Row, object: Option<&Object>) -> *mut c_void {
    let name = functions::name_c(row);
    let address = match object {
        // The program's own scope is the global one.
        Some(object) if !object.path().is_empty() => dl::within(object.path(), name),
        _ => null_mut(),
    };
    match address.is_null() {
        true => copies::elsewhere(functions::library(row), name),
        false => address,
    }
}

/// The entry for a definition that not all callers use; it is remembered by `key`.
fn for_one(row: Row, address: *mut c_void, key: Option<usize>) -> *mut c_void {
    if address.is_null() {
        counters::ABSENT.warn(&[
            Str(functions::name(row)),
            Str(" is called, but no loaded library defines it"),
        ]);
        return entries::absent(functions::library(row));
    }
    let object = dl::object_of(address);
    keep(object.as_ref());
    let Some(copy) = place(row, address, object.as_ref()) else {
        return address;
    };
    if let Some(key) = key {
        callers::remember(row, key, copy);
    }
    entries::entry(row, copy)
}

/// The definition with the version that the caller requires, in the loader's order. Null: the
/// caller requires none.
fn of_version(caller: &Object, name: &CStr) -> *mut c_void {
    // SAFETY: the caller's code is running, so its object is loaded.
    let Some(version) = (unsafe { versions::required(caller, name.to_bytes()) }) else {
        return null_mut();
    };
    let mut address = null_mut();
    // A namespace of dlmopen has no global scope behind this library: see `copies::behind`.
    if elf::is_from_the_start(elf::own_dynamic()) {
        address = dl::next_version(name, version.name);
        if address.is_null() && !caller.path().is_empty() {
            address = dl::version_within(caller.path(), name, version.name);
        }
    }
    match address.is_null() {
        true => dl::within(version.library, name),
        false => address,
    }
}

fn for_all(row: Row, address: *mut c_void) -> *mut c_void {
    let object = dl::object_of(address);
    keep(object.as_ref());
    let entry = stand_in_of(row, address, object.as_ref());
    if let Some(target) = TARGET.get(row as usize) {
        target.store(entry, Ordering::Release);
    }
    entry
}

/// Pins a library that is called directly, because remembered addresses must stay valid.
fn keep(object: Option<&Object>) {
    if let Some(object) = object
        && !elf::is_from_the_start(object.dynamic)
    {
        dl::pin(object);
    }
}
