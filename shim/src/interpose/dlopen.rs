//! The hooks of dlopen and dlmopen.
//! Touches: registers; the loader.
//! Law: a tail jump, so that libc sees the caller's own return address. Without a slice, libc's
//! functions get the caller's own arguments.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicIsize, AtomicPtr, AtomicUsize, Ordering};

use crate::interpose::deepbind;
use crate::loader::dl;
use crate::loader::elf::LinkMap;
use crate::log::counters;
use crate::real::functions;
use crate::slice;

const RTLD_DEEPBIND: c_int = 8;
const LM_ID_NEWLM: isize = -1;

/// dlopen: libc's, with flags that keep the library's calls within reach.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(filename: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        saving_arguments!(1: "call {flags}"),
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
        saving_arguments!(3:
            "call {namespace}",
            "mov qword ptr [rsp + 16], rax",
            "mov rdi, qword ptr [rsp + 8]",
            "mov esi, dword ptr [rsp]",
            "call {flags}"
        ),
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

/// dlopen: libc's, with flags that keep the library's calls within reach.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlopen(filename: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34",
        saving_arguments!(1: "bl {flags}", "mov w1, w0"),
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

/// dlmopen: libc's, into a namespace whose first library is this one. It needs a stack frame,
/// because it replaces its first argument and saves the two others.
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

/// The flags for dlopen. Inside a slice, RTLD_DEEPBIND is removed for a library that would bypass
/// our hooks by it.
unsafe extern "C" fn reachable(path: *const c_char, flags: c_int) -> c_int {
    let _ = dl::dlopen();
    if flags & RTLD_DEEPBIND == 0 || slice::current().is_none() {
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
    if lmid != LM_ID_NEWLM || slice::current().is_none() {
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
        counters::NAMESPACE.warn_text("a new namespace of dlmopen cannot load libgpuslice.so");
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
