//! The real functions that `symbols.rs` lists, and the few others that the library calls itself.
//! Touches: `symbols.rs`, by inclusion; the loader, when a function is called for the first time.
//! Law: no name is written down twice: a new line in `symbols.rs` is a new function here.

use core::ffi::{CStr, c_char, c_ulonglong, c_void};

use crate::real::abi::*;
use crate::real::copies::{self, Cells, CopyId, Library};
use crate::real::names::Names;

/// The names that loaders look up in a driver of another API than CUDA, to reach all its functions.
/// Nothing here is exported: see `interpose/vulkan.rs`, `interpose/opencl/` and `interpose/opengl.rs`.
pub(crate) const ENTRIES: [&str; 6] = [
    "vk_icdGetInstanceProcAddr",
    "vk_icdGetPhysicalDeviceProcAddr",
    "clGetExtensionFunctionAddress",
    "clIcdGetPlatformIDsKHR",
    "__egl_Main",
    "__glx_Main",
];

#[expect(
    clippy::indexing_slicing,
    reason = "runs in the compiler, which stops at a fault"
)]
const fn entries_length() -> usize {
    let (mut length, mut entry) = (0usize, 0usize);
    while entry < ENTRIES.len() {
        length = length
            .saturating_add(ENTRIES[entry].len())
            .saturating_add(1);
        entry = entry.saturating_add(1);
    }
    length
}

/// A call of a hooked function, as a hook receives it.
pub(crate) struct Call<F> {
    /// The copy of the library that the call is meant for.
    pub(crate) copy: CopyId,
    pub(crate) real: F,
}

/// The entry in `symbols.rs` for cuGetProcAddress.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    /// The name without suffixes.
    pub(crate) base: &'static [u8],
    /// The CUDA version from which the name means this function.
    pub(crate) since: i32,
    /// Whether it is the variant for per-thread default streams.
    pub(crate) per_thread: bool,
}

/// The length of the name without suffixes. Only the length is stored, because the row's name
/// begins with it: a table of texts would be relocated at the start of every process.
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "runs in the compiler, which stops at a fault"
)]
const fn common(name: &str, base: &str) -> usize {
    let (name, base) = (name.as_bytes(), base.as_bytes());
    let mut at = 0;
    while at < base.len() {
        assert!(name[at] == base[at], "a row's name begins with its base");
        at += 1;
    }
    base.len()
}

/// The beginning of a row's name.
fn beginning(row: Row, length: usize) -> &'static [u8] {
    // Opaque to the optimiser, which would build a table of texts.
    let row = core::hint::black_box(row as usize);
    NAMES.with_nul(row).get(..length).unwrap_or_default()
}

macro_rules! symbols {
    ($( $lib:ident fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $($hook:ident)::+
        $(, as $base:literal since $since:literal $($per_thread:ident)? )? ; )*) => {
        /// A line of the table.
        #[expect(non_camel_case_types, reason = "C spelling")]
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Row { $( $name ),* }

        /// The number of lines in the table.
        pub(crate) const ROWS: usize = [$( stringify!($name) ),*].len();

        /// The number of rows that a program calls directly; those of libc stand last.
        #[expect(clippy::indexing_slicing, reason = "runs in the compiler, which stops at a fault")]
        pub(crate) const EXPORTS: usize = {
            let libraries = [$( Library::$lib ),*];
            let (mut row, mut exports) = (0, 0);
            while row < ROWS {
                if !matches!(libraries[row], Library::Libc) {
                    exports += 1;
                    assert!(exports == row + 1, "the rows of libc stand last");
                }
                row += 1;
            }
            exports
        };

        /// The number of rarely called functions: the rows from `unshare` on.
        pub(crate) const RARE: usize = ROWS - Row::unshare as usize;

        const NAMES_LENGTH: usize = 0 $( + stringify!($name).len() + 1 )*;

        /// The names of all rows, then those that loaders look up in a driver of another API: they
        /// cost a look-up of any other name nothing here.
        static NAMES: Names<{ ROWS + ENTRIES.len() }, { NAMES_LENGTH + entries_length() }> =
            Names::new([$( stringify!($name), )* ENTRIES[0], ENTRIES[1], ENTRIES[2], ENTRIES[3], ENTRIES[4], ENTRIES[5]]);

        /// The row with this number.
        pub(crate) fn row(number: usize) -> Option<Row> {
            $( if number == Row::$name as usize { return Some(Row::$name); } )*
            None
        }

        /// The library of the row's function.
        pub(crate) fn library(row: Row) -> Library {
            match row { $( Row::$name => Library::$lib ),* }
        }

        /// The row's entry for cuGetProcAddress.
        pub(crate) fn named(row: Row) -> Option<Named> {
            $( $( if row == Row::$name {
                return Some(Named {
                    base: beginning(row, const { common(stringify!($name), $base) }),
                    since: $since,
                    per_thread: false $( || matches!(stringify!($per_thread).as_bytes(), b"per_thread") )?,
                });
            } )? )*
            None
        }

        $( function!($lib $name ( $($ty),* ) -> $ret); )*

        /// The cells with the real function's addresses.
        pub(crate) fn cells(row: Row) -> Cells {
            Cells::new(INTERNAL.wrapping_add(row as usize))
        }

        /// Forgets the addresses in one copy of a library.
        pub(crate) fn forget(library: Library, copy: CopyId) {
            for row in rows().filter(|row| self::library(*row) == library) {
                cells(row).forget(copy);
            }
            for internal in (0..INTERNAL).filter(|internal| library_of_internal(*internal) == Some(library)) {
                Cells::new(internal).forget(copy);
            }
        }
    };
}

/// The real function of a row.
macro_rules! function {
    (Libc $name:ident ( $($ty:ty),* ) -> $ret:ty) => {
        #[allow(non_snake_case, dead_code, reason = "C spelling; few of libc's are called from here")]
        pub(crate) mod $name {
            use super::*;
            pub(crate) const REAL: Cells = Cells::new(INTERNAL + Row::$name as usize);
            pub(crate) type Real = unsafe extern "C" fn($($ty),*) -> $ret;

            /// The function that comes after ours: libc's, or another preload's.
            #[inline]
            pub(crate) fn real() -> Option<Real> {
                let address = copies::following(REAL, stringify!($name).as_bytes());
                // SAFETY: a function of this name has this signature, by `symbols.rs`; None is the
                // null pointer.
                unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(address) }
            }

            /// The cached result of `real`.
            #[inline]
            pub(crate) fn known() -> Option<Real> {
                // SAFETY: the address is that of `real`: same signature, and None is the null
                // pointer.
                unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(REAL.known(CopyId(0))) }
            }
        }
    };
    ($lib:ident $name:ident ( $($ty:ty),* ) -> $ret:ty) => {
        #[allow(non_snake_case, reason = "C spelling")]
        pub(crate) mod $name {
            use super::*;
            pub(crate) const REAL: Cells = Cells::new(INTERNAL + Row::$name as usize);
            pub(crate) type Real = unsafe extern "C" fn($($ty),*) -> $ret;

            /// The real function in this copy of the library.
            #[inline]
            pub(crate) fn real(copy: CopyId) -> Option<Real> {
                const NAME: &CStr = c_name(concat!(stringify!($name), "\0"));
                let address = REAL.get(Library::$lib, copy, NAME);
                // SAFETY: the library's function of this name has this signature, by `symbols.rs`;
                // None is the null pointer.
                unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(address) }
            }
        }
    };
}

/// Real functions that the library calls itself and does not intercept.
macro_rules! internal {
    ($( $lib:ident fn $name:ident ( $($ty:ty),* ) -> $ret:ty ; )*) => {
        $(
            #[expect(non_snake_case, reason = "C spelling")]
            pub(crate) mod $name {
                use super::*;
                const REAL: Cells = Cells::new(Internal::$name as usize);

                /// The real function in this copy of the library.
                #[inline]
                pub(crate) fn real(copy: CopyId) -> Option<unsafe extern "C" fn($($ty),*) -> $ret> {
                    const NAME: &CStr = c_name(concat!(stringify!($name), "\0"));
                    let address = REAL.get(Library::$lib, copy, NAME);
                    // SAFETY: the library's function of this name has this signature, which is the
                    // vendor's; None is the null pointer.
                    unsafe {
                        core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($ty),*) -> $ret>>(address)
                    }
                }
            }
        )*
        #[expect(non_camel_case_types, reason = "C spelling")]
        #[repr(u8)]
        enum Internal { $( $name ),* }

        pub(crate) const INTERNAL: usize = [$( stringify!($name) ),*].len();

        /// The number of real functions with cached addresses.
        pub(crate) const FUNCTIONS: usize = ROWS + INTERNAL;

        /// The library of the function with this number.
        fn library_of_internal(number: usize) -> Option<Library> {
            $( if number == Internal::$name as usize { return Some(Library::$lib); } )*
            None
        }
    };
}

const fn c_name(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name with a NUL"),
    }
}

include!("../symbols.rs");

internal! {
    Cuda fn cuCtxGetCurrent(*mut CUcontext) -> CUresult;
    Cuda fn cuCtxGetDevice(*mut CUdevice) -> CUresult;
    Cuda fn cuCtxPopCurrent_v2(*mut CUcontext) -> CUresult;
    Cuda fn cuCtxPushCurrent_v2(CUcontext) -> CUresult;
    Cuda fn cuDeviceGetCount(*mut i32) -> CUresult;
    Cuda fn cuDeviceGetDefaultMemPool(*mut CUmemoryPool, CUdevice) -> CUresult;
    Cuda fn cuDeviceGetGraphMemAttribute(CUdevice, i32, *mut c_void) -> CUresult;
    Cuda fn cuDeviceGetMemPool(*mut CUmemoryPool, CUdevice) -> CUresult;
    Cuda fn cuDeviceGetUuid(*mut CUuuid, CUdevice) -> CUresult;
    Cuda fn cuDeviceGetUuid_v2(*mut CUuuid, CUdevice) -> CUresult;
    Cuda fn cuDevicePrimaryCtxGetState(CUdevice, *mut u32, *mut i32) -> CUresult;
    Cuda fn cuGraphChildGraphNodeGetGraph(CUgraphNode, *mut CUgraph) -> CUresult;
    Cuda fn cuGraphGetNodes(CUgraph, *mut CUgraphNode, *mut usize) -> CUresult;
    Cuda fn cuGraphGetRootNodes(CUgraph, *mut CUgraphNode, *mut usize) -> CUresult;
    Cuda fn cuGraphMemAllocNodeGetParams(CUgraphNode, *mut c_void) -> CUresult;
    Cuda fn cuGraphMemFreeNodeGetParams(CUgraphNode, *mut CUdeviceptr) -> CUresult;
    Cuda fn cuGraphNodeGetDependentNodes(CUgraphNode, *mut CUgraphNode, *mut usize) -> CUresult;
    Cuda fn cuGraphNodeGetType(CUgraphNode, *mut i32) -> CUresult;
    Cuda fn cuMemGetAllocationPropertiesFromHandle(*mut c_void, c_ulonglong) -> CUresult;
    Cuda fn cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr) -> CUresult;
    Cuda fn cuMemPoolGetAttribute(CUmemoryPool, i32, *mut c_void) -> CUresult;
    Cuda fn cuPointerGetAttribute(*mut c_void, i32, CUdeviceptr) -> CUresult;
    Cuda fn cuStreamGetCtx(CUstream, *mut CUcontext) -> CUresult;
    Cuda fn cuStreamGetDevice(CUstream, *mut CUdevice) -> CUresult;
    Cuda fn cuStreamIsCapturing(CUstream, *mut i32) -> CUresult;
    Cuda fn cuThreadExchangeStreamCaptureMode(*mut i32) -> CUresult;
    Cudart fn cudaRuntimeGetVersion(*mut i32) -> cudaError_t;
    Nvml fn nvmlDeviceGetCudaComputeCapability(nvmlDevice_t, *mut i32, *mut i32) -> nvmlReturn_t;
    Nvml fn nvmlDeviceGetName(nvmlDevice_t, *mut c_char, u32) -> nvmlReturn_t;
    Nvml fn nvmlDeviceGetComputeInstanceId(nvmlDevice_t, *mut u32) -> nvmlReturn_t;
    Nvml fn nvmlDeviceGetGpuInstanceId(nvmlDevice_t, *mut u32) -> nvmlReturn_t;
    Nvml fn nvmlDeviceGetHandleByUUID(*const c_char, *mut nvmlDevice_t) -> nvmlReturn_t;
    Nvml fn nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t, u32, *mut nvmlDevice_t) -> nvmlReturn_t;
    Nvml fn nvmlDeviceGetUUID(nvmlDevice_t, *mut c_char, u32) -> nvmlReturn_t;
    Nvml fn nvmlInit_v2() -> nvmlReturn_t;
    Nvml fn nvmlShutdown() -> nvmlReturn_t;
}

/// The row's name as a C string.
pub(crate) fn name_c(row: Row) -> &'static CStr {
    CStr::from_bytes_until_nul(NAMES.with_nul(row as usize)).unwrap_or_default()
}

/// The row's name.
pub(crate) fn name(row: Row) -> &'static str {
    name_c(row).to_str().unwrap_or_default()
}

/// Whether a row's name may begin with this letter.
#[inline]
pub(crate) fn begins(letter: u8) -> bool {
    NAMES.begins(letter)
}

/// The row with exactly this name.
pub(crate) fn find(name: &CStr) -> Option<Row> {
    row(number(name)?)
}

/// The number of exactly this name: of a row, or of a driver's entry behind the rows.
pub(crate) fn number(name: &CStr) -> Option<usize> {
    NAMES.find(name)
}

pub(crate) fn rows() -> impl Iterator<Item = Row> {
    (0..ROWS).filter_map(row)
}
