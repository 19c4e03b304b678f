//! The look-ups of OpenGL's functions. libglvnd finds `__egl_Main` or `__glx_Main` in NVIDIA's libraries
//! by dlsym. Either fills a table; the table's `getProcAddress` returns OpenGL's functions.
//! Touches: the table that the driver has filled.
//! Law: without a slice, the driver's entry itself is returned.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;

use crate::hooks::opengl;
use crate::loader::dl::{self, Dlsym, RTLD_NEXT};
use crate::log::Piece::{Raw, Str};
use crate::log::{self, Level};
use crate::real::opengl::{self as drivers, Door, Function};
use crate::real::vulkan;
use crate::slice;

/// The result of `dlsym` for `__egl_Main` and `__glx_Main`. None: the call is libc's.
#[cold]
#[inline(never)]
pub(super) fn of_driver(handle: *mut c_void, name: &CStr, dlsym: Dlsym) -> Option<*mut c_void> {
    slice::current()?;
    if handle == RTLD_NEXT {
        return None;
    }
    // SAFETY: the caller guarantees dlsym's contract for its handle; `name` is a C string.
    let address = unsafe { dlsym(handle, name.as_ptr()) };
    if !dl::object_of(address).is_some_and(|object| vulkan::is_nvidias(&object)) {
        return Some(address);
    }
    // Opaque to the optimiser, which would build a table of addresses.
    let (door, ours) = match name.to_bytes() == b"__egl_Main" {
        true => (Door::Egl, core::hint::black_box(main::<EGL> as *const ())),
        false => (Door::Glx, core::hint::black_box(main::<GLX> as *const ())),
    };
    Function::Main.learn(door, address);
    Some(ours as *mut c_void)
}

const EGL: usize = Door::Egl as usize;
const GLX: usize = Door::Glx as usize;

/// `__egl_Main` and `__glx_Main`: lets the driver fill the table, and replaces the table's look-up.
unsafe extern "C" fn main<const DOOR: usize>(
    version: u32,
    exports: *const c_void,
    vendor: *mut c_void,
    imports: *mut *mut c_void,
) -> u32 {
    let door = Door::numbered(DOOR);
    let Some(real) = drivers::main(door) else {
        return 0;
    };
    // SAFETY: the caller guarantees the contract of the driver's entry.
    let filled = unsafe { real(version, exports, vendor, imports) };
    if filled == 0 || imports.is_null() {
        return filled;
    }
    // `getProcAddress` in `__EGLapiImports` (libglvnd's libeglabi.h) and `__GLXapiImports` (libglxabi.h).
    let place = match door {
        Door::Egl => 3,
        Door::Glx => 1,
    };
    // SAFETY: the table has more entries than this, in every version of libglvnd's interface.
    let entry = unsafe { imports.add(place) };
    // SAFETY: as above; the driver has filled it.
    let address = unsafe { entry.read() };
    if !address.is_null() {
        Function::GetProcAddress.learn(door, address);
        let ours = core::hint::black_box(get_proc_address::<DOOR> as *const ());
        // SAFETY: as above; the table is the caller's own.
        unsafe { entry.write(ours as *mut c_void) };
    }
    filled
}

/// The look-up of the driver: our functions for those that report memory.
unsafe extern "C" fn get_proc_address<const DOOR: usize>(name: *const c_char) -> *mut c_void {
    let door = Door::numbered(DOOR);
    let Some(real) = drivers::get_proc_address(door) else {
        return null_mut();
    };
    // SAFETY: the caller guarantees the look-up's contract.
    let address = unsafe { real(name) };
    if address.is_null() || name.is_null() {
        return address;
    }
    // SAFETY: the look-up's contract guarantees a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let Some(function) = Function::named(name) else {
        return address;
    };
    let Some(ours) = opengl::entry::<DOOR>(function) else {
        return address;
    };
    if log::enabled(Level::Debug) {
        let line = [Raw(name), Str(" by OpenGL: replaced")];
        log::say(Level::Debug, &line, None);
    }
    function.learn(door, address);
    ours
}
