//! The look-ups of an OpenCL driver's functions: by name, and in its dispatch table, whose entries
//! are replaced in place.
//! Touches: the real function, then the driver's dispatch table.
//! Law: where a limit is enforced and the table cannot be changed, the program gets no platform.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::{entry, stand_in};
use crate::answer;
use crate::log::counters;
use crate::real::opencl::{
    self, CL_PLATFORM_NOT_FOUND_KHR, CL_PLATFORM_VERSION, CL_SUCCESS, FUNCTIONS, Place, cl_int,
    cl_platform_id, clCreateBuffer, clGetContextInfo, clGetDeviceInfo,
    clGetExtensionFunctionAddress, clGetExtensionFunctionAddressForPlatform,
    clIcdGetPlatformIDsKHR, clSetMemObjectDestructorCallback,
};
use crate::slice;
use crate::sys;

/// `clGetExtensionFunctionAddress`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(super) unsafe fn extension(
    real: clGetExtensionFunctionAddress::Real,
    name: *const c_char,
) -> *mut c_void {
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let address = unsafe { real(name) };
    // SAFETY: the caller guarantees null or a C string.
    unsafe { replaced(name, address) }
}

/// `clGetExtensionFunctionAddressForPlatform` and `clIcdGetFunctionAddressForPlatformKHR`.
///
/// # Safety
/// As `extension`.
pub(super) unsafe fn extension_for_platform(
    real: clGetExtensionFunctionAddressForPlatform::Real,
    platform: cl_platform_id,
    name: *const c_char,
) -> *mut c_void {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let address = unsafe { real(platform, name) };
    // SAFETY: the caller guarantees null or a C string.
    unsafe { replaced(name, address) }
}

/// # Safety
/// `name` is null or a C string.
#[inline(never)]
unsafe fn replaced(name: *const c_char, address: *mut c_void) -> *mut c_void {
    if name.is_null() || address.is_null() {
        return address;
    }
    // SAFETY: not null, so the caller guarantees a C string.
    let name = unsafe { CStr::from_ptr(name) };
    stand_in(name.to_bytes(), address)
}

/// `clIcdGetPlatformIDsKHR`.
///
/// # Safety
/// As `extension`.
pub(super) unsafe fn platforms(
    real: clIcdGetPlatformIDsKHR::Real,
    room: u32,
    platforms: *mut cl_platform_id,
    count: *mut u32,
) -> cl_int {
    let mut own = 0;
    // The driver writes as many platforms as it has, and loaders pass no place for the number.
    let number = if count.is_null() { &raw mut own } else { count };
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { real(room, platforms, number) };
    if code != CL_SUCCESS || platforms.is_null() {
        return code;
    }
    // SAFETY: CL_SUCCESS, so the driver has written the number.
    let written = unsafe { number.read() }.min(room);
    for place in 0..written as usize {
        // SAFETY: CL_SUCCESS, so the driver has written this platform.
        let platform = unsafe { platforms.wrapping_add(place).read() };
        // SAFETY: the driver has just returned the platform.
        if unsafe { take_over(platform) }.is_some() {
            continue;
        }
        counters::UNPLACED.warn_text(
            "the functions of an OpenCL driver cannot be replaced: where a limit is enforced, \
             programs do not get its devices",
        );
        if slice::current().is_some_and(|slice| slice.enforces()) {
            // SAFETY: CL_SUCCESS, so the place is writable.
            unsafe { number.write(0) };
            return CL_PLATFORM_NOT_FOUND_KHR;
        }
    }
    code
}

/// An entry of a dispatch table.
type Slot = AtomicPtr<c_void>;

/// Replaces the entries of a platform's dispatch table. All objects of the driver use this table.
/// None: it cannot be changed, or the driver lacks functions that are needed.
///
/// # Safety
/// `platform` is a live platform.
unsafe fn take_over(platform: cl_platform_id) -> Option<()> {
    if platform.is_null() {
        return None;
    }
    // SAFETY: cl_khr_icd: a platform begins with the address of its dispatch table.
    let table = unsafe { platform.cast::<*const Slot>().read() };
    if table.is_null() {
        return None;
    }
    let slot = |place: Place| {
        // SAFETY: every table has the entries of its driver's version, and is never freed.
        unsafe { table.wrapping_add(usize::from(place.index)).as_ref() }
    };
    /// The entry of `clGetPlatformInfo`.
    const PLATFORM_INFO: Place = Place {
        index: 1,
        since: 100,
    };
    let version = version(slot(PLATFORM_INFO)?.load(Ordering::Acquire), platform)?;
    let slots = || {
        let there = |function| Some((function, slot(opencl::place(function, version)?)?));
        (0..FUNCTIONS).filter_map(there)
    };
    let mut is_new = false;
    let mut last = table;
    for (function, slot) in slots() {
        let ours = entry(function);
        let now = slot.load(Ordering::Acquire);
        is_new |= !ours.is_null() && !now.is_null() && now != ours;
        last = last.max(&raw const *slot);
    }
    if is_new {
        answer::opencl::starts(platform);
        make_writable(table as usize, last as usize)?;
    }
    for (function, slot) in slots() {
        let (now, ours) = (slot.load(Ordering::Acquire), entry(function));
        if now.is_null() || now == ours {
            continue;
        }
        opencl::store(function, now);
        if !ours.is_null() {
            slot.store(ours, Ordering::Release);
        }
    }
    clCreateBuffer::real()?;
    clGetContextInfo::real()?;
    clGetDeviceInfo::real()?;
    clSetMemObjectDestructorCallback::real()?;
    Some(())
}

/// The version of OpenCL that a platform has: 100 times the major one, and ten times the minor.
fn version(ask: *mut c_void, platform: cl_platform_id) -> Option<u16> {
    // SAFETY: the entry of the table has this signature, by `opencl_symbols.rs`; None is the null
    // pointer.
    let ask = unsafe {
        core::mem::transmute::<*mut c_void, Option<opencl::clGetPlatformInfo::Real>>(ask)
    }?;
    let mut text = [0u8; 256];
    let (place, room) = (text.as_mut_ptr().cast(), text.len());
    // SAFETY: clGetPlatformInfo's contract: there is room for the size that is passed.
    let code = unsafe { ask(platform, CL_PLATFORM_VERSION, room, place, null_mut()) };
    (code == CL_SUCCESS).then_some(())?;
    let [major, b'.', minor, ..] = text.strip_prefix(b"OpenCL ")? else {
        return None;
    };
    let digit = |digit: &u8| digit.is_ascii_digit().then(|| u16::from(digit & 15));
    let tens = digit(minor)?.wrapping_mul(10);
    Some(digit(major)?.wrapping_mul(100).wrapping_add(tens))
}

/// Makes a table writable, up to its slot at `last`. It stays so: whether it was before is not
/// known.
fn make_writable(start: usize, last: usize) -> Option<()> {
    #[cfg(target_arch = "x86_64")]
    let page = 4096usize;
    #[cfg(not(target_arch = "x86_64"))]
    let page = usize::try_from(sys::page_size()).ok()?;
    let first = start & !page.wrapping_sub(1);
    let end = last.checked_add(size_of::<Slot>())?;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let access = usize::try_from(access).ok()?;
    let arguments = [first, end.wrapping_sub(first), access, 0, 0, 0];
    // SAFETY: mprotect adds a right to pages that are mapped, and takes none away: tables contain no
    // code.
    unsafe { sys::syscall(libc::SYS_mprotect, arguments) }.ok()?;
    Some(())
}
