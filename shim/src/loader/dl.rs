//! The dynamic loader's own functions, found without calling it.
//! Touches: the symbols that `elf` finds in libc and libdl.
//! Law: none of these is one of our own exports.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::loader::elf::{self, LinkMap, Object};
use crate::loader::image;

/// `RTLD_NEXT`.
pub(crate) const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
/// `RTLD_DEFAULT`.
pub(crate) const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
/// `RTLD_LAZY | RTLD_NOLOAD`: returns a handle to a loaded library, and never loads one.
const LAZY_NOLOAD: c_int = 0x1 | 0x4;
/// `RTLD_NODELETE`.
const NODELETE: c_int = 0x1000;

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
pub(crate) type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
pub(crate) type Dlmopen = unsafe extern "C" fn(isize, *const c_char, c_int) -> *mut c_void;
pub(crate) type Dlclose = unsafe extern "C" fn(*mut c_void) -> c_int;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
type Dladdr1 =
    unsafe extern "C" fn(*const c_void, *mut DlInfo, *mut *const LinkMap, c_int) -> c_int;

/// `Dl_info`.
#[repr(C)]
struct DlInfo {
    dli_fname: *const c_char,
    dli_fbase: *const c_void,
    dli_sname: *const c_char,
    dli_saddr: *const c_void,
}

/// libc's function, to which the naked export jumps. Null: not found, or not looked for yet.
#[unsafe(link_section = ".data")]
pub(crate) static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// As [`DLSYM`].
#[unsafe(link_section = ".data")]
pub(crate) static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// As [`DLSYM`].
#[unsafe(link_section = ".data")]
pub(crate) static DLMOPEN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
#[unsafe(link_section = ".data")]
static DLCLOSE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
#[unsafe(link_section = ".data")]
static DLADDR1: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
#[unsafe(link_section = ".data")]
static DLINFO: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// The libraries that hold the loader's functions: libdl before glibc 2.34.
const HOMES: [fn(&[u8]) -> bool; 3] = [
    |name| name == b"libc.so.6",
    |name| name == b"libdl.so.2",
    |name| name.starts_with(b"ld-musl-") || name.starts_with(b"libc.musl-"),
];

fn find(cached: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = cached.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    for home in HOMES {
        let Some(object) = elf::from_the_start(home).or_else(|| elf::named(home)) else {
            continue;
        };
        // SAFETY: libc and libdl stay loaded as long as a library uses them, and this one does.
        if let Some(address) = unsafe { image::symbol(&object, name.to_bytes()) } {
            cached.store(address as *mut c_void, Ordering::Release);
            return address as *mut c_void;
        }
    }
    core::ptr::null_mut()
}

/// libc's dlsym.
pub(crate) fn dlsym() -> Option<Dlsym> {
    let address = find(&DLSYM, c"dlsym");
    // SAFETY: libc's dlsym has this signature; None is the null pointer.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlsym>>(address) }
}

/// libc's dlopen.
pub(crate) fn dlopen() -> Option<Dlopen> {
    let address = find(&DLOPEN, c"dlopen");
    // SAFETY: libc's dlopen has this signature; None is the null pointer.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlopen>>(address) }
}

/// libc's dlmopen.
pub(crate) fn dlmopen() -> Option<Dlmopen> {
    let address = find(&DLMOPEN, c"dlmopen");
    // SAFETY: libc's dlmopen has this signature; None is the null pointer.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlmopen>>(address) }
}

/// libc's dlclose.
pub(crate) fn dlclose() -> Option<Dlclose> {
    let address = find(&DLCLOSE, c"dlclose");
    // SAFETY: libc's dlclose has this signature; None is the null pointer.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlclose>>(address) }
}

fn close(handle: *mut c_void) {
    if let Some(dlclose) = dlclose() {
        // SAFETY: the handle is from dlopen and is not used after this.
        unsafe { dlclose(handle) };
    }
}

/// libc's dlvsym, which musl does not have.
fn dlvsym() -> Option<Dlvsym> {
    static DLVSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let address = find(&DLVSYM, c"dlvsym");
    // SAFETY: libc's dlvsym has this signature; None is the null pointer.
    unsafe { core::mem::transmute::<*mut c_void, Option<Dlvsym>>(address) }
}

/// The namespace of a handle.
pub(crate) fn namespace_of(handle: *mut c_void) -> Option<isize> {
    const RTLD_DI_LMID: c_int = 1;
    type Dlinfo = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int;
    let address = find(&DLINFO, c"dlinfo");
    // SAFETY: libc's dlinfo has this signature; None is the null pointer.
    let dlinfo = unsafe { core::mem::transmute::<*mut c_void, Option<Dlinfo>>(address) }?;
    let mut lmid = 0isize;
    // SAFETY: the handle is live, and RTLD_DI_LMID writes one Lmid_t.
    let failed = unsafe { dlinfo(handle, RTLD_DI_LMID, (&raw mut lmid).cast()) };
    (failed == 0).then_some(lmid)
}

/// The object that contains an address, in any namespace.
pub(crate) fn object_of(address: *const c_void) -> Option<Object> {
    if let Some(object) = elf::containing(address as usize) {
        return Some(object);
    }
    const RTLD_DL_LINKMAP: c_int = 2;
    let dladdr1 = find(&DLADDR1, c"dladdr1");
    // SAFETY: libc's dladdr1 has this signature; None is the null pointer.
    let dladdr1 = unsafe { core::mem::transmute::<*mut c_void, Option<Dladdr1>>(dladdr1) }?;
    let mut info = core::mem::MaybeUninit::<DlInfo>::uninit();
    let mut map: *const LinkMap = core::ptr::null();
    // SAFETY: both places have room for the values that dladdr1 writes.
    let found = unsafe { dladdr1(address, info.as_mut_ptr(), &raw mut map, RTLD_DL_LINKMAP) };
    if found == 0 {
        return None;
    }
    // SAFETY: the loader's own link map, or null.
    let map = unsafe { map.as_ref() }?;
    Some(map.object())
}

/// Whether the object with this dynamic section is still loaded, in any namespace.
pub(crate) fn is_loaded(dynamic: usize) -> bool {
    elf::is_loaded(dynamic)
        || object_of(dynamic as *const c_void).is_some_and(|object| object.dynamic == dynamic)
}

/// The definition after ours in the global scope: the result without the shim.
pub(crate) fn next(name: &CStr) -> *mut c_void {
    let Some(dlsym) = dlsym() else {
        // Before glibc 2.34 a program or a namespace may lack libdl.
        let address = elf::defined_by_others(name.to_bytes());
        return address.map_or(core::ptr::null_mut(), |address| address as *mut c_void);
    };
    // SAFETY: dlsym's contract; it takes this function, which lies in our own library, for the
    // caller.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr()) }
}

/// The definition after ours in the global scope that has this version, or that belongs to a library
/// without versions.
pub(crate) fn next_version(name: &CStr, version: &CStr) -> *mut c_void {
    let Some(dlvsym) = dlvsym() else {
        return next(name);
    };
    // SAFETY: dlvsym's contract; it takes this function, which lies in our own library, for the
    // caller.
    unsafe { dlvsym(RTLD_NEXT, name.as_ptr(), version.as_ptr()) }
}

/// libc's own definition. If there is none, dlerror reports it; before glibc 2.27 a look-up behind
/// us does not set dlerror.
pub(crate) fn in_libc(name: &CStr) -> *mut c_void {
    // Kept open: dlclose would be another call, which clears the error.
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let (Some(dlopen), Some(dlsym)) = (dlopen(), dlsym()) else {
        return core::ptr::null_mut();
    };
    let mut handle = HANDLE.load(Ordering::Acquire);
    if handle.is_null() {
        // SAFETY: dlopen's contract; with NOLOAD no foreign code runs.
        handle = unsafe { dlopen(c"libc.so.6".as_ptr(), LAZY_NOLOAD) };
        if handle.is_null() {
            return handle;
        }
        HANDLE.store(handle, Ordering::Release);
    }
    // SAFETY: dlsym's contract; the handle is live.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// Loads a library for the shim's own use, for good.
pub(crate) fn load(library: &CStr) {
    const RTLD_NOW: c_int = 2;
    if let Some(dlopen) = dlopen() {
        // SAFETY: dlopen's contract; the library is the vendor's.
        unsafe { dlopen(library.as_ptr(), RTLD_NOW) };
    }
}

/// Whether a library is loaded.
pub(crate) fn has(library: &CStr) -> bool {
    let Some(dlopen) = dlopen() else { return false };
    // SAFETY: dlopen's contract; with NOLOAD no foreign code runs.
    let handle = unsafe { dlopen(library.as_ptr(), LAZY_NOLOAD) };
    if !handle.is_null() {
        close(handle);
    }
    !handle.is_null()
}

/// Looks a name up in a loaded library and its dependencies. Loads nothing.
pub(crate) fn within(library: &CStr, name: &CStr) -> *mut c_void {
    // A look-up that fails in a namespace of dlmopen ends the process before glibc 2.34.
    let is_apart = !elf::is_from_the_start(elf::own_dynamic());
    if is_apart && elf::defined_by_others(name.to_bytes()).is_none() {
        return core::ptr::null_mut();
    }
    let Some(dlsym) = dlsym() else {
        return core::ptr::null_mut();
    };
    in_loaded(library, |handle| {
        // SAFETY: dlsym's contract; the handle is live.
        unsafe { dlsym(handle, name.as_ptr()) }
    })
}

/// Looks a name of a version up in a loaded library and its dependencies. Loads nothing.
pub(crate) fn version_within(library: &CStr, name: &CStr, version: &CStr) -> *mut c_void {
    let Some(dlvsym) = dlvsym() else {
        return within(library, name);
    };
    in_loaded(library, |handle| {
        // SAFETY: dlvsym's contract; the handle is live.
        unsafe { dlvsym(handle, name.as_ptr(), version.as_ptr()) }
    })
}

/// Calls `look` with a handle of a library, if it is loaded.
fn in_loaded(library: &CStr, look: impl FnOnce(*mut c_void) -> *mut c_void) -> *mut c_void {
    let Some(dlopen) = dlopen() else {
        return core::ptr::null_mut();
    };
    // SAFETY: dlopen's contract; with NOLOAD no foreign code runs.
    let handle = unsafe { dlopen(library.as_ptr(), LAZY_NOLOAD) };
    if handle.is_null() {
        return handle;
    }
    let address = look(handle);
    close(handle);
    address
}

/// Keeps a library loaded for good.
pub(crate) fn pin(object: &Object) {
    let Some(dlopen) = dlopen() else { return };
    // SAFETY: dlopen's contract; NOLOAD only changes the flags of a loaded library.
    let handle = unsafe { dlopen(object.path().as_ptr(), LAZY_NOLOAD | NODELETE) };
    if !handle.is_null() {
        close(handle);
    }
}
