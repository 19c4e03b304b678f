//! The real functions: which copy of a library has them, and where.
//! Touches: atomics; the loader, when something is asked for the first time.
//! Law: a slot is one loaded library. What is kept of it is forgotten when it is gone.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::abi::{CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, NVML_ERROR_LIBRARY_NOT_FOUND};
use crate::elf::{self, Object};
use crate::log::Piece::{Dec, Str};
use crate::table::{self, EXPORTS, FUNCTIONS, Failure, RARE, Row};
use crate::{count, device, loader};

/// How many copies of one library a process may have hooked at the same time. Two runtimes of
/// different versions are common, two drivers are not.
pub(crate) const SLOTS: usize = 4;
const SLOTS_SHOWN: u64 = 4;

/// One loaded copy of a library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u8);

impl Slot {
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Whose functions the table lists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    /// The driver, `libcuda.so.1`.
    Cuda,
    /// The runtime, `libcudart.so.N`.
    Cudart,
    /// NVML, `libnvidia-ml.so.1`.
    Nvml,
    /// libc: the ways to a symbol.
    Libc,
}

impl Library {
    fn sonames(self) -> &'static [u8] {
        // One string each, not a list of pointers: those would need relocations.
        match self {
            Library::Cuda => b"libcuda.so.1\0",
            Library::Cudart => b"libcudart.so.13\0libcudart.so.12\0libcudart.so.11.0\0",
            Library::Nvml => b"libnvidia-ml.so.1\0",
            Library::Libc => b"",
        }
    }

    /// What a function answers whose library is not there.
    pub(crate) fn absent(self) -> u32 {
        match self {
            Library::Nvml => NVML_ERROR_LIBRARY_NOT_FOUND,
            _ => CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
        }
    }
}

struct Place {
    dynamic: AtomicUsize,
    base: AtomicUsize,
}

/// Somebody is just filling this place.
const BUSY: usize = 1;

#[unsafe(link_section = ".data")]
static PLACES: [[Place; SLOTS]; 3] = [const {
    [const {
        Place {
            dynamic: AtomicUsize::new(0),
            base: AtomicUsize::new(0),
        }
    }; SLOTS]
}; 3];

fn places(library: Library) -> &'static [Place] {
    PLACES
        .get(library as usize)
        .map_or(&[], <[Place; SLOTS]>::as_slice)
}

fn slots(library: Library) -> impl Iterator<Item = (Slot, &'static Place)> {
    (0u8..).map(Slot).zip(places(library))
}

/// The slot of a loaded library; None when there are too many copies of it.
pub(crate) fn claim(library: Library, object: &Object) -> Option<Slot> {
    for (slot, place) in slots(library) {
        let same = place.dynamic.load(Ordering::Acquire) == object.dynamic;
        if same && place.base.load(Ordering::Relaxed) == object.base {
            return Some(slot);
        }
    }
    let take = |slot: Slot, place: &Place, held: usize| {
        place
            .dynamic
            .compare_exchange(held, BUSY, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        if held != 0 {
            forget(library, slot);
        }
        place.base.store(object.base, Ordering::Relaxed);
        place.dynamic.store(object.dynamic, Ordering::Release);
        Some(slot)
    };
    // A library that was closed gives its place, and what points to it, to the next.
    for (slot, place) in slots(library) {
        let held = place.dynamic.load(Ordering::Acquire);
        if held > BUSY
            && !loader::is_loaded(held)
            && let Some(slot) = take(slot, place, held)
        {
            return Some(slot);
        }
    }
    slots(library).find_map(|(slot, place)| take(slot, place, 0))
}

fn forget(library: Library, slot: Slot) {
    table::forget(library, slot);
    if library == Library::Cuda {
        device::forget(slot);
    }
}

fn object_at(library: Library, slot: Slot) -> Option<Object> {
    let place = places(library).get(slot.index())?;
    let dynamic = place.dynamic.load(Ordering::Acquire);
    let base = place.base.load(Ordering::Relaxed);
    (dynamic > BUSY && place.dynamic.load(Ordering::Acquire) == dynamic).then_some(Object {
        base,
        dynamic,
        name: core::ptr::null(),
    })
}

/// A driver that is there now, whoever loaded it.
pub(crate) fn any_driver() -> Option<Slot> {
    for (slot, place) in slots(Library::Cuda) {
        let held = place.dynamic.load(Ordering::Acquire);
        if held > BUSY && loader::is_loaded(held) {
            return Some(slot);
        }
    }
    let driver = elf::named(|name| name.starts_with(b"libcuda.so"))?;
    claim(Library::Cuda, &driver)
}

/// NVML, loaded if nobody has done so.
pub(crate) fn any_nvml() -> Option<Slot> {
    let there = || elf::named(|name| name.starts_with(b"libnvidia-ml.so"));
    let library = there().or_else(|| {
        loader::load(c"libnvidia-ml.so.1");
        there()
    })?;
    claim(Library::Nvml, &library)
}

/// One real function, in each copy of its library: a place in the tables of addresses.
#[derive(Clone, Copy)]
pub(crate) struct Cells(usize);

/// The addresses in one copy of every library.
pub(crate) type Addresses = [AtomicPtr<c_void>; FUNCTIONS - RARE];

/// Those of the first copy of each, which nearly every process has alone. Written to by every
/// start: see `layout.ld`.
#[unsafe(link_section = ".data")]
pub(crate) static FIRST: Addresses = [const { AtomicPtr::new(null_mut()) }; FUNCTIONS - RARE];

/// Those that few programs call, which stand last: apart, as the page of the others is full.
static SELDOM: [AtomicPtr<c_void>; RARE] = [const { AtomicPtr::new(null_mut()) }; RARE];

/// Those of the others.
static OTHERS: [Addresses; SLOTS - 1] =
    [const { [const { AtomicPtr::new(null_mut()) }; FUNCTIONS - RARE] }; SLOTS - 1];

impl Cells {
    /// The function with this number.
    pub(crate) const fn of(function: usize) -> Cells {
        Cells(function)
    }

    #[inline]
    fn place(self, slot: Slot) -> Option<&'static AtomicPtr<c_void>> {
        match slot.index().checked_sub(1) {
            None => FIRST
                .get(self.0)
                .or_else(|| SELDOM.get(self.0.wrapping_sub(FUNCTIONS - RARE))),
            Some(other) => OTHERS.get(other)?.get(self.0),
        }
    }

    /// What is known of it.
    #[inline]
    pub(crate) fn known(self, slot: Slot) -> *mut c_void {
        self.place(slot)
            .map_or(null_mut(), |cell| cell.load(Ordering::Acquire))
    }

    pub(crate) fn store(self, slot: Slot, address: *mut c_void) {
        if let Some(cell) = self.place(slot) {
            cell.store(address, Ordering::Release);
        }
    }

    /// Forgets it. What was never known is not written to.
    pub(crate) fn forget(self, slot: Slot) {
        if !self.known(slot).is_null() {
            self.store(slot, null_mut());
        }
    }

    /// Where it is, looking for it if need be.
    #[inline]
    pub(crate) fn get(self, library: Library, slot: Slot, name: &'static CStr) -> *mut c_void {
        let known = self.known(slot);
        match known.is_null() {
            false => known,
            true => self.look(library, slot, name),
        }
    }

    #[cold]
    #[inline(never)]
    fn look(self, library: Library, slot: Slot, name: &CStr) -> *mut c_void {
        let mut address = null_mut();
        if let Some(object) = object_at(library, slot) {
            // SAFETY: somebody is calling a function of this object, so it is loaded.
            let own = unsafe { elf::symbol(&object, name.to_bytes()) };
            address = own.map_or(null_mut(), |own| own as *mut c_void);
        }
        if address.is_null() {
            // The object is only an interposer that has some of the names.
            address = elsewhere(library, name);
        }
        self.store(slot, address);
        address
    }
}

/// The definition of a function of libc that comes after ours, remembered.
#[inline]
pub(crate) fn following(cells: Cells, name: &[u8]) -> *mut c_void {
    let known = cells.known(Slot(0));
    match known.is_null() {
        false => known,
        true => look_behind(cells, name),
    }
}

#[cold]
#[inline(never)]
fn look_behind(cells: Cells, name: &[u8]) -> *mut c_void {
    let found = elf::following(name).map_or(null_mut(), |found| found as *mut c_void);
    cells.store(Slot(0), found);
    found
}

/// What a function answers that this libc does not have, as old ones lack `close_range`.
#[cold]
#[inline(never)]
pub(crate) fn not_in_libc<T: Failure>() -> T {
    type Place = unsafe extern "C" fn() -> *mut i32;
    const ENOSYS: i32 = 38;
    let address = elf::following(b"__errno_location").unwrap_or(0);
    // SAFETY: libc's function has this signature; None is the null pointer.
    let place = unsafe { core::mem::transmute::<usize, Option<Place>>(address) };
    if let Some(place) = place {
        // SAFETY: __errno_location's contract: none.
        let errno = unsafe { place() };
        // SAFETY: it is this thread's errno.
        unsafe { errno.write(ENOSYS) };
    }
    T::FAILED
}

/// The next definition behind us. A namespace of dlmopen begins with us and has nothing behind us;
/// before glibc 2.34 a look-up that fails there ends the process.
fn behind(name: &CStr) -> *mut c_void {
    match elf::is_from_the_start(elf::own_dynamic()) {
        true => loader::next(name),
        false => null_mut(),
    }
}

/// A function of a library that somebody has loaded, wherever it is.
fn elsewhere(library: Library, name: &CStr) -> *mut c_void {
    let address = behind(name);
    if !address.is_null() {
        return address;
    }
    let mut sonames = library.sonames();
    while let Ok(soname) = CStr::from_bytes_until_nul(sonames) {
        let address = loader::within(soname, name);
        if !address.is_null() {
            return address;
        }
        sonames = sonames
            .get(soname.count_bytes().saturating_add(1)..)
            .unwrap_or_default();
    }
    null_mut()
}

/// What stands for the real function `address` of a row: our entry for the copy that it
/// belongs to. The address itself where that cannot be.
pub(crate) fn stand_in(row: Row, address: *mut c_void) -> *mut c_void {
    stand_in_of(row, address, loader::object_of(address).as_ref())
}

fn stand_in_of(row: Row, address: *mut c_void, object: Option<&Object>) -> *mut c_void {
    match place(row, address, object) {
        Some(slot) => table::entry(row, slot),
        None => address,
    }
}

/// The copy of its library, which is this object, that a real function belongs to, remembered.
fn place(row: Row, address: *mut c_void, object: Option<&Object>) -> Option<Slot> {
    let (library, name) = (table::library(row), table::name(row));
    let Some(object) = object else {
        count::UNPLACED.say("resolve", &[Str(name), Str(" lies in no library")]);
        return None;
    };
    if object.dynamic == elf::own_dynamic() {
        return None;
    }
    let Some(slot) = claim(library, object) else {
        let line = [
            Str(name),
            Str(": more copies of its library than "),
            Dec(SLOTS_SHOWN),
            Str(", passed through"),
        ];
        count::COPIES.say("resolve", &line);
        return None;
    };
    let cells = table::cells(row);
    let known = cells.known(slot);
    if !known.is_null() && known != address {
        // Another library in the very place of one that is gone.
        forget(library, slot);
    }
    cells.store(slot, address);
    if library == Library::Cuda {
        // Opened again, perhaps, with other visible devices: its ordinals are asked anew.
        device::forget(slot);
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
    let Some(row) = table::row(row) else {
        return table::absent(Library::Cuda);
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
        return table::entry(row, Slot(slot));
    }
    let (library, name) = (table::library(row), table::name_c(row));
    let global = behind(name);
    if !global.is_null() {
        return for_all(row, global);
    }
    let object = loader::object_of(caller as *const c_void);
    let mut address = match &object {
        // The program's own scope is the global one, which was looked through above.
        Some(object) if !object.path().is_empty() => loader::within(object.path(), name),
        _ => null_mut(),
    };
    if address.is_null() {
        address = elsewhere(library, name);
    }
    if address.is_null() {
        count::ABSENT.say(
            "resolve",
            &[Str(table::name(row)), Str(" is called, and nobody has it")],
        );
        return table::absent(library);
    }
    let object = loader::object_of(address);
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
    table::entry(row, slot)
}

fn for_all(row: Row, address: *mut c_void) -> *mut c_void {
    let object = loader::object_of(address);
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
        loader::pin(object);
    }
}
