//! Reclaims memory that allocators cache without using it, when memory is short, in slices with
//! `pressure: release`.
//! Touches: this process's own state, the loader (to identify the caller), malloc's own functions.
//! Law: refuses only PyTorch's native allocator, once, when it grows; the retry passes. PyTorch
//! answers the vendor's out-of-memory code by freeing its cache. Refuses nothing while a stream is
//! captured, and never refuses a program that calls the API itself. Decides by
//! `config::answer::reclaim`.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gpuslice_config::answer::reclaim::{self, Growth};
use gpuslice_config::words::units::Bytes;

use crate::account::{self, Account};
use crate::loader::{dl, elf};
use crate::log::Piece::{Size, Str};
use crate::log::counters;
use crate::real::copies::CopyId;
use crate::slice;
use crate::sys;

/// Whether the slice asks for memory to be reclaimed. A slice that only counts refuses nothing.
#[inline]
pub(crate) fn is_wanted() -> bool {
    slice::current().is_some_and(|slice| slice.releases() && slice.enforces())
}

/// Whether to refuse an allocation by which an allocator grows, so that it frees its cache.
#[cold]
#[inline(never)]
pub(crate) fn asks(copy: CopyId, request: u64, caller: usize) -> bool {
    let Some(account) = account::current(copy) else {
        return false;
    };
    let short = account.is_short(Bytes::new(request));
    if short {
        trim_host(&account);
    }
    let asked = &account.state.release;
    if !is_torch(caller) || asked.captures.load(Ordering::Acquire) != 0 {
        return false;
    }
    // If another thread is already deciding, let this allocation proceed without waiting.
    let begins = asked
        .busy
        .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
    if begins.is_err() {
        return false;
    }
    let own = account.ledger.own(account.listed);
    let (next, growth) = asked.load().grow(account.thresholds(), own, short);
    asked.store(&next);
    asked.busy.store(0, Ordering::Release);
    match growth {
        Growth::Passes => false,
        Growth::Again(freed) => {
            let line = [
                Str("the allocator of the program has released "),
                Size(freed),
            ];
            counters::RELEASED.warn(&line);
            false
        }
        Growth::Refused => {
            let line = [
                Str("memory is short: "),
                Size(Bytes::new(request)),
                Str(" is refused once, so that the allocator frees its cache; the process holds "),
                Size(own),
            ];
            counters::RELEASED.warn(&line);
            true
        }
    }
}

/// Call sites examined so far: address << 1 | whether the site is PyTorch's.
static CALLERS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Whether the caller is in the library of PyTorch's native allocator.
fn is_torch(caller: usize) -> bool {
    let key = (caller as u64) << 1;
    let home = CALLERS.get((caller >> 3) & 15);
    let seen = home.map_or(0, |home| home.load(Ordering::Relaxed));
    if seen & !1 == key {
        return seen & 1 == 1;
    }
    let object = dl::object_of(caller as *const c_void);
    let torch = object.is_some_and(|object| object.file_name().starts_with(b"libc10_cuda.so"));
    if let Some(home) = home {
        home.store(key | u64::from(torch), Ordering::Relaxed);
    }
    torch
}

/// Returns to the kernel freed memory that malloc keeps: only a large amount, and not often.
fn trim_host(account: &Account) {
    const TRIM_EVERY: u64 = sys::nanoseconds(reclaim::HOST_TRIM_EVERY);
    let asked = &account.state.release;
    let (now, last) = (sys::clock(), asked.trimmed.load(Ordering::Relaxed));
    if now == 0 || (last != 0 && now.wrapping_sub(last) < TRIM_EVERY) {
        return;
    }
    let ours = asked
        .trimmed
        .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    if ours.is_err() {
        return;
    }
    let (name, kept) = match jemalloc() {
        Some(kept) => ("jemalloc", kept),
        None => ("malloc", glibc()),
    };
    if let Some(kept) = kept {
        let line = [
            Str(name),
            Str(" kept "),
            Size(kept),
            Str(" that the program had freed: returned to the kernel"),
        ];
        counters::TRIMMED.warn(&line);
    }
}

/// Looks up a function that another library of this process defines.
fn defined(place: &AtomicPtr<c_void>, name: &[u8]) -> *mut c_void {
    let known = place.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let found = elf::defined_by_others(name).map_or(core::ptr::null_mut(), |found| found as _);
    place.store(found, Ordering::Release);
    found
}

/// Trims glibc's malloc. Returns the number of bytes that malloc kept, if they were worth a trim.
fn glibc() -> Option<Bytes> {
    /// `struct mallinfo2`.
    #[repr(C)]
    struct MallInfo {
        before: [usize; 8],
        fordblks: usize,
        keepcost: usize,
    }
    type MallInfo2 = unsafe extern "C" fn() -> MallInfo;
    type MallocTrim = unsafe extern "C" fn(usize) -> c_int;
    static INFO: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    static TRIM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let info = defined(&INFO, b"mallinfo2");
    let trim = defined(&TRIM, b"malloc_trim");
    // SAFETY: glibc's mallinfo2 has this signature; None is the null pointer.
    let info = unsafe { core::mem::transmute::<*mut c_void, Option<MallInfo2>>(info) }?;
    // SAFETY: glibc's malloc_trim has this signature; None is the null pointer.
    let trim = unsafe { core::mem::transmute::<*mut c_void, Option<MallocTrim>>(trim) }?;
    // SAFETY: takes no arguments. Device memory is never allocated inside of malloc.
    let kept = Bytes::new(unsafe { info() }.fordblks as u64);
    if kept <= reclaim::HOST_KEPT {
        return None;
    }
    // SAFETY: any padding is valid; the signature is glibc's.
    unsafe { trim(0) };
    Some(kept)
}

/// Like `glibc`, for jemalloc. None: jemalloc is not loaded.
fn jemalloc() -> Option<Option<Bytes>> {
    type Mallctl =
        unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;
    static MALLCTL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let mallctl = defined(&MALLCTL, b"mallctl");
    // SAFETY: jemalloc's mallctl has this signature; None is the null pointer.
    let mallctl = unsafe { core::mem::transmute::<*mut c_void, Option<Mallctl>>(mallctl) }?;
    let null = core::ptr::null_mut::<c_void>();
    let read = |name: &core::ffi::CStr| {
        let (mut value, mut length) = (0usize, size_of::<usize>());
        let place = (&raw mut value).cast();
        // SAFETY: mallctl's contract: these names have values of this length.
        let code = unsafe { mallctl(name.as_ptr(), place, &raw mut length, null, 0) };
        (code == 0).then_some(Bytes::new(value as u64))
    };
    let mut epoch = 1u64;
    let place = (&raw mut epoch).cast();
    let no_length = core::ptr::null_mut();
    // SAFETY: mallctl's contract: writing an epoch refreshes the statistics.
    unsafe { mallctl(c"epoch".as_ptr(), null, no_length, place, size_of::<u64>()) };
    let kept = read(c"stats.resident")?.minus(read(c"stats.allocated")?);
    if kept <= reclaim::HOST_KEPT {
        return Some(None);
    }
    // SAFETY: mallctl's contract: 4096 means all arenas; the call reads and writes no value.
    unsafe { mallctl(c"arena.4096.purge".as_ptr(), null, no_length, null, 0) };
    Some(Some(kept))
}
