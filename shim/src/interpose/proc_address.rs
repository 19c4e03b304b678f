//! The hooks of the vendor's symbol look-up: cuGetProcAddress and cudaGetDriverEntryPoint.
//! Touches: the real function, then the pointer that it has returned.
//! Law: a pointer is replaced only when it is known to be a row's own function. The meaning of a
//! name in a newer driver is never guessed.

use core::ffi::{CStr, c_char, c_ulonglong, c_void};
use core::ptr::null_mut;

use crate::interpose::entries;
use crate::loader::{dl, elf};
use crate::log::Piece::{Dec, Raw, Str};
use crate::log::counters;
use crate::log::{self, Level};
use crate::real::abi::{CUresult, PER_THREAD_DEFAULT_STREAM, SUCCESS, cudaError_t};
use crate::real::copies::{self, CopyId, Library};
use crate::real::functions::{self, Call, Row};

type ProcAddressV1 =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, c_ulonglong) -> CUresult;
type ProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, c_ulonglong, *mut u32) -> CUresult;
type EntryPoint =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_ulonglong, *mut u32) -> cudaError_t;
type EntryPointByVersion = unsafe extern "C" fn(
    *const c_char,
    *mut *mut c_void,
    u32,
    c_ulonglong,
    *mut u32,
) -> cudaError_t;

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM` or `…PER_THREAD_DEFAULT_STREAM`.
const EITHER_STREAM: c_ulonglong = 3;

/// `cuGetProcAddress`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn proc_address_v1(
    call: Call<ProcAddressV1>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: i32,
    flags: c_ulonglong,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(symbol, pfn, version, flags) };
    // SAFETY: `code` is the real function's result for these arguments.
    unsafe { replace(code, Some(call.copy), symbol, pfn, version, flags) };
    code
}

/// `cuGetProcAddress_v2`.
///
/// # Safety
/// As `proc_address_v1`.
pub(crate) unsafe fn proc_address(
    call: Call<ProcAddress>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: i32,
    flags: c_ulonglong,
    status: *mut u32,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(symbol, pfn, version, flags, status) };
    // SAFETY: `code` is the real function's result for these arguments.
    unsafe { replace(code, Some(call.copy), symbol, pfn, version, flags) };
    code
}

/// `cuGetProcAddress_v2_ptsz`.
///
/// # Safety
/// As `proc_address_v1`.
pub(crate) unsafe fn proc_address_ptsz(
    call: Call<ProcAddress>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: i32,
    flags: c_ulonglong,
    status: *mut u32,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(symbol, pfn, version, flags, status) };
    // SAFETY: `code` is the real function's result for these arguments.
    unsafe {
        replace(
            code,
            Some(call.copy),
            symbol,
            pfn,
            version,
            per_thread(flags),
        )
    };
    code
}

/// The flags that the `_ptsz` variants use where the caller's select no stream.
fn per_thread(flags: c_ulonglong) -> c_ulonglong {
    match flags & EITHER_STREAM {
        0 => flags | PER_THREAD_DEFAULT_STREAM,
        _ => flags,
    }
}

/// `cudaGetDriverEntryPoint`. CUDA 11 calls it without the last argument, which is only passed on.
///
/// # Safety
/// As `proc_address_v1`.
pub(crate) unsafe fn entry_point(
    call: Call<EntryPoint>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    flags: c_ulonglong,
    status: *mut u32,
) -> cudaError_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(symbol, pfn, flags, status) };
    // SAFETY: `code` is the real function's result for these arguments.
    unsafe { replace(code, None, symbol, pfn, 0, flags) };
    code
}

/// `cudaGetDriverEntryPoint_ptsz`.
///
/// # Safety
/// As `proc_address_v1`.
pub(crate) unsafe fn entry_point_ptsz(
    call: Call<EntryPoint>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    flags: c_ulonglong,
    status: *mut u32,
) -> cudaError_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(symbol, pfn, flags, status) };
    // SAFETY: `code` is the real function's result for these arguments.
    unsafe { replace(code, None, symbol, pfn, 0, per_thread(flags)) };
    code
}

/// `cudaGetDriverEntryPointByVersion`.
///
/// # Safety
/// As `proc_address_v1`.
pub(crate) unsafe fn entry_point_by_version(
    call: Call<EntryPointByVersion>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: u32,
    flags: c_ulonglong,
    status: *mut u32,
) -> cudaError_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(symbol, pfn, version, flags, status) };
    // SAFETY: `code` is the real function's result for these arguments.
    unsafe { replace(code, None, symbol, pfn, version.cast_signed(), flags) };
    code
}

/// `cudaGetDriverEntryPointByVersion_ptsz`.
///
/// # Safety
/// As `proc_address_v1`.
pub(crate) unsafe fn entry_point_by_version_ptsz(
    call: Call<EntryPointByVersion>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: u32,
    flags: c_ulonglong,
    status: *mut u32,
) -> cudaError_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(symbol, pfn, version, flags, status) };
    let flags = per_thread(flags);
    // SAFETY: `code` is the real function's result for these arguments.
    unsafe { replace(code, None, symbol, pfn, version.cast_signed(), flags) };
    code
}

/// Replaces the real function's pointer by our entry, if the function is in the table.
///
/// # Safety
/// `code` is the real function's result for these arguments.
unsafe fn replace(
    code: u32,
    copy: Option<CopyId>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: i32,
    flags: c_ulonglong,
) {
    if code != SUCCESS || symbol.is_null() || pfn.is_null() {
        return;
    }
    // SAFETY: the real function has found the symbol by its name, so it is a C string.
    let name = unsafe { CStr::from_ptr(symbol) };
    // SAFETY: success, so the real function has written to `pfn`.
    let address = unsafe { pfn.read() };
    let ours = if address.is_null() {
        None
    } else {
        stand_in(copy, name, address, flags)
    };
    if let Some(ours) = ours {
        // SAFETY: success, so the real function has written to `pfn`.
        unsafe { pfn.write(ours) };
    }
    if log::enabled(Level::Debug) {
        let version = u64::try_from(version).unwrap_or(0);
        let outcome = if ours.is_some() {
            ": replaced"
        } else {
            ": passed"
        };
        let line = [
            Raw(name.to_bytes()),
            Str("@"),
            Dec(version),
            Str(" flags "),
            Dec(flags),
            Str(outcome),
        ];
        log::say(Level::Debug, &line, None);
    }
}

/// The rows that a name can mean to cuGetProcAddress.
fn candidates(name: &CStr) -> impl Iterator<Item = Row> {
    let name = name.to_bytes();
    functions::rows().filter(move |row| {
        let base = functions::named(*row).is_some_and(|named| named.base == name);
        base || functions::library(*row) == Library::Cuda
            && functions::name(*row).as_bytes() == name
    })
}

/// Our entry for a pointer that the driver returned under this name. None: leave the pointer.
fn stand_in(
    copy: Option<CopyId>,
    name: &CStr,
    address: *mut c_void,
    flags: c_ulonglong,
) -> Option<*mut c_void> {
    candidates(name).next()?;
    let object = dl::object_of(address)?;
    if object.dynamic == elf::own_dynamic() {
        // The runtime has queried the driver through our hook.
        return None;
    }
    let copy = copy.or_else(|| copies::claim(Library::Cuda, &object))?;
    // The same function may have a longer name too, as cuGraphInstantiateWithFlags does.
    let exported = functions::rows()
        .filter(|row| {
            let base = functions::named(*row).is_some_and(|named| named.base == name.to_bytes());
            base || functions::name(*row)
                .as_bytes()
                .starts_with(name.to_bytes())
        })
        .filter(|row| functions::library(*row) == Library::Cuda)
        .find(|row| {
            functions::cells(*row).get(Library::Cuda, copy, functions::name_c(*row)) == address
        });
    // A driver may return functions that it does not export. The function that it returns for a
    // row's first version is that row's.
    let private = || {
        candidates(name)
            .filter(|row| given(copy, *row, flags) == address)
            .last()
    };
    let Some(row) = exported.or_else(private) else {
        counters::UNKNOWN.warn(&[
            Raw(name.to_bytes()),
            Str(": cuGetProcAddress returns an unknown function, which is passed through"),
        ]);
        return None;
    };
    let cells = functions::cells(row);
    if cells.known(copy).is_null() {
        cells.store(copy, address);
    }
    Some(entries::entry(row, copy))
}

/// The pointer that the driver returns for a row; null if it returns none.
fn given(copy: CopyId, row: Row, flags: c_ulonglong) -> *mut c_void {
    let Some(named) = functions::named(row) else {
        return null_mut();
    };
    if named.per_thread && flags & PER_THREAD_DEFAULT_STREAM == 0 {
        return null_mut();
    }
    let mut text = [0u8; 64];
    text.iter_mut()
        .zip(named.base)
        .for_each(|(to, from)| *to = *from);
    let Ok(base) = CStr::from_bytes_until_nul(&text) else {
        return null_mut();
    };
    let mut address = null_mut();
    let place = &raw mut address;
    let code = if let Some(ask) = functions::cuGetProcAddress_v2::real(copy) {
        // SAFETY: cuGetProcAddress_v2's contract; the status may be null.
        unsafe { ask(base.as_ptr(), place, named.since, flags, null_mut()) }
    } else if let Some(ask) = functions::cuGetProcAddress::real(copy) {
        // SAFETY: cuGetProcAddress's contract.
        unsafe { ask(base.as_ptr(), place, named.since, flags) }
    } else {
        return null_mut();
    };
    match code {
        SUCCESS => address,
        _ => null_mut(),
    }
}
