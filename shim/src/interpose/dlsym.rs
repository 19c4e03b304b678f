//! The hook of dlsym.
//! Touches: registers; the loader, for names that are in the table.
//! Law: a tail jump, so that libc sees the caller's own return address. No allocation, no lock of
//! ours, no thread-local state with a destructor.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;

use crate::interpose::{dlclose, entries, opencl, opengl, stand_in, vulkan};
use crate::loader::dl::{self, RTLD_DEFAULT, RTLD_NEXT};
use crate::loader::elf::{self, Object};
use crate::loader::image;
use crate::log::Piece::Str;
use crate::log::{self, Level};
use crate::real::copies::{self, Library};
use crate::real::functions::{self, Row};

/// The filter's result for "jump to libc's function".
const PASS: *mut c_void = null_mut();
/// The filter's result for "return null".
const NULL: *mut c_void = core::ptr::dangling_mut::<u8>().cast();

/// dlsym: returns the filter's address, or jumps to libc's dlsym.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "endbr64",
        saving_arguments!(2: "mov rdx, qword ptr [rsp + 24]", "call {filter}"),
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

/// dlsym: returns the filter's address, or jumps to libc's dlsym.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "hint #34",
        saving_arguments!(2: "mov x2, x30", "bl {filter}", "mov x16, x0"),
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
    let Some(number) = functions::number(name) else {
        return PASS;
    };
    let Some(row) = functions::row(number) else {
        // The entry of a driver of another API, which none of our exports hides.
        let of_driver = match first {
            b'v' => vulkan::of_driver(handle, name, caller, dlsym),
            b'_' => opengl::of_driver(handle, name, dlsym),
            _ => opencl::of_driver(handle, name, dlsym),
        };
        return match of_driver {
            Some(address) if address.is_null() => NULL,
            Some(address) => address,
            None => PASS,
        };
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
    // SAFETY: the caller guarantees dlsym's contract for its handle and name. The scope of
    // RTLD_DEFAULT would be ours, not the caller's: that is handled below.
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
        log::say(Level::Debug, &line, None);
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
    if unsafe { image::symbol(caller, name.to_bytes()) }.is_some() {
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
        // The look-up is repeated, so that dlerror reports the symbol.
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
        Row::dlclose => dlclose::real().map(|real| real as *mut c_void),
        Row::dlmopen => dl::dlmopen().map(|real| real as *mut c_void),
        _ => Some(copies::following(
            functions::cells(row),
            functions::name(row).as_bytes(),
        )),
    };
    // SAFETY: the caller guarantees dlsym's contract for its handle; `name` is a C string.
    let address = unsafe { dlsym(handle, name.as_ptr()) };
    let is_absent = known.is_some_and(<*mut c_void>::is_null);
    if is_absent && address == entries::entry(row, copies::CopyId(0)) {
        // This libc has no such function, and dlerror reports it.
        return match dl::in_libc(name).is_null() {
            true => NULL,
            false => address,
        };
    }
    match known {
        Some(known) if known == address && !is_absent => entries::entry(row, copies::CopyId(0)),
        _ if address.is_null() => NULL,
        _ => address,
    }
}

/// Returns whether the object belongs to the driver. The driver's own look-ups are not redirected.
/// libcudart does not count as driver.
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
