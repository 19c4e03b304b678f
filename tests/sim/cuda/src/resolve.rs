//! cuGetProcAddress: the documented choice of an entry point by version and flags.
//! Touches: the generated table; dlsym on itself when the fault `self-dlsym` asks for it.

use crate::abi::*;
use crate::driver;
use crate::gate::{Row, TABLE};
use std::ffi::{c_char, c_int, c_void};

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

fn removed(name: &str) -> bool {
    // SAFETY: reads a static; volatile because the file is changed after the compiler saw it.
    let room = unsafe { std::ptr::read_volatile(&raw const REMOVED) };
    let text = String::from_utf8_lossy(&room);
    text.split([':', ',', ' ']).skip(2).any(|it| it == name)
}

/// What the query ended with, as symbolStatus numbers it.
enum Found {
    Entry(&'static Row),
    Absent,
    Newer,
}

/// The newest entry point of that name the caller knows; per-thread twins when asked for and there are any.
fn find(name: &str, version: i32, flags: u64) -> Found {
    let Ok(machine) = driver::machine() else {
        return Found::Absent;
    };
    let absent = |row: &Row| machine.faults.missing(row.name) || removed(row.name);
    let rows = || {
        TABLE
            .iter()
            .filter(|row| row.base == name && !absent(row) && row.version <= machine.scenario.cuda)
    };
    let best = |per_thread: bool| {
        rows()
            .filter(|row| row.per_thread == per_thread && row.version <= version)
            .max_by_key(|row| row.version)
    };
    let wanted = if flags & PER_THREAD_STREAM != 0 {
        best(true).or_else(|| best(false))
    } else {
        best(false)
    };
    match wanted {
        Some(row) => Found::Entry(row),
        None if rows().next().is_some() => Found::Newer,
        None => Found::Absent,
    }
}

fn answer(
    name: Text,
    out: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Option<Out<i32>>,
) -> Answer {
    let name = name.get()?;
    if flags & !(LEGACY_STREAM | PER_THREAD_STREAM) != 0 {
        return Err(INVALID_VALUE);
    }
    let say = |code: i32| {
        if let Some(status) = status {
            status.set_if_wanted(code);
        }
    };
    match find(name, version, flags) {
        Found::Entry(row) => {
            let private = driver::machine()?.faults.private_addresses();
            let address = if private { row.private } else { row.exported };
            say(0);
            out.set(address as *const c_void)
        }
        missing => {
            out.set(std::ptr::null())?;
            say(if matches!(missing, Found::Newer) {
                2
            } else {
                1
            });
            Err(NOT_FOUND)
        }
    }
}

cuda! {
    fn cuGetProcAddress(name: Text, out: Out<*const c_void>, version: i32, flags: u64) {
        answer(name, out, version, flags, None)
    }

    fn cuGetProcAddress_v2(name: Text, out: Out<*const c_void>, version: i32, flags: u64, status: Out<i32>) {
        answer(name, out, version, flags, Some(status))
    }

    fn cuGetProcAddress_v2_ptsz(name: Text, out: Out<*const c_void>, version: i32, flags: u64, status: Out<i32>) {
        let flags = if flags == 0 { PER_THREAD_STREAM } else { flags };
        answer(name, out, version, flags, Some(status))
    }

    fn cuGetExportTable(out: Out<*const c_void>, _id: Handle) {
        out.set_if_wanted(std::ptr::null());
        Err(NOT_FOUND)
    }

    fn cuModuleGetLoadingMode(mode: Out<i32>) {
        mode.set(2)
    }
}

/// What the driver of one platform does inside a query: finds its own functions by dlsym and calls those.
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
