//! Selects the entry point for a call: for a pointer that a look-up has found, and for a direct
//! call of an exported symbol.
//! Touches: atomics; the loader, when a call site or a copy of a library is new.
//! Law: a call continues in the library to which the loader would have bound it without us.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::interpose::entries;
use crate::loader::dl;
use crate::loader::elf::{self, Object};
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

/// The jump targets of the exports, each stored once it is valid for every caller.
#[unsafe(link_section = ".data")]
pub(crate) static TARGET: [AtomicPtr<c_void>; EXPORTS] =
    [const { AtomicPtr::new(null_mut()) }; EXPORTS];

/// The entries selected for call sites: address << 16 | row << 8 | copy + 1.
static CALLERS: [AtomicU64; HOMES] = [const { AtomicU64::new(0) }; HOMES];
const HOMES: usize = 32;

/// Whether any call site has an entry of its own: most processes never read the list.
#[unsafe(link_section = ".data")]
static ANY_CALLERS: AtomicBool = AtomicBool::new(false);

/// Selects the entry for an export that is called directly from `caller`.
///
/// The loader would have bound the call to the first definition in the global scope, or else in the
/// caller's own scope. This follows the same order, leaving this library out.
pub(crate) extern "C" fn choose(row: usize, caller: usize) -> *mut c_void {
    let Some(row) = functions::row(row) else {
        return entries::absent(Library::Cuda);
    };
    let key = (caller as u64) << 16 | (row as u64) << 8;
    let home = CALLERS.get((caller >> 2).wrapping_add(row as usize) % HOMES);
    let seen = match ANY_CALLERS.load(Ordering::Relaxed) {
        true => home.map_or(0, |home| home.load(Ordering::Relaxed)),
        false => 0,
    };
    if seen & !0xff == key
        && let Ok(copy) = u8::try_from((seen & 0xff).wrapping_sub(1))
    {
        return entries::entry(row, CopyId(copy));
    }
    let (library, name) = (functions::library(row), functions::name_c(row));
    let global = copies::behind(name);
    if !global.is_null() {
        return for_all(row, global);
    }
    let object = dl::object_of(caller as *const c_void);
    let mut address = match &object {
        // The program's own scope is the global one, which was searched above.
        Some(object) if !object.path().is_empty() => dl::within(object.path(), name),
        _ => null_mut(),
    };
    if address.is_null() {
        address = copies::elsewhere(library, name);
    }
    if address.is_null() {
        counters::ABSENT.warn(&[
            Str(functions::name(row)),
            Str(" is called, but no loaded library defines it"),
        ]);
        return entries::absent(library);
    }
    let object = dl::object_of(address);
    keep(object.as_ref());
    let Some(copy) = place(row, address, object.as_ref()) else {
        return address;
    };
    if let Some(home) = home
        && caller >> 48 == 0
    {
        let copy = u64::from(copy.0).saturating_add(1);
        home.store(key | copy, Ordering::Relaxed);
        ANY_CALLERS.store(true, Ordering::Relaxed);
    }
    entries::entry(row, copy)
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
