//! Selects the entry point for a call: for a pointer that a look-up has found, and for a direct
//! call of an exported symbol.
//! Touches: atomics; the loader, when a call site or a copy of a library is new.
//! Law: a call goes on in the library in which the loader would have bound it without us.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::interpose::entries;
use crate::loader::dl;
use crate::loader::elf::{self, Object};
use crate::log::Piece::{Dec, Str};
use crate::log::counters;
use crate::real::copies::{self, Library, SLOTS, Slot};
use crate::real::functions::{self, EXPORTS, Row};

/// What stands for the real function `address` of a row: our entry for the copy that it
/// belongs to. The address itself where that cannot be.
pub(crate) fn stand_in(row: Row, address: *mut c_void) -> *mut c_void {
    stand_in_of(row, address, dl::object_of(address).as_ref())
}

fn stand_in_of(row: Row, address: *mut c_void, object: Option<&Object>) -> *mut c_void {
    match place(row, address, object) {
        Some(slot) => entries::entry(row, slot),
        None => address,
    }
}

/// The copy of its library, which is this object, that a real function belongs to, remembered.
fn place(row: Row, address: *mut c_void, object: Option<&Object>) -> Option<Slot> {
    let (library, name) = (functions::library(row), functions::name(row));
    let Some(object) = object else {
        counters::UNPLACED.say("resolve", &[Str(name), Str(" lies in no library")]);
        return None;
    };
    if object.dynamic == elf::own_dynamic() {
        return None;
    }
    let Some(slot) = copies::claim(library, object) else {
        let line = [
            Str(name),
            Str(": more copies of its library than "),
            Dec(SLOTS as u64),
            Str(", passed through"),
        ];
        counters::COPIES.say("resolve", &line);
        return None;
    };
    let cells = functions::cells(row);
    let known = cells.known(slot);
    if !known.is_null() && known != address {
        // Another library in the very place of one that is gone.
        copies::forget(library, slot);
    }
    cells.store(slot, address);
    if library == Library::Cuda {
        // Opened again, perhaps, with other visible devices: its ordinals are asked anew.
        copies::forget_devices(slot);
    }
    Some(slot)
}

/// Where the exports jump to, once it is known for every caller.
#[unsafe(link_section = ".data")]
pub(crate) static TARGET: [AtomicPtr<c_void>; EXPORTS] =
    [const { AtomicPtr::new(null_mut()) }; EXPORTS];

/// Which entry a call site was given: address << 16 | row << 8 | slot + 1.
static CALLERS: [AtomicU64; HOMES] = [const { AtomicU64::new(0) }; HOMES];
const HOMES: usize = 32;

/// Whether any call site was given an entry of its own: most processes never look at the list.
#[unsafe(link_section = ".data")]
static ANY_CALLERS: AtomicBool = AtomicBool::new(false);

/// Where an export, called directly from `caller`, goes on.
///
/// The loader would have bound the call to the first definition in the global scope, or else
/// in the caller's own: so do we, without ourselves.
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
        && let Ok(slot) = u8::try_from((seen & 0xff).wrapping_sub(1))
    {
        return entries::entry(row, Slot(slot));
    }
    let (library, name) = (functions::library(row), functions::name_c(row));
    let global = copies::behind(name);
    if !global.is_null() {
        return for_all(row, global);
    }
    let object = dl::object_of(caller as *const c_void);
    let mut address = match &object {
        // The program's own scope is the global one, which was looked through above.
        Some(object) if !object.path().is_empty() => dl::within(object.path(), name),
        _ => null_mut(),
    };
    if address.is_null() {
        address = copies::elsewhere(library, name);
    }
    if address.is_null() {
        counters::ABSENT.say(
            "resolve",
            &[
                Str(functions::name(row)),
                Str(" is called, but no loaded library defines it"),
            ],
        );
        return entries::absent(library);
    }
    let object = dl::object_of(address);
    keep(object.as_ref());
    let Some(slot) = place(row, address, object.as_ref()) else {
        return address;
    };
    if let Some(home) = home
        && caller >> 48 == 0
    {
        let slot = u64::from(slot.0).saturating_add(1);
        home.store(key | slot, Ordering::Relaxed);
        ANY_CALLERS.store(true, Ordering::Relaxed);
    }
    entries::entry(row, slot)
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

/// A library that is called directly stays: what we remember of it must not point to nothing.
fn keep(object: Option<&Object>) {
    if let Some(object) = object
        && !elf::is_from_the_start(object.dynamic)
    {
        dl::pin(object);
    }
}
