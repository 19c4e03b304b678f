//! The real functions of an OpenCL driver, which `opencl_symbols.rs` lists, and their types.
//! Touches: atomics.
//! Law: one driver at a time. Another one takes its place only when its library is unloaded.

use core::ffi::{c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::loader::dl;
use crate::loader::elf::Object;

#[expect(non_camel_case_types, reason = "the vendor's own spelling")]
mod types {
    use core::ffi::c_void;

    /// The return code of a function.
    pub(crate) type cl_int = i32;
    /// A platform: the driver as a whole.
    pub(crate) type cl_platform_id = *mut c_void;
    /// A device.
    pub(crate) type cl_device_id = *mut c_void;
    /// A context.
    pub(crate) type cl_context = *mut c_void;
    /// A buffer, image or pipe.
    pub(crate) type cl_mem = *mut c_void;
    /// The function that a driver calls when a memory object goes.
    pub(crate) type Destructor = unsafe extern "C" fn(cl_mem, *mut c_void);

    /// `cl_image_format`.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub(crate) struct cl_image_format {
        pub(crate) order: u32,
        pub(crate) data_type: u32,
    }

    /// `cl_image_desc`.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub(crate) struct cl_image_desc {
        pub(crate) image_type: u32,
        pub(crate) width: usize,
        pub(crate) height: usize,
        pub(crate) depth: usize,
        pub(crate) array_size: usize,
        pub(crate) row_pitch: usize,
        pub(crate) slice_pitch: usize,
        pub(crate) num_mip_levels: u32,
        pub(crate) num_samples: u32,
        pub(crate) mem_object: cl_mem,
    }

    const _: () = assert!(size_of::<cl_image_desc>() == 72);
}

pub(crate) use types::*;

/// `CL_SUCCESS`.
pub(crate) const CL_SUCCESS: cl_int = 0;
/// `CL_MEM_OBJECT_ALLOCATION_FAILURE`.
pub(crate) const CL_MEM_OBJECT_ALLOCATION_FAILURE: cl_int = -4;
/// `CL_INVALID_OPERATION`.
pub(crate) const CL_INVALID_OPERATION: cl_int = -59;
/// `CL_PLATFORM_NOT_FOUND_KHR`.
pub(crate) const CL_PLATFORM_NOT_FOUND_KHR: cl_int = -1001;
/// `CL_PLATFORM_VERSION`.
pub(crate) const CL_PLATFORM_VERSION: u32 = 0x0901;
/// `CL_DEVICE_TYPE_ALL`.
pub(crate) const CL_DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;
/// `CL_DEVICE_MAX_MEM_ALLOC_SIZE`.
pub(crate) const CL_DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
/// `CL_DEVICE_GLOBAL_MEM_SIZE`.
pub(crate) const CL_DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101F;
/// `CL_DEVICE_HOST_UNIFIED_MEMORY`.
pub(crate) const CL_DEVICE_HOST_UNIFIED_MEMORY: u32 = 0x1035;
/// `CL_DEVICE_UUID_KHR`.
pub(crate) const CL_DEVICE_UUID_KHR: u32 = 0x106A;
/// `CL_CONTEXT_DEVICES`.
pub(crate) const CL_CONTEXT_DEVICES: u32 = 0x1081;
/// `CL_MEM_SIZE`.
pub(crate) const CL_MEM_SIZE: u32 = 0x1102;

/// The place of a function in the dispatch table, and the first version that has it.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) index: u8,
    /// 100 times the major version, and ten times the minor one.
    pub(crate) since: u16,
}

/// The place of a function that is not in the table: no version has it.
const NOWHERE: Place = Place {
    index: 0,
    since: u16::MAX,
};

macro_rules! place {
    () => {
        NOWHERE
    };
    ($index:literal $since:literal) => {
        Place {
            index: $index,
            since: $since,
        }
    };
}

macro_rules! opencl {
    ($( fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty $( = $($hook:ident)::+ )? ,
        $( at $index:literal since $since:literal )? $( by $by:ident )? ; )*) => {
        /// A line of the table.
        #[expect(non_camel_case_types, reason = "C spelling")]
        pub(crate) enum Function { $( $name ),* }

        /// The number of lines. A line's number is its place in the table.
        pub(crate) const FUNCTIONS: usize = [$( stringify!($name) ),*].len();

        static REAL: [AtomicPtr<c_void>; FUNCTIONS] =
            [const { AtomicPtr::new(null_mut()) }; FUNCTIONS];

        /// The names, each with its NUL: one text, so that none of them needs a relocation.
        static NAMES: &[u8] = concat!($( stringify!($name), "\0" ),*).as_bytes();

        /// The functions' places in the dispatch table; [`NOWHERE`] for those found by name only.
        static PLACES: [Place; FUNCTIONS] = [$( place!($( $index $since )?) ),*];

        $(
            #[expect(non_snake_case, reason = "C spelling")]
            pub(crate) mod $name {
                use super::*;
                pub(crate) type Real = unsafe extern "C" fn($($ty),*) -> $ret;

                #[allow(dead_code, reason = "a function that is only found has no other caller")]
                /// The driver's function. None: the driver has none, or its table was not seen yet.
                #[inline]
                pub(crate) fn real() -> Option<Real> {
                    let address = known(Function::$name as usize);
                    // SAFETY: the driver's function of this name has this signature, by
                    // `opencl_symbols.rs`; None is the null pointer.
                    unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(address) }
                }
            }
        )*
    };
}

include!("../opencl_symbols.rs");

/// The line with this name.
pub(crate) fn named(name: &[u8]) -> Option<usize> {
    let mut names = NAMES.split(|letter| *letter == 0);
    names
        .position(|known| known == name)
        .filter(|line| *line < FUNCTIONS)
}

/// The place of a line's function in the dispatch table of a driver of this version.
pub(crate) fn place(function: usize, version: u16) -> Option<Place> {
    let place = PLACES.get(function)?;
    (place.since <= version).then_some(*place)
}

/// The address of the driver's function; null if it is not known.
#[inline]
fn known(function: usize) -> *mut c_void {
    REAL.get(function)
        .map_or(null_mut(), |cell| cell.load(Ordering::Acquire))
}

/// Remembers the driver's function.
pub(crate) fn store(function: usize, address: *mut c_void) {
    if let Some(cell) = REAL.get(function) {
        cell.store(address, Ordering::Release);
    }
}

/// The identity of the driver's library: where its dynamic section and its base are.
static DYNAMIC: AtomicUsize = AtomicUsize::new(0);
static BASE: AtomicUsize = AtomicUsize::new(0);

/// The claim of a driver's library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It is the one whose functions are known.
    Known,
    /// It takes the place of an unloaded one, or is the first.
    New,
    /// Another one is loaded.
    Another,
}

/// Claims the place of the process's OpenCL driver for a library.
pub(crate) fn claim(object: &Object) -> Claimed {
    let held = DYNAMIC.load(Ordering::Acquire);
    if held == object.dynamic && BASE.load(Ordering::Relaxed) == object.base {
        return Claimed::Known;
    }
    if held != 0 && held != object.dynamic && dl::is_loaded(held) {
        return Claimed::Another;
    }
    BASE.store(object.base, Ordering::Relaxed);
    DYNAMIC.store(object.dynamic, Ordering::Release);
    Claimed::New
}
