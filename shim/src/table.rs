//! What follows from the one table: exports, names, entries.
//! Touches: `symbols.rs`, by inclusion.
//! Law: nothing is written down twice; a new line there is a new hook here.

use core::ffi::{CStr, c_char, c_ulonglong, c_void};
use core::ptr::null_mut;

use crate::abi::*;
use crate::names::Names;
use crate::real::{self, Cells, Library, SLOTS, Slot};
use crate::shapes::array::{self, Requirements};
use crate::shapes::{
    admit, alone, capture, context, copy, descriptors, files, graph, green, growth, ipc, mappings,
    nvml, pinned, pool, processes, properties, query, reading, release, resolve, stat, vmm,
};

/// A call of a hooked function that has reached us.
pub(crate) struct Call<F> {
    /// Which copy of the library it is meant for.
    pub(crate) slot: Slot,
    /// The real function.
    pub(crate) real: F,
}

/// What a function of libc answers when it cannot do what it was asked for.
pub(crate) trait Failure {
    const FAILED: Self;
}

impl Failure for i32 {
    const FAILED: i32 = -1;
}

impl Failure for isize {
    const FAILED: isize = -1;
}

impl Failure for *mut c_void {
    const FAILED: *mut c_void = null_mut();
}

/// What `symbols.rs` says of cuGetProcAddress.
#[derive(Clone, Copy)]
pub(crate) struct Named {
    /// The name without suffixes.
    pub(crate) base: &'static [u8],
    /// From which CUDA version the name means this function.
    pub(crate) since: i32,
    /// Whether it is the twin for per-thread default streams.
    pub(crate) per_thread: bool,
}

/// How long the name without suffixes is. It is kept as that, because it is how the row's name
/// begins: a table of texts would be relocated at the start of every process.
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
    // Opaque to the optimiser, which would make that table.
    let row = core::hint::black_box(row as usize);
    NAMES.with_nul(row).get(..length).unwrap_or_default()
}

macro_rules! symbols {
    ($( $lib:ident fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $module:ident :: $shape:ident
        $(, as $base:literal since $since:literal $($per_thread:ident)? )? ; )*) => {
        /// A line of the table.
        #[expect(non_camel_case_types, reason = "C spelling")]
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Row { $( $name ),* }

        /// How many lines the table has.
        pub(crate) const ROWS: usize = [$( stringify!($name) ),*].len();

        /// How many of them a program calls directly: those of libc stand last.
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

        /// How many lines are of functions that few programs call: those from `unshare` on.
        pub(crate) const RARE: usize = ROWS - Row::unshare as usize;

        const NAMES_LENGTH: usize = 0 $( + stringify!($name).len() + 1 )*;

        static NAMES: Names<ROWS, NAMES_LENGTH> = Names::new([$( stringify!($name) ),*]);

        /// The row with this number.
        pub(crate) fn row(number: usize) -> Option<Row> {
            $( if number == Row::$name as usize { return Some(Row::$name); } )*
            None
        }

        /// Whose function it is.
        pub(crate) fn library(row: Row) -> Library {
            match row { $( Row::$name => Library::$lib ),* }
        }

        /// What cuGetProcAddress calls it.
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

        $( hook!($lib $name ( $($arg : $ty),* ) -> $ret = $module :: $shape); )*

        /// The real function's places.
        pub(crate) fn cells(row: Row) -> Cells {
            Cells::of(ASKED.wrapping_add(row as usize))
        }

        /// What answers for the row and this copy of its library.
        pub(crate) fn entry(row: Row, slot: Slot) -> *mut c_void {
            match row { $( Row::$name => $name::entry_of(slot) ),* }
        }

        /// Forgets what is known of one copy of a library.
        pub(crate) fn forget(library: Library, slot: Slot) {
            for row in rows().filter(|row| self::library(*row) == library) {
                cells(row).forget(slot);
            }
            for asked in (0..ASKED).filter(|asked| asked_of(*asked) == Some(library)) {
                Cells::of(asked).forget(slot);
            }
        }
    };
}

/// What a driver library's function has in each of the library's copies: the real one, and what
/// answers for it, which is the `entry` beside this.
macro_rules! copies {
    ($lib:ident $name:ident ( $($ty:ty),* ) -> $ret:ty) => {
        pub(crate) const REAL: Cells = Cells::of(ASKED + Row::$name as usize);
        pub(crate) type Real = unsafe extern "C" fn($($ty),*) -> $ret;

        /// The real function in this copy of the library.
        #[inline]
        pub(crate) fn real(slot: Slot) -> Option<Real> {
            const NAME: &CStr = c_name(concat!(stringify!($name), "\0"));
            let address = REAL.get(Library::$lib, slot, NAME);
            // SAFETY: the library's function of this name has this signature, which is
            // what the table says; None is the null pointer.
            unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(address) }
        }

        pub(super) fn entry_of(slot: Slot) -> *mut c_void {
            const { assert!(SLOTS == 4) };
            // Opaque to the optimiser, which would make a table of them: addresses in a table
            // are relocated at the start of every process.
            use core::hint::black_box as computed;
            (match slot.0 {
                0 => computed(entry::<0> as *const ()),
                1 => computed(entry::<1> as *const ()),
                2 => computed(entry::<2> as *const ()),
                _ => computed(entry::<3> as *const ()),
            }) as *mut c_void
        }
    };
}

macro_rules! hook {
    (Libc $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = dlsym :: $shape:ident) => {
        /// Exported by `dlsym.rs`, in assembly.
        #[allow(non_snake_case, reason = "C spelling, where it is not Rust's")]
        pub(crate) mod $name {
            use super::*;
            pub(super) fn entry_of(_: Slot) -> *mut c_void {
                crate::dlsym::$shape as *const () as *mut c_void
            }
        }
    };
    // For few of its numbers we have something to say: for all others, and as if we were not there,
    // a jump to libc's.
    (Libc $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = numbered :: $shape:ident) => {
        #[allow(non_snake_case, reason = "C spelling")]
        pub(crate) mod $name {
            use super::*;
            const REAL: Cells = Cells::of(ASKED + Row::$name as usize);
            /// Where its address lies among those of the first copy.
            pub(super) const PLACE: usize = size_of::<*mut c_void>() * (ASKED + Row::$name as usize);
            pub(crate) type Real = unsafe extern "C" fn($($ty),*) -> $ret;

            pub(super) fn entry_of(_: Slot) -> *mut c_void {
                super::$name as *const () as *mut c_void
            }

            pub(super) unsafe extern "C" fn called($($arg : $ty),*) -> $ret {
                let address = real::following(REAL, stringify!($name).as_bytes());
                // SAFETY: a function of this name has this signature, which is what the table
                // says; None is the null pointer.
                match unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(address) } {
                    // SAFETY: the arguments are the caller's own, for the function of this name.
                    Some(real) => unsafe { alone::$shape(Call { slot: Slot(0), real } $(, $arg)*) },
                    None => real::not_in_libc(),
                }
            }
        }
        export_numbered!($name);
    };
    (Libc $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $module:ident :: $shape:ident) => {
        #[allow(non_snake_case, reason = "C spelling")]
        pub(crate) mod $name {
            use super::*;
            pub(crate) const REAL: Cells = Cells::of(ASKED + Row::$name as usize);
            pub(crate) type Real = unsafe extern "C" fn($($ty),*) -> $ret;

            /// The function that comes after ours: libc's, or another preload's.
            #[inline]
            pub(crate) fn real() -> Option<Real> {
                let address = real::following(REAL, stringify!($name).as_bytes());
                // SAFETY: a function of this name has this signature, which is what the table
                // says; None is the null pointer.
                unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(address) }
            }

            /// The same, where it is known already.
            #[inline]
            pub(super) fn known() -> Option<Real> {
                // SAFETY: as in `real`.
                unsafe { core::mem::transmute::<*mut c_void, Option<Real>>(REAL.known(Slot(0))) }
            }

            /// The first call. Apart, so that the others need not make room for what it takes.
            #[cold]
            #[inline(never)]
            pub(super) unsafe extern "C" fn first($($arg : $ty),*) -> $ret {
                match real() {
                    // SAFETY: the caller's own arguments.
                    Some(_) => unsafe { super::$name($($arg),*) },
                    None => real::not_in_libc(),
                }
            }

            pub(super) fn entry_of(_: Slot) -> *mut c_void {
                super::$name as *const () as *mut c_void
            }
        }
        // What is variadic in C takes its integers in the registers of a function that is not.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg : $ty),*) -> $ret {
            match $name::known() {
                // SAFETY: the arguments are the caller's own, for the function of this name.
                Some(real) => unsafe { $module::$shape(Call { slot: Slot(0), real } $(, $arg)*) },
                // SAFETY: as above.
                None => unsafe { $name::first($($arg),*) },
            }
        }
    };
    // Whoever decides by the caller is told of it: a stub puts the return address into the
    // register of an argument that the function has not.
    ($lib:ident $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = growth :: $shape:ident) => {
        #[allow(non_snake_case, reason = "C spelling")]
        pub(crate) mod $name {
            use super::*;
            copies!($lib $name ( $($ty),* ) -> $ret);

            unsafe extern "C" fn called<const SLOT: u8>($($arg : $ty,)* caller: usize) -> $ret {
                match real(Slot(SLOT)) {
                    // SAFETY: the arguments are the caller's own, for the function of this name.
                    Some(real) => unsafe {
                        growth::$shape(Call { slot: Slot(SLOT), real }, $($arg,)* caller)
                    },
                    None => Library::$lib.absent(),
                }
            }

            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            unsafe extern "C" fn entry<const SLOT: u8>() {
                core::arch::naked_asm!(
                    "endbr64",
                    concat!("mov ", next_register!($($arg)*), ", qword ptr [rsp]"),
                    "jmp {called}",
                    called = sym called::<SLOT>,
                )
            }

            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            unsafe extern "C" fn entry<const SLOT: u8>() {
                core::arch::naked_asm!(
                    "hint #34",
                    concat!("mov ", next_register!($($arg)*), ", x30"),
                    "b {called}",
                    called = sym called::<SLOT>,
                )
            }
        }
        export!($name);
    };
    ($lib:ident $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $module:ident :: $shape:ident) => {
        #[allow(non_snake_case, reason = "C spelling")]
        pub(crate) mod $name {
            use super::*;
            copies!($lib $name ( $($ty),* ) -> $ret);

            unsafe extern "C" fn entry<const SLOT: u8>($($arg : $ty),*) -> $ret {
                match real(Slot(SLOT)) {
                    // SAFETY: the arguments are the caller's own, for the function of this name.
                    Some(real) => unsafe { $module::$shape(Call { slot: Slot(SLOT), real } $(, $arg)*) },
                    None => Library::$lib.absent(),
                }
            }
        }
        export!($name);
    };
}

/// Real functions that the shapes ask, and nobody is answered for.
macro_rules! asked {
    ($( $lib:ident fn $name:ident ( $($ty:ty),* ) -> $ret:ty ; )*) => {
        $(
            #[expect(non_snake_case, reason = "C spelling")]
            pub(crate) mod $name {
                use super::*;
                const REAL: Cells = Cells::of(Asked::$name as usize);

                /// The real function in this copy of the library.
                #[inline]
                pub(crate) fn real(slot: Slot) -> Option<unsafe extern "C" fn($($ty),*) -> $ret> {
                    const NAME: &CStr = c_name(concat!(stringify!($name), "\0"));
                    let address = REAL.get(Library::$lib, slot, NAME);
                    // SAFETY: the library's function of this name has this signature, which is
                    // the vendor's; None is the null pointer.
                    unsafe {
                        core::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn($($ty),*) -> $ret>>(address)
                    }
                }
            }
        )*
        #[expect(non_camel_case_types, reason = "C spelling")]
        #[repr(u8)]
        enum Asked { $( $name ),* }

        const ASKED: usize = [$( stringify!($name) ),*].len();

        /// How many real functions there are to be known.
        pub(crate) const FUNCTIONS: usize = ROWS + ASKED;

        /// Whose function the one with this number is.
        fn asked_of(number: usize) -> Option<Library> {
            $( if number == Asked::$name as usize { return Some(Library::$lib); } )*
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

include!("symbols.rs");

asked! {
    Cuda fn cuArrayGetMemoryRequirements(*mut Requirements, CUarray, CUdevice) -> CUresult;
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
    Cuda fn cuGraphMemAllocNodeGetParams(CUgraphNode, *mut c_void) -> CUresult;
    Cuda fn cuGraphNodeGetType(CUgraphNode, *mut i32) -> CUresult;
    Cuda fn cuMemGetAllocationPropertiesFromHandle(*mut c_void, c_ulonglong) -> CUresult;
    Cuda fn cuMemGetAddressRange_v2(*mut CUdeviceptr, *mut usize, CUdeviceptr) -> CUresult;
    Cuda fn cuMemPoolGetAttribute(CUmemoryPool, i32, *mut c_void) -> CUresult;
    Cuda fn cuMipmappedArrayGetMemoryRequirements(*mut Requirements, CUarray, CUdevice) -> CUresult;
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

/// The row's name, as C writes it.
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
    row(NAMES.find(name)?)
}

/// All rows.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    (0..ROWS).filter_map(row)
}

/// What answers for a function that nobody has.
pub(crate) fn absent(library: Library) -> *mut c_void {
    extern "C" fn cuda() -> u32 {
        Library::Cuda.absent()
    }
    extern "C" fn nvml() -> u32 {
        Library::Nvml.absent()
    }
    (match library {
        Library::Nvml => nvml as *const (),
        _ => cuda as *const (),
    }) as *mut c_void
}
