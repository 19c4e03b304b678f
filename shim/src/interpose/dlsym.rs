//! The hooks of libc's symbol look-up: dlsym, dlopen, dlmopen.
//! Touches: registers; the loader, for names that are in the table.
//! Law: a tail jump, so that libc sees the caller's own return address. No allocation, no lock of
//! ours, no thread-local state with a destructor.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicIsize, AtomicPtr, AtomicUsize, Ordering};

use crate::interpose::deepbind;
use crate::interpose::{entries, stand_in};
use crate::loader::dl::{self, RTLD_DEFAULT, RTLD_NEXT};
use crate::loader::elf::{self, LinkMap, Object};
use crate::log::Piece::Str;
use crate::log::counters;
use crate::log::{self, Level};
use crate::real::copies::{self, Library};
use crate::real::functions::{self, Row};
use crate::slice::runtime;

/// The filter's result for "jump to libc's function".
const PASS: *mut c_void = null_mut();
/// The filter's result for "return null".
const NULL: *mut c_void = core::ptr::dangling_mut::<u8>().cast();

const RTLD_DEEPBIND: c_int = 8;
const LM_ID_NEWLM: isize = -1;

/// dlsym: returns the filter's address, or jumps to libc's dlsym.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov rdx, qword ptr [rsp + 24]",
        "call {filter}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "cmp rax, 1",
        "je 3f",
        "ret",
        "3:",
        "xor eax, eax",
        "ret",
        "2:",
        "jmp qword ptr [rip + {real}]",
        filter = sym filter,
        real = sym dl::DLSYM,
    )
}

/// dlopen: libc's, with flags that keep the library's calls within reach.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(filename: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "call {flags}",
        "pop rdi",
        "mov esi, eax",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        flags = sym reachable,
        real = sym dl::DLOPEN,
    )
}

/// dlmopen: libc's, into a namespace whose first library is this one.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlmopen(
    lmid: isize,
    filename: *const c_char,
    flags: c_int,
) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        "push rdx",
        "call {namespace}",
        "mov qword ptr [rsp + 16], rax",
        "mov rdi, qword ptr [rsp + 8]",
        "mov esi, dword ptr [rsp]",
        "call {flags}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "mov edx, eax",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        namespace = sym namespace,
        flags = sym reachable,
        real = sym dl::DLMOPEN,
    )
}

/// dlsym: returns the filter's address, or jumps to libc's dlsym.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "mov x2, x30",
        "bl {filter}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x16, 2f",
        "cmp x16, #1",
        "csel x0, xzr, x16, eq",
        "ret",
        "2:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        filter = sym filter,
        real = sym dl::DLSYM,
    )
}

/// dlopen: libc's, with flags that keep the library's calls within reach.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(filename: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "str x0, [sp, #16]",
        "bl {flags}",
        "mov w1, w0",
        "ldr x0, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, xzr",
        "ret",
        flags = sym reachable,
        real = sym dl::DLOPEN,
    )
}

/// dlmopen: libc's, into a namespace whose first library is this one.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlmopen(
    lmid: isize,
    filename: *const c_char,
    flags: c_int,
) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34",
        "stp x29, x30, [sp, #-48]!",
        "mov x29, sp",
        "stp x1, x2, [sp, #16]",
        "bl {namespace}",
        "str x0, [sp, #32]",
        "ldp x0, x1, [sp, #16]",
        "bl {flags}",
        "mov w2, w0",
        "ldr x0, [sp, #32]",
        "ldr x1, [sp, #16]",
        "ldp x29, x30, [sp], #48",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, xzr",
        "ret",
        namespace = sym namespace,
        flags = sym reachable,
        real = sym dl::DLMOPEN,
    )
}

/// The result for dlsym: an address, [`NULL`], or [`PASS`].
unsafe extern "C" fn filter(
    handle: *mut c_void,
    symbol: *const c_char,
    caller: usize,
) -> *mut c_void {
    let Some(dlsym) = dl::dlsym() else {
        return NULL;
    };
    if symbol.is_null() {
        return PASS;
    }
    // SAFETY: dlsym's contract guarantees a C string.
    let first = unsafe { symbol.cast::<u8>().read() };
    if !functions::begins(first) {
        return PASS;
    }
    // SAFETY: dlsym's contract guarantees a C string.
    let name = unsafe { CStr::from_ptr(symbol) };
    let Some(row) = functions::find(name) else {
        return PASS;
    };
    if functions::library(row) == Library::Libc {
        // The next dlsym belongs to another interposer of dlsym.
        return match handle == RTLD_NEXT {
            true => PASS,
            false => libc_row(row, handle, name, dlsym),
        };
    }
    let caller = dl::object_of(caller as *const c_void);
    if caller.as_ref().is_some_and(is_drivers_own) {
        return PASS;
    }
    if handle == RTLD_NEXT {
        return after(caller.as_ref(), row, name);
    }
    // SAFETY: the caller's own arguments; RTLD_DEFAULT is handled below.
    let mut address = unsafe { dlsym(handle, symbol) };
    if address.is_null() {
        return NULL;
    }
    let object = dl::object_of(address);
    if object.is_some_and(|object| object.dynamic == elf::own_dynamic()) {
        // The handle's scope includes the global one, and so this library: find the definition
        // without ours.
        address = behind_us(handle, name, caller.as_ref());
        if address.is_null() {
            return NULL;
        }
    }
    stand_in(row, address)
}

fn stand_in(row: Row, address: *mut c_void) -> *mut c_void {
    if log::enabled(Level::Debug) {
        let line = [Str(functions::name(row)), Str(" by dlsym")];
        log::say(Level::Debug, "resolve", &line, None);
    }
    stand_in::stand_in(row, address)
}

/// `dlsym` with RTLD_NEXT. For libraries in front of us, libc finds our export by itself. Libraries
/// behind us are of two kinds. Wrappers define the name, and are called by us or instead of us:
/// they get the driver's own function. All others, such as a plug-in linked to the driver, want a
/// function to call: they get our entry.
fn after(caller: Option<&Object>, row: Row, name: &CStr) -> *mut c_void {
    let Some(caller) = caller.filter(|caller| !caller.path().is_empty()) else {
        // The program itself: libc would find our export, whether there is a driver or not.
        return match dl::next(name).is_null() {
            true => NULL,
            false => PASS,
        };
    };
    // SAFETY: the caller's code is running, so its object is loaded.
    if unsafe { elf::symbol(caller, name.to_bytes()) }.is_some() {
        return PASS;
    }
    let address = match elf::beside_in_namespace(name.to_bytes()) {
        Some(address) => address as *mut c_void,
        None => dl::within(caller.path(), name),
    };
    match address.is_null() {
        true => PASS,
        false => stand_in(row, address),
    }
}

/// The definition that a look-up in the global scope would find if this library were not loaded.
fn behind_us(handle: *mut c_void, name: &CStr, caller: Option<&Object>) -> *mut c_void {
    if let Some(address) = elf::beside_in_namespace(name.to_bytes()) {
        return address as *mut c_void;
    }
    let address = dl::next(name);
    if !address.is_null() || handle != RTLD_DEFAULT {
        return address;
    }
    let Some(caller) = caller.filter(|caller| !caller.path().is_empty()) else {
        return address;
    };
    let address = dl::within(caller.path(), name);
    if address.is_null() {
        // Repeated, so that dlerror reports the symbol.
        return dl::next(name);
    }
    address
}

/// `dlsym` for a libc name that we also export: returns our entry if libc's own would have been
/// found.
fn libc_row(row: Row, handle: *mut c_void, name: &CStr, dlsym: dl::Dlsym) -> *mut c_void {
    let known = match row {
        Row::dlsym => dl::dlsym().map(|real| real as *mut c_void),
        Row::dlopen => dl::dlopen().map(|real| real as *mut c_void),
        Row::dlmopen => dl::dlmopen().map(|real| real as *mut c_void),
        _ => Some(copies::following(
            functions::cells(row),
            functions::name(row).as_bytes(),
        )),
    };
    // SAFETY: the caller's own arguments.
    let address = unsafe { dlsym(handle, name.as_ptr()) };
    let is_absent = known.is_some_and(<*mut c_void>::is_null);
    if is_absent && address == entries::entry(row, copies::Slot(0)) {
        // This libc has no such function, and dlerror reports it.
        return match dl::in_libc(name).is_null() {
            true => NULL,
            false => address,
        };
    }
    match known {
        Some(known) if known == address && !is_absent => entries::entry(row, copies::Slot(0)),
        _ if address.is_null() => NULL,
        _ => address,
    }
}

/// Whether the object is part of the driver: a driver that looks itself up gets its own functions.
/// libcudart is one of its clients, and not included.
fn is_drivers_own(object: &Object) -> bool {
    const OWN: [&[u8]; 5] = [
        b"libcuda.so",
        b"libcudadebugger.so",
        b"libnvidia-",
        b"libnvcuvid.so",
        b"libnvoptix.so",
    ];
    OWN.iter().any(|own| object.file_name().starts_with(own))
}

/// The flags for dlopen. Inside a slice, RTLD_DEEPBIND is removed for a library that would bypass
/// our hooks by it.
unsafe extern "C" fn reachable(path: *const c_char, flags: c_int) -> c_int {
    let _ = dl::dlopen();
    if flags & RTLD_DEEPBIND == 0 || runtime::slice().is_none() {
        return flags;
    }
    // SAFETY: dlopen's contract guarantees null or a C string.
    match unsafe { deepbind::passes_us_by(path) } {
        true => flags & !RTLD_DEEPBIND,
        false => flags,
    }
}

/// The namespace for dlmopen. Inside a slice, a new namespace gets this library as its first.
extern "C" fn namespace(lmid: isize) -> isize {
    let Some(dlmopen) = dl::dlmopen() else {
        return lmid;
    };
    if lmid != LM_ID_NEWLM || runtime::slice().is_none() {
        return lmid;
    }
    if let Some(unused) = unused_namespace() {
        return unused;
    }
    let own = dl::object_of((&raw const SPARE) as *const c_void);
    let Some(own) = own else { return lmid };
    const RTLD_LAZY: c_int = 1;
    // SAFETY: dlmopen's contract; the path is that of our own file.
    let handle = unsafe { dlmopen(LM_ID_NEWLM, own.path().as_ptr(), RTLD_LAZY) };
    let made = (!handle.is_null()).then(|| dl::namespace_of(handle));
    let Some(Some(made)) = made else {
        counters::NAMESPACE.say("dlmopen", &[Str("a new namespace cannot have the shim")]);
        return lmid;
    };
    find_libc(handle);
    SPARE.store(made, Ordering::Relaxed);
    SPARE_LENGTH.store(length(handle.cast()), Ordering::Relaxed);
    SPARE_HEAD.store(handle, Ordering::Release);
    made
}

/// Makes a copy of this library look up libc in its namespace now. Its first caller may be a signal
/// handler or a forked child, which cannot wait for the loader's lock.
fn find_libc(copy: *mut c_void) {
    const SC_PAGESIZE: c_int = 30;
    let Some(dlsym) = dl::dlsym() else { return };
    // SAFETY: dlsym's contract: a live handle and a C string.
    let sysconf = unsafe { dlsym(copy, c"sysconf".as_ptr()) };
    // SAFETY: the copy's sysconf has the signature in the table; None is the null pointer.
    let sysconf =
        unsafe { core::mem::transmute::<*mut c_void, Option<functions::sysconf::Real>>(sysconf) };
    if let Some(sysconf) = sysconf {
        // SAFETY: sysconf's contract; the slice does not change the answer for this name.
        unsafe { sysconf(SC_PAGESIZE) };
    }
}

/// The namespace created last: its id, its first library, and its initial number of libraries.
static SPARE: AtomicIsize = AtomicIsize::new(0);
static SPARE_HEAD: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static SPARE_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// The namespace created last, if the library it was created for could not be opened: a process can
/// have only 16.
fn unused_namespace() -> Option<isize> {
    let head = SPARE_HEAD.swap(null_mut(), Ordering::AcqRel);
    if head.is_null() {
        return None;
    }
    let unused = length(head.cast()) == SPARE_LENGTH.load(Ordering::Relaxed);
    SPARE_HEAD.store(head, Ordering::Release);
    unused.then(|| SPARE.load(Ordering::Relaxed))
}

/// The number of libraries from this one to the end of its namespace. glibc's handle is its link
/// map.
fn length(handle: *const LinkMap) -> usize {
    let mut count = 0usize;
    let mut next = handle;
    // SAFETY: the loader's list; the first element is our own library, which is never closed.
    while let Some(map) = unsafe { next.as_ref() } {
        count = count.saturating_add(1);
        next = map.l_next;
    }
    count
}
