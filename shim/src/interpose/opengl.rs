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

/// The place of `getProcAddress` in `__EGLapiImports` and in `__GLXapiImports` (libglvnd's
/// libeglabi.h and libglxabi.h).
const LOOK_UP_OF_EGL: usize = 3;
const LOOK_UP_OF_GLX: usize = 1;

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
        true => (Door::Egl, core::hint::black_box(egl_main as *const ())),
        false => (Door::Glx, core::hint::black_box(glx_main as *const ())),
    };
    Function::Main.learn(door, address);
    Some(ours as *mut c_void)
}

unsafe extern "C" fn egl_main(
    version: u32,
    exports: *const c_void,
    vendor: *mut c_void,
    imports: *mut *mut c_void,
) -> u32 {
    let look_up = core::hint::black_box(get_proc_address::<{ Door::Egl as usize }> as *const ());
    // SAFETY: the caller guarantees __egl_Main's contract.
    unsafe {
        fill(
            Door::Egl,
            (version, exports, vendor, imports),
            LOOK_UP_OF_EGL,
            look_up,
        )
    }
}

unsafe extern "C" fn glx_main(
    version: u32,
    exports: *const c_void,
    vendor: *mut c_void,
    imports: *mut *mut c_void,
) -> u32 {
    let look_up = core::hint::black_box(get_proc_address::<{ Door::Glx as usize }> as *const ());
    // SAFETY: the caller guarantees __glx_Main's contract.
    unsafe {
        fill(
            Door::Glx,
            (version, exports, vendor, imports),
            LOOK_UP_OF_GLX,
            look_up,
        )
    }
}

type Arguments = (u32, *const c_void, *mut c_void, *mut *mut c_void);

/// Lets the driver fill the table, and replaces its look-up.
///
/// # Safety
/// The caller guarantees the contract of the door's entry for these arguments.
unsafe fn fill(
    door: Door,
    (version, exports, vendor, imports): Arguments,
    index: usize,
    replacement: *const (),
) -> u32 {
    let Some(real) = drivers::main(door) else {
        return 0;
    };
    // SAFETY: the caller guarantees the contract.
    let filled = unsafe { real(version, exports, vendor, imports) };
    if filled == 0 || imports.is_null() {
        return filled;
    }
    // SAFETY: the table has more entries than `index`, in every version of libglvnd's interface.
    let entry = unsafe { imports.add(index) };
    // SAFETY: as above; the driver has filled it.
    let address = unsafe { entry.read() };
    if !address.is_null() {
        Function::GetProcAddress.learn(door, address);
        // SAFETY: as above; the table is the caller's own.
        unsafe { entry.write(replacement as *mut c_void) };
    }
    filled
}

/// The look-up of the driver: our functions for those that report memory.
unsafe extern "C" fn get_proc_address<const DOOR: usize>(name: *const c_char) -> *mut c_void {
    let door = if DOOR == 0 { Door::Egl } else { Door::Glx };
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
    let Some(ours) = opengl::entry(door, function) else {
        return address;
    };
    if log::enabled(Level::Debug) {
        let line = [Raw(name), Str(" by OpenGL: replaced")];
        log::say(Level::Debug, &line, None);
    }
    function.learn(door, address);
    ours
}
