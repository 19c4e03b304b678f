//! The real functions of NVIDIA's OpenGL libraries.
//! Touches: atomics; the driver's look-up.
//!
//! libglvnd, which every distribution has between programs and OpenGL's drivers, loads one library of
//! the driver for EGL and one for GLX. Each has functions of its own.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

/// The window-system interface by which a program reaches the driver.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Door {
    Egl = 0,
    Glx = 1,
}

impl Door {
    /// The interface with this number, which a generic function carries: 0 is EGL.
    pub(crate) const fn numbered(number: usize) -> Door {
        match number {
            0 => Door::Egl,
            _ => Door::Glx,
        }
    }
}

/// A function of the driver that is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Function {
    /// `__egl_Main` or `__glx_Main`.
    Main = 0,
    /// The driver's own look-up of OpenGL's functions.
    GetProcAddress = 1,
    /// `glGetIntegerv`.
    Integers = 2,
    /// `glGetInteger64v`.
    Integers64 = 3,
    /// `glGetFloatv`.
    Floats = 4,
    /// `glGetDoublev`.
    Doubles = 5,
}

const FUNCTIONS: usize = 6;

static KNOWN: [[AtomicPtr<c_void>; FUNCTIONS]; 2] =
    [const { [const { AtomicPtr::new(null_mut()) }; FUNCTIONS] }; 2];

/// `__egl_Main` and `__glx_Main`. The last argument is a table of the driver's functions, which it
/// fills.
pub(crate) type Main =
    unsafe extern "C" fn(u32, *const c_void, *mut c_void, *mut *mut c_void) -> u32;
/// The driver's look-up.
pub(crate) type GetProcAddress = unsafe extern "C" fn(*const c_char) -> *mut c_void;
/// `glGetIntegerv` and its variants for other types.
pub(crate) type Get<T> = unsafe extern "C" fn(u32, *mut T);

impl Function {
    /// The function with this name that is replaced.
    pub(crate) fn named(name: &[u8]) -> Option<Function> {
        match name {
            b"glGetIntegerv" => Some(Function::Integers),
            b"glGetInteger64v" | b"glGetInteger64vEXT" => Some(Function::Integers64),
            b"glGetFloatv" => Some(Function::Floats),
            b"glGetDoublev" => Some(Function::Doubles),
            _ => None,
        }
    }

    fn place(self, door: Door) -> Option<&'static AtomicPtr<c_void>> {
        KNOWN.get(door as usize)?.get(self as usize)
    }

    /// Remembers the real function.
    pub(crate) fn learn(self, door: Door, address: *mut c_void) {
        if let Some(place) = self.place(door) {
            place.store(address, Ordering::Release);
        }
    }

    /// The real function, if it has been learned.
    ///
    /// # Safety
    /// `F` is the type of a pointer to this function.
    unsafe fn known<F: Copy>(self, door: Door) -> Option<F> {
        let address = self.place(door)?.load(Ordering::Acquire);
        // SAFETY: the caller guarantees the type.
        unsafe { typed(address) }
    }
}

/// An address as a pointer to a function of type `F`. None: it is null.
///
/// # Safety
/// `F` is the type of a pointer to the function at this address.
unsafe fn typed<F: Copy>(address: *mut c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller guarantees the type, and the pointer is not null.
    (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
}

/// The driver's look-up.
pub(crate) fn get_proc_address(door: Door) -> Option<GetProcAddress> {
    // SAFETY: the function has this type.
    unsafe { Function::GetProcAddress.known(door) }
}

/// The driver's `__egl_Main` or `__glx_Main`.
pub(crate) fn main(door: Door) -> Option<Main> {
    // SAFETY: the function has this type.
    unsafe { Function::Main.known(door) }
}

/// A query of values of type `T`, which `function` reports.
///
/// # Safety
/// `function` reports values of this type.
pub(crate) unsafe fn get<T>(door: Door, function: Function) -> Option<Get<T>> {
    // SAFETY: the caller guarantees the type.
    unsafe { function.known(door) }
}

/// Any other function, which the driver is asked for at each call. None: it has none of this name.
///
/// # Safety
/// `F` is the type of a pointer to the function of this name.
pub(crate) unsafe fn other<F: Copy>(door: Door, name: &CStr) -> Option<F> {
    let ask = get_proc_address(door)?;
    // SAFETY: the look-up's contract: a C string.
    let found = unsafe { ask(name.as_ptr()) };
    // SAFETY: the caller guarantees the type.
    unsafe { typed(found) }
}
