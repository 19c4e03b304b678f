//! Pinned host memory: charged on unified memory, left to the driver on other devices.
//! Touches: the ledger, on unified memory; the real function, unless the slice has no room; this
//! process's list of mappings, when a program registers memory.
//!
//! Memory that a program registers exists already. Its private anonymous part is host memory of the
//! process, for which the slice is charged anyway. Only the pages that the driver makes resident need
//! room, until they are. Shared memory and files are charged as pinned.

use core::ffi::{c_uint, c_void};
use core::ops::Range;

use gpuslice_config::host::mappings::Anonymous;
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use crate::account::{self, Account, Paid, Request};
use crate::answer::device;
use crate::hooks::out::{self, Amount};
use crate::real::abi::{CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::handles::Space;
use crate::sys::{self, File};

type AllocHost<S> = unsafe extern "C" fn(*mut *mut c_void, S) -> CUresult;
type HostAlloc = unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> CUresult;
type Register = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> CUresult;
type Release = unsafe extern "C" fn(*mut c_void) -> CUresult;

/// `cuMemAllocHost` and `cuMemAllocHost_v2`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn alloc_host<S: Amount>(
    call: Call<AllocHost<S>>,
    pp: *mut *mut c_void,
    bytesize: S,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(pp, bytesize) };
    // SAFETY: called on success: the driver has written a pointer to `pp`.
    let made = || unsafe { out::got_handle(pp) };
    // SAFETY: called on success: the driver has written a pointer to `pp`.
    let undo = || unsafe { free(call.copy, pp) };
    let Some(account) = counted(call.copy, bytesize.into_u64()) else {
        return ask();
    };
    let pinned = Pinned::allocated(bytesize.into_u64());
    pin(&account, pinned, !pp.is_null(), ask, made, undo)
}

/// The account that is charged for pinned memory. None: none is.
fn counted(copy: CopyId, request: u64) -> Option<Account> {
    account::current(copy).filter(|account| request != 0 && account.unified())
}

/// The pages that memory lies in.
fn pages(start: u64, bytes: u64) -> Range<u64> {
    let page = sys::page_size();
    let end = start.saturating_add(bytes);
    let end = end.checked_next_multiple_of(page).unwrap_or(u64::MAX);
    start.saturating_sub(start.checked_rem(page).unwrap_or(0))..end
}

/// Frees pinned memory that the driver has just allocated.
///
/// # Safety
/// The driver has written a pointer to `place`, or `place` is null.
unsafe fn free(copy: CopyId, place: *const *mut c_void) {
    // SAFETY: the caller guarantees that `place` is null or written.
    let made = unsafe { out::got_handle(place) };
    if let (Some(free), Some(made)) = (functions::cuMemFreeHost::real(copy), made) {
        // SAFETY: the driver has just allocated it; no other thread knows it.
        unsafe { free(made as *mut c_void) };
    }
}

/// `cuMemHostAlloc`.
///
/// # Safety
/// As `alloc_host`.
pub(crate) unsafe fn host_alloc(
    call: Call<HostAlloc>,
    pp: *mut *mut c_void,
    bytesize: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(pp, bytesize, flags) };
    // SAFETY: called on success: the driver has written a pointer to `pp`.
    let made = || unsafe { out::got_handle(pp) };
    /// All of `CU_MEMHOSTALLOC_*`.
    const FLAGS: c_uint = 7;
    let is_valid = !pp.is_null() && flags <= FLAGS;
    // SAFETY: called on success: the driver has written a pointer to `pp`.
    let undo = || unsafe { free(call.copy, pp) };
    let Some(account) = counted(call.copy, bytesize.into_u64()) else {
        return ask();
    };
    let pinned = Pinned::allocated(bytesize.into_u64());
    pin(&account, pinned, is_valid, ask, made, undo)
}

/// `cuMemHostRegister` and `cuMemHostRegister_v2`.
///
/// # Safety
/// As `alloc_host`.
pub(crate) unsafe fn register(
    call: Call<Register>,
    p: *mut c_void,
    bytesize: usize,
    flags: c_uint,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(p, bytesize, flags) };
    /// All of `CU_MEMHOSTREGISTER_*`.
    const FLAGS: c_uint = 15;
    let is_valid = !p.is_null() && flags <= FLAGS;
    let undo = || {
        if let Some(unregister) = functions::cuMemHostUnregister::real(call.copy) {
            // SAFETY: this thread has just registered it.
            unsafe { unregister(p) };
        }
    };
    let made = || Some(p as u64);
    let Some(account) = counted(call.copy, bytesize.into_u64()) else {
        return ask();
    };
    let pinned = Pinned::registered(pages(p as u64, bytesize.into_u64()));
    pin(&account, pinned, is_valid, ask, made, undo)
}

/// The memory that a call pins.
struct Pinned {
    /// Charged as pinned until it is released.
    charged: Bytes,
    /// Anonymous memory that becomes resident by the call.
    new: Bytes,
}

impl Pinned {
    /// Memory that the driver allocates: whole pages.
    fn allocated(bytes: u64) -> Pinned {
        Pinned::charged(&pages(0, bytes))
    }

    fn charged(pages: &Range<u64>) -> Pinned {
        Pinned {
            charged: length(pages),
            new: Bytes::ZERO,
        }
    }

    /// Pages of this process. If the kernel does not list its mappings, all are charged.
    fn registered(pages: Range<u64>) -> Pinned {
        let (mut anonymous, mut new) = (Bytes::ZERO, Bytes::ZERO);
        let listed = each_anonymous(pages.clone(), &mut |part| {
            anonymous = anonymous.plus(length(&part));
            new = new.plus(length(&part).minus(sys::resident(part)));
        });
        match listed {
            Some(()) => Pinned {
                charged: length(&pages).minus(anonymous),
                new,
            },
            None => Pinned::charged(&pages),
        }
    }
}

fn length(range: &Range<u64>) -> Bytes {
    Bytes::new(range.end.saturating_sub(range.start))
}

/// Calls `found` for each part of a range of this process's memory that is private and anonymous.
/// None: the kernel does not list its mappings.
fn each_anonymous(range: Range<u64>, found: &mut impl FnMut(Range<u64>)) -> Option<()> {
    let maps = File::open(c"/proc/self/maps").ok()?;
    let mut mappings = Anonymous::of(range);
    loop {
        let mut piece = [0u8; 2048];
        let piece = maps.read(&mut piece).ok()?;
        if mappings.read(piece, found) || piece.is_empty() {
            return Some(());
        }
    }
}

/// Claims and pins memory. `is_valid`: whether the driver would accept the arguments; `undo` unpins
/// memory that the driver has pinned after all.
fn pin(
    account: &Account,
    pinned: Pinned,
    is_valid: bool,
    ask: impl FnOnce() -> CUresult,
    made: impl FnOnce() -> Option<u64>,
    undo: impl FnOnce(),
) -> CUresult {
    let Pinned { charged, new } = pinned;
    let bytes = charged.plus(new);
    if bytes == Bytes::ZERO {
        return ask();
    }
    // Pinned memory is taken to be in the charge of the slice's cgroup already. New pages are not.
    let kind = match charged == Bytes::ZERO {
        true => Kind::Linear,
        false => Kind::Pinned,
    };
    let request = Request {
        bytes,
        claimed: bytes,
        kind,
    };
    let is_valid = || is_valid && device::has_context(account.copy);
    let record = || match made() {
        Some(at) if charged != Bytes::ZERO => {
            if new != Bytes::ZERO {
                account.release(new, Kind::Pinned);
            }
            let charge = account.charge_here(charged, Kind::Pinned);
            account.remember(Space::Pinned, at, charge);
            Paid::Kept
        }
        _ => Paid::Released,
    };
    account.pay(request, is_valid, ask, record, undo)
}

/// `cuMemFreeHost` and `cuMemHostUnregister`.
///
/// # Safety
/// As `alloc_host`.
pub(crate) unsafe fn release(call: Call<Release>, p: *mut c_void) -> CUresult {
    let found = account::find(Space::Pinned, p as u64);
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(p) };
    if code == SUCCESS
        && let Some(found) = found
    {
        account::freed(found);
    }
    code
}
