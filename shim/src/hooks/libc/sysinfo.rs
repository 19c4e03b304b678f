//! libc's reports of the host's memory: `sysinfo`, and the page counts of `sysconf`.
//! Touches: the real function, then the values that it has written.

use core::ffi::{c_int, c_void};

use crate::answer::meminfo_file;
use crate::real::functions::{self, Call};

type Sysinfo = unsafe extern "C" fn(*mut c_void) -> c_int;
type Sysconf = unsafe extern "C" fn(c_int) -> isize;
type Pages = unsafe extern "C" fn() -> isize;

/// `struct sysinfo`.
#[repr(C)]
struct SysInfo {
    uptime: isize,
    loads: [usize; 3],
    totalram: usize,
    freeram: usize,
    sharedram: usize,
    bufferram: usize,
    totalswap: usize,
    freeswap: usize,
    procs: u16,
    totalhigh: usize,
    freehigh: usize,
    mem_unit: u32,
}

/// `sysinfo`: reports the slice's memory.
///
/// # Safety
/// The caller guarantees the libc function's contract.
pub(crate) unsafe fn sysinfo(call: Call<Sysinfo>, info: *mut c_void) -> c_int {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(info) };
    if code == 0
        && !info.is_null()
        && let Some(view) = meminfo_file::shown()
    {
        let place = info.cast::<SysInfo>();
        // SAFETY: the real function has succeeded, so it has written a struct to `place`.
        let said = unsafe { place.read() };
        let amount = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let filled = SysInfo {
            totalram: amount(view.total.get()),
            freeram: amount(view.free.get()),
            sharedram: 0,
            bufferram: 0,
            totalswap: 0,
            freeswap: 0,
            totalhigh: 0,
            freehigh: 0,
            mem_unit: 1,
            ..said
        };
        // SAFETY: the real function has succeeded, so it has written a struct to `place`.
        unsafe { place.write(filled) };
    }
    code
}

const SC_PAGESIZE: c_int = 30;
const SC_PHYS_PAGES: c_int = 85;
const SC_AVPHYS_PAGES: c_int = 86;

/// `sysconf`: only its counts of memory pages are changed.
///
/// # Safety
/// As `open`.
pub(crate) unsafe fn sysconf(call: Call<Sysconf>, name: c_int) -> isize {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let said = unsafe { (call.real)(name) };
    match name {
        SC_PHYS_PAGES => pages(said, |view| view.total.get()),
        SC_AVPHYS_PAGES => pages(said, |view| view.free.get()),
        _ => said,
    }
}

/// `get_phys_pages`.
///
/// # Safety
/// As `open`.
pub(crate) unsafe fn physical_pages(call: Call<Pages>) -> isize {
    // SAFETY: takes no arguments.
    let said = unsafe { (call.real)() };
    pages(said, |view| view.total.get())
}

/// `get_avphys_pages`.
///
/// # Safety
/// As `open`.
pub(crate) unsafe fn available_pages(call: Call<Pages>) -> isize {
    // SAFETY: takes no arguments.
    let said = unsafe { (call.real)() };
    pages(said, |view| view.free.get())
}

/// The slice's amount in pages; libc's own value if there is no slice's view.
fn pages(
    said: isize,
    amount: impl FnOnce(&gpuslice_config::answer::view::MemoryView) -> u64,
) -> isize {
    let Some(view) = meminfo_file::shown().filter(|_| said >= 0) else {
        return said;
    };
    // SAFETY: sysconf's contract; this name is not a page count, so there is no recursion.
    let size = functions::sysconf::real().map_or(0, |sysconf| unsafe { sysconf(SC_PAGESIZE) });
    let pages = u64::try_from(size)
        .ok()
        .and_then(|size| amount(&view).checked_div(size));
    pages
        .and_then(|pages| isize::try_from(pages).ok())
        .unwrap_or(said)
}
