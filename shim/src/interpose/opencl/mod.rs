//! OpenCL: how a program's calls of the driver reach a hook.
//! Touches: `opencl_symbols.rs`, by inclusion; the driver's dispatch table.
//! Law: without a slice, and for drivers of other vendors, nothing is replaced.
//!
//! Loaders and programs that use the driver without one take `clGetExtensionFunctionAddress` from
//! it by `dlsym`. Ours hands out the driver's functions, and replaces those of the table (`lookup`).

mod lookup;

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;

use crate::hooks::opencl::{buffer, image, info, svm};
use crate::loader::dl::{self, Dlsym, RTLD_DEFAULT, RTLD_NEXT};
use crate::loader::elf::Object;
use crate::log::counters;
use crate::real::opencl::{self, Claimed, Function, *};
use crate::slice;

/// The answer of a function whose real one is not known. It is only called by a program that has
/// kept a function of an unloaded driver.
trait Absent {
    const ABSENT: Self;
}

impl Absent for cl_int {
    const ABSENT: cl_int = CL_INVALID_OPERATION;
}

impl Absent for *mut c_void {
    const ABSENT: *mut c_void = null_mut();
}

impl Absent for () {
    const ABSENT: () = ();
}

macro_rules! entry {
    ($name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $($hook:ident)::+) => {
        pub(super) unsafe extern "C" fn $name($($arg : $ty),*) -> $ret {
            match opencl::$name::real() {
                // SAFETY: the caller guarantees the contract of the function of this name, which is
                // the hook's; the real function has this signature, by `opencl_symbols.rs`.
                Some(real) => unsafe { $($hook)::+(real $(, $arg)*) },
                None => Absent::ABSENT,
            }
        }
    };
    ($name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty) => {};
}

macro_rules! address {
    ($name:ident = $($hook:ident)::+) => {
        // Opaque to the optimiser, which would build a table of addresses.
        return core::hint::black_box(entries::$name as *const ()) as *mut c_void
    };
    ($name:ident) => {
        return null_mut()
    };
}

macro_rules! opencl {
    ($( fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty $( = $($hook:ident)::+ )? ,
        $( at $index:literal since $since:literal )? $( by $by:ident )? ; )*) => {
        #[expect(non_snake_case, reason = "C spelling")]
        mod entries {
            use super::*;
            $( entry!($name ( $($arg : $ty),* ) -> $ret $( = $($hook)::+ )?); )*
        }

        /// The entry point for a line of the table; null for a function that is not replaced.
        #[inline(never)]
        fn entry(function: usize) -> *mut c_void {
            $( if function == Function::$name as usize { address!($name $( = $($hook)::+ )?); } )*
            null_mut()
        }
    };
}

include!("../../opencl_symbols.rs");

/// The result of `dlsym` for a name of `functions::ENTRIES`. None: libc's own. Such names are looked
/// up in the driver's library; other libraries that define them are loaders, or other drivers.
#[cold]
#[inline(never)]
pub(super) fn of_driver(handle: *mut c_void, name: &CStr, dlsym: Dlsym) -> Option<*mut c_void> {
    let slice = slice::current()?;
    if handle == RTLD_DEFAULT || handle == RTLD_NEXT {
        return None;
    }
    // SAFETY: the caller guarantees dlsym's contract for its handle; `name` is a C string.
    let address = unsafe { dlsym(handle, name.as_ptr()) };
    let object = dl::object_of(address).filter(is_drivers);
    let Some(object) = object else {
        return Some(address);
    };
    if opencl::claim(&object) == Claimed::Another {
        counters::COPIES.warn_text(
            "a second OpenCL driver of NVIDIA's is loaded: it is hidden where the limit is enforced, and not counted elsewhere (load only one)",
        );
        return Some(match slice.enforces() {
            true => null_mut(),
            false => address,
        });
    }
    Some(stand_in(name.to_bytes(), address))
}

/// Whether the object is NVIDIA's OpenCL driver.
fn is_drivers(object: &Object) -> bool {
    object.file_name().starts_with(b"libnvidia-opencl.so")
}

/// The substitute for a function that the driver has returned under this name.
#[inline(never)]
fn stand_in(name: &[u8], address: *mut c_void) -> *mut c_void {
    let Some(function) = opencl::named(name) else {
        return address;
    };
    let ours = entry(function);
    if ours.is_null() || ours == address {
        return address;
    }
    opencl::store(function, address);
    ours
}
