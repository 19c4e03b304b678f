//! The loaded copies of each library, and the addresses of the real functions in each copy.
//! Touches: atomics; the loader, when an address is needed for the first time.
//! Law: a copy is one loaded object. Its addresses are forgotten when the library is unloaded.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use crate::loader::dl;
use crate::loader::elf::{self, Object};
use crate::loader::image;
use crate::real::abi::{
    CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, CUdevice, CUresult, CUstream,
    NVML_ERROR_LIBRARY_NOT_FOUND,
};
use crate::real::functions::{self, FUNCTIONS, RARE};

/// The number of copies of one library that a process may have hooked at the same time. Two
/// runtimes of different versions are common, two drivers are not.
pub(crate) const MOST_COPIES: usize = 4;

/// One loaded copy of a library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyId(pub(crate) u8);

impl CopyId {
    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The library to which a function of the table belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    /// The driver, `libcuda.so.1`.
    Cuda,
    /// The runtime, `libcudart.so.N`.
    Cudart,
    /// NVML, `libnvidia-ml.so.1`.
    Nvml,
    /// libc: loader, file and system-information functions.
    Libc,
}

impl Library {
    fn sonames(self) -> &'static [u8] {
        // One string each, not a list of pointers, which would need relocations.
        match self {
            Library::Cuda => b"libcuda.so.1\0",
            Library::Cudart => b"libcudart.so.13\0libcudart.so.12\0libcudart.so.11.0\0",
            Library::Nvml => b"libnvidia-ml.so.1\0",
            Library::Libc => b"",
        }
    }

    /// The code that a function returns when its library is not loaded.
    pub(crate) fn absent(self) -> u32 {
        match self {
            Library::Nvml => NVML_ERROR_LIBRARY_NOT_FOUND,
            _ => CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
        }
    }
}

/// The identity of a loaded copy: where its dynamic section and its base are.
pub(crate) struct CopyRecord {
    dynamic: AtomicUsize,
    base: AtomicUsize,
}

impl CopyRecord {
    pub(crate) const fn none() -> CopyRecord {
        CopyRecord {
            dynamic: AtomicUsize::new(0),
            base: AtomicUsize::new(0),
        }
    }
}

/// Another thread is just filling this place.
const BUSY: usize = 1;

#[unsafe(link_section = ".data")]
static RECORDS: [[CopyRecord; MOST_COPIES]; 3] =
    [const { [const { CopyRecord::none() }; MOST_COPIES] }; 3];

fn records(library: Library) -> &'static [CopyRecord] {
    RECORDS
        .get(library as usize)
        .map_or(&[], <[CopyRecord; MOST_COPIES]>::as_slice)
}

fn copies_of(library: Library) -> impl Iterator<Item = (CopyId, &'static CopyRecord)> {
    (0u8..).map(CopyId).zip(records(library))
}

/// The number of a loaded copy. None: there are too many copies of the library.
pub(crate) fn claim(library: Library, object: &Object) -> Option<CopyId> {
    claim_in(records(library), object, |copy| forget(library, copy))
}

/// The number of a loaded copy among these records. `forget` is called for a number whose library
/// was unloaded, before another library gets it.
pub(crate) fn claim_in(
    records: &'static [CopyRecord],
    object: &Object,
    forget: impl Fn(CopyId),
) -> Option<CopyId> {
    let copies = || (0u8..).map(CopyId).zip(records);
    for (copy, record) in copies() {
        let same = record.dynamic.load(Ordering::Acquire) == object.dynamic;
        if same && record.base.load(Ordering::Relaxed) == object.base {
            return Some(copy);
        }
    }
    let take = |copy: CopyId, record: &CopyRecord, held: usize| {
        record
            .dynamic
            .compare_exchange(held, BUSY, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        if held != 0 {
            forget(copy);
        }
        record.base.store(object.base, Ordering::Relaxed);
        record.dynamic.store(object.dynamic, Ordering::Release);
        Some(copy)
    };
    // A new copy takes over the record of an unloaded library, whose addresses are forgotten.
    for (copy, record) in copies() {
        let held = record.dynamic.load(Ordering::Acquire);
        if held > BUSY
            && !dl::is_loaded(held)
            && let Some(copy) = take(copy, record, held)
        {
            return Some(copy);
        }
    }
    copies().find_map(|(copy, record)| take(copy, record, 0))
}

/// Forgets the real functions of one copy, and the facts about its devices.
pub(crate) fn forget(library: Library, copy: CopyId) {
    functions::forget(library, copy);
    if library == Library::Cuda {
        forget_devices(copy);
    }
}

/// The cached facts about the devices of one copy of the driver: see `answer::device`. All zeros:
/// none.
pub(crate) struct Devices {
    /// A word for each ordinal.
    pub(crate) ordinals: [AtomicU32; ORDINALS],
    /// Whether the driver has only one device: 0 unknown, 1 yes, 2 no.
    pub(crate) alone: AtomicU8,
    /// Whether the driver lacks `cuStreamGetDevice`, as all before R570 do: 0 unknown, 1 yes.
    pub(crate) lacks_stream_device: AtomicU8,
    /// Whether any device shares the host's memory: 0 unknown, 1 yes, 2 no.
    pub(crate) shared: AtomicU8,
}

/// The number of cached devices, as many as machines have; further ones are queried each time.
const ORDINALS: usize = 16;

type StreamDevice = unsafe extern "C" fn(CUstream, *mut CUdevice) -> CUresult;

impl Devices {
    const fn unknown() -> Devices {
        Devices {
            ordinals: [const { AtomicU32::new(0) }; ORDINALS],
            alone: AtomicU8::new(0),
            lacks_stream_device: AtomicU8::new(0),
            shared: AtomicU8::new(0),
        }
    }

    /// `cuStreamGetDevice`, if the driver has it. It is looked up once where it is missing, because such
    /// a look-up searches all libraries, under the loader's lock.
    pub(crate) fn stream_device(&self, copy: CopyId) -> Option<StreamDevice> {
        if self.lacks_stream_device.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let ask = functions::cuStreamGetDevice::real(copy);
        if ask.is_none() {
            self.lacks_stream_device.store(1, Ordering::Relaxed);
        }
        ask
    }
}

/// The devices of the first copy, the only one in nearly every process. Written at every start: see
/// `layout.ld`.
#[unsafe(link_section = ".data")]
static FIRST_DEVICES: Devices = Devices::unknown();

/// The devices of the other copies.
static OTHER_DEVICES: [Devices; MOST_COPIES - 1] = [const { Devices::unknown() }; MOST_COPIES - 1];

/// The cached facts about the devices of one copy of the driver.
#[inline]
pub(crate) fn devices(copy: CopyId) -> Option<&'static Devices> {
    match copy.index().checked_sub(1) {
        None => Some(&FIRST_DEVICES),
        Some(other) => OTHER_DEVICES.get(other),
    }
}

/// The cached facts about the devices of all copies.
pub(crate) fn all_devices() -> impl Iterator<Item = &'static Devices> {
    core::iter::once(&FIRST_DEVICES).chain(&OTHER_DEVICES)
}

/// Forgets the cached facts about the devices of one copy of the driver.
pub(crate) fn forget_devices(copy: CopyId) {
    let Some(devices) = devices(copy) else {
        return;
    };
    devices.alone.store(0, Ordering::Relaxed);
    devices.lacks_stream_device.store(0, Ordering::Relaxed);
    devices.shared.store(0, Ordering::Relaxed);
    for known in &devices.ordinals {
        known.store(0, Ordering::Relaxed);
    }
}

/// Whether this process has used only one copy of a library so far.
pub(crate) fn has_one(library: Library) -> bool {
    let used = copies_of(library).filter(|(_, place)| place.dynamic.load(Ordering::Acquire) > BUSY);
    used.count() == 1
}

fn object_at(library: Library, copy: CopyId) -> Option<Object> {
    let place = records(library).get(copy.index())?;
    let dynamic = place.dynamic.load(Ordering::Acquire);
    let base = place.base.load(Ordering::Relaxed);
    (dynamic > BUSY && place.dynamic.load(Ordering::Acquire) == dynamic).then_some(Object {
        base,
        dynamic,
        name: core::ptr::null(),
    })
}

/// A driver that is loaded now, by the program or by another library.
pub(crate) fn any_driver() -> Option<CopyId> {
    for (copy, place) in copies_of(Library::Cuda) {
        let held = place.dynamic.load(Ordering::Acquire);
        if held > BUSY && dl::is_loaded(held) {
            return Some(copy);
        }
    }
    let driver = elf::named(|name| name.starts_with(b"libcuda.so"))?;
    claim(Library::Cuda, &driver)
}

/// NVML; loads it if it is not loaded yet.
pub(crate) fn any_nvml() -> Option<CopyId> {
    let there = || elf::named(|name| name.starts_with(b"libnvidia-ml.so"));
    let library = there().or_else(|| {
        dl::load(c"libnvidia-ml.so.1");
        there()
    })?;
    claim(Library::Nvml, &library)
}

/// One real function in each copy of its library: an index into the tables of addresses.
#[derive(Clone, Copy)]
pub(crate) struct Cells(usize);

/// The addresses in one copy of every library.
pub(crate) type Addresses = [AtomicPtr<c_void>; FUNCTIONS - RARE];

/// The addresses in the first copy of each library, the only one in nearly every process. Written
/// at every start: see `layout.ld`.
#[unsafe(link_section = ".data")]
pub(crate) static FIRST: Addresses = [const { AtomicPtr::new(null_mut()) }; FUNCTIONS - RARE];

/// The addresses of rarely called functions, whose rows stand last. They are kept apart, because
/// the page of the other addresses is full.
static SELDOM: [AtomicPtr<c_void>; RARE] = [const { AtomicPtr::new(null_mut()) }; RARE];

/// The addresses in the other copies.
static OTHERS: [Addresses; MOST_COPIES - 1] =
    [const { [const { AtomicPtr::new(null_mut()) }; FUNCTIONS - RARE] }; MOST_COPIES - 1];

impl Cells {
    /// The function with this number.
    pub(crate) const fn new(function: usize) -> Cells {
        Cells(function)
    }

    #[inline]
    fn place(self, copy: CopyId) -> Option<&'static AtomicPtr<c_void>> {
        match copy.index().checked_sub(1) {
            None => FIRST
                .get(self.0)
                .or_else(|| SELDOM.get(self.0.wrapping_sub(FUNCTIONS - RARE))),
            Some(other) => OTHERS.get(other)?.get(self.0),
        }
    }

    #[inline]
    pub(crate) fn known(self, copy: CopyId) -> *mut c_void {
        self.place(copy)
            .map_or(null_mut(), |cell| cell.load(Ordering::Acquire))
    }

    pub(crate) fn store(self, copy: CopyId, address: *mut c_void) {
        if let Some(cell) = self.place(copy) {
            cell.store(address, Ordering::Release);
        }
    }

    /// Forgets the address. Avoids a write if none is cached.
    pub(crate) fn forget(self, copy: CopyId) {
        if !self.known(copy).is_null() {
            self.store(copy, null_mut());
        }
    }

    /// The address; looks it up if it is not cached.
    #[inline]
    pub(crate) fn get(self, library: Library, copy: CopyId, name: &'static CStr) -> *mut c_void {
        let known = self.known(copy);
        match known.is_null() {
            false => known,
            true => self.look(library, copy, name),
        }
    }

    #[cold]
    #[inline(never)]
    fn look(self, library: Library, copy: CopyId, name: &CStr) -> *mut c_void {
        let mut address = null_mut();
        if let Some(object) = object_at(library, copy) {
            // SAFETY: a function of this object is being called, so the object is loaded.
            let own = unsafe { image::symbol(&object, name.to_bytes()) };
            address = own.map_or(null_mut(), |own| own as *mut c_void);
        }
        if address.is_null() {
            // The object is an interposer that defines only some of the names.
            address = elsewhere(library, name);
        }
        self.store(copy, address);
        address
    }
}

/// The definition of a libc function that comes after ours; cached.
#[inline]
pub(crate) fn following(cells: Cells, name: &[u8]) -> *mut c_void {
    let known = cells.known(CopyId(0));
    match known.is_null() {
        false => known,
        true => look_behind(cells, name),
    }
}

#[cold]
#[inline(never)]
fn look_behind(cells: Cells, name: &[u8]) -> *mut c_void {
    let found = elf::following(name).map_or(null_mut(), |found| found as *mut c_void);
    cells.store(CopyId(0), found);
    found
}

/// The next definition behind ours. In a namespace of dlmopen this library comes first and nothing
/// is behind it; before glibc 2.34 a failed look-up there ends the process.
pub(crate) fn behind(name: &CStr) -> *mut c_void {
    match elf::is_from_the_start(elf::own_dynamic()) {
        true => dl::next(name),
        false => null_mut(),
    }
}

/// Finds a function in any loaded copy of a library.
pub(crate) fn elsewhere(library: Library, name: &CStr) -> *mut c_void {
    let address = behind(name);
    if !address.is_null() {
        return address;
    }
    let mut sonames = library.sonames();
    while let Ok(soname) = CStr::from_bytes_until_nul(sonames) {
        let address = dl::within(soname, name);
        if !address.is_null() {
            return address;
        }
        sonames = sonames
            .get(soname.count_bytes().saturating_add(1)..)
            .unwrap_or_default();
    }
    null_mut()
}
