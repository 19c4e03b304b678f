//! cuGetProcAddress: the documented choice of an entry point by version and flags.
//! Touches: the generated table; dlsym on itself when the fault `self-dlsym` asks for it.

use crate::abi::*;
use crate::driver;
use crate::gate::{Row, TABLE};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

const LEGACY_STREAM: u64 = 1;
const PER_THREAD_STREAM: u64 = 2;

/// `gpuslice-sim without NAME` writes the names it removed behind this mark in the library file.
#[used]
static REMOVED: [u8; 1024] = {
    let mut room = [b' '; 1024];
    let mark = *b"gpuslice-sim:removed:";
    let mut i = 0;
    while i < mark.len() {
        room[i] = mark[i];
        i += 1;
    }
    room
};

/// The rows that this library has, by base name.
fn rows(base: &str) -> &'static [&'static Row] {
    static ROWS: OnceLock<HashMap<&str, Vec<&Row>>> = OnceLock::new();
    let rows = ROWS.get_or_init(|| {
        // SAFETY: reads a static; volatile because the file is changed after the compiler saw it.
        let room = unsafe { std::ptr::read_volatile(&raw const REMOVED) };
        let text = String::from_utf8_lossy(&room);
        let removed: Vec<&str> = text.split([':', ',', ' ']).skip(2).collect();
        let mut rows: HashMap<&str, Vec<&Row>> = HashMap::new();
        for row in TABLE.iter().filter(|row| !removed.contains(&row.name)) {
            rows.entry(row.base).or_default().push(row);
        }
        rows
    });
    rows.get(base).map_or(&[], Vec::as_slice)
}

/// How a look-up ended.
enum Found {
    Entry(&'static Row),
    Absent,
    Newer,
}

/// The newest entry point of that name that the caller's version knows. With the flag for
/// per-thread streams, a name that has a twin finds only the twin, also before the twin's first
/// version. Recorded from NVIDIA's 535 and 550 (`tests/sim/recorded/`); the version is unsigned
/// there.
fn find(name: &str, version: u32, flags: u64) -> Found {
    let Ok(machine) = driver::machine() else {
        return Found::Absent;
    };
    let known =
        |row: &Row| row.version <= machine.scenario.cuda && !machine.faults.missing(row.name);
    let rows = || rows(name).iter().copied().filter(|row| known(row));
    let twin = flags & PER_THREAD_STREAM != 0 && rows().any(|row| row.per_thread);
    let wanted = rows()
        .filter(|row| row.per_thread == twin && row.version.cast_unsigned() <= version)
        .max_by_key(|row| row.version);
    match wanted {
        Some(row) => Found::Entry(row),
        None if rows().next().is_some() => Found::Newer,
        None => Found::Absent,
    }
}

/// The result of a look-up. The pointer is written if there is an entry.
fn look_up(name: Text, out: Out<*const c_void>, version: i32, flags: u64) -> Answer<Found> {
    if flags & !(LEGACY_STREAM | PER_THREAD_STREAM) != 0 {
        return Err(INVALID_VALUE);
    }
    let name = name.get().unwrap_or_else(|_| die_of_null());
    let found = find(name, version.cast_unsigned(), flags);
    if let Found::Entry(row) = found {
        let private = driver::machine()?.faults.private_addresses();
        let address = if private { row.private } else { row.exported };
        write(out, address as *const c_void);
    }
    Ok(found)
}

fn write(out: Out<*const c_void>, address: *const c_void) {
    if out.set(address).is_err() {
        die_of_null();
    }
}

/// NVIDIA's driver reads the name and writes the pointer without a check: NULL ends the process.
fn die_of_null() -> ! {
    // SAFETY: puts back the default disposition, which ends the process.
    unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    // SAFETY: no preconditions.
    unsafe { libc::raise(libc::SIGSEGV) };
    std::process::abort()
}

/// `cuGetProcAddress_v2`: an unknown name is no error, but gives NULL and a status.
fn second(
    name: Text,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Out<i32>,
) -> Answer {
    let code = match look_up(name, out, version, flags)? {
        Found::Entry(_) => 0,
        Found::Absent => 1,
        Found::Newer => 2,
    };
    if code != 0 {
        write(out, std::ptr::null());
    }
    status.set_if_wanted(code);
    Ok(())
}

cuda! {
    fn cuGetProcAddress(name: Text, out: Out<*const c_void>, version: i32, flags: u64) {
        match look_up(name, out, version, flags)? {
            Found::Entry(_) => Ok(()),
            Found::Absent | Found::Newer => Err(NOT_FOUND),
        }
    }

    fn cuGetProcAddress_v2(name: Text, out: Out<*const c_void>, version: i32, flags: u64, status: Out<i32>) {
        second(name, out, version, flags, status)
    }

    fn cuGetProcAddress_v2_ptsz(name: Text, out: Out<*const c_void>, version: i32, flags: u64, status: Out<i32>) {
        let flags = if flags == 0 { PER_THREAD_STREAM } else { flags };
        second(name, out, version, flags, status)
    }

    fn cuGetExportTable(out: Out<*const c_void>, _id: Handle) {
        out.set_if_wanted(std::ptr::null());
        Err(NOT_FOUND)
    }

    fn cuModuleGetLoadingMode(mode: Out<i32>) {
        mode.set(2)
    }
}

/// Queries as the driver of one platform does: it finds its own functions by dlsym and calls those.
pub(crate) fn ask_oneself() -> Answer<(u64, u64)> {
    let init = own(c"cuInit".as_ptr())?;
    let info = own(c"cuMemGetInfo_v2".as_ptr())?;
    // SAFETY: the address is that of cuInit, here or interposed; both have the vendor's signature.
    let init: extern "C" fn(u32) -> CUresult = unsafe { std::mem::transmute(init) };
    // SAFETY: as above, for cuMemGetInfo_v2.
    let info: extern "C" fn(*mut usize, *mut usize) -> CUresult =
        unsafe { std::mem::transmute(info) };
    let (mut free, mut total) = (0_usize, 0_usize);
    match (init(0), info(&raw mut free, &raw mut total)) {
        (0, 0) => Ok((free as u64, total as u64)),
        (0, code) | (code, _) => Err(code),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the driver that looks itself up; the shim is the other library"
)]
fn own(name: *const c_char) -> Answer<*mut c_void> {
    // SAFETY: Dl_info is plain data for which all zeroes is a valid value.
    let mut here: libc::Dl_info = unsafe { std::mem::zeroed() };
    let anchor: *const c_void = (&raw const REMOVED).cast();
    // SAFETY: the anchor lies in this library and `here` outlives the call.
    let known: c_int = unsafe { libc::dladdr(anchor, &raw mut here) };
    if known == 0 {
        return Err(UNKNOWN);
    }
    // SAFETY: dli_fname is the loader's string for this loaded library.
    let handle = unsafe { libc::dlopen(here.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return Err(UNKNOWN);
    }
    // SAFETY: a live handle and a C string.
    let found = unsafe { libc::dlsym(handle, name) };
    // SAFETY: gives back the reference taken above.
    unsafe { libc::dlclose(handle) };
    if found.is_null() {
        Err(NOT_FOUND)
    } else {
        Ok(found)
    }
}
