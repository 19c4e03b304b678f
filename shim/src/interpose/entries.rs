//! The entry points of each line of `symbols.rs`: the exported symbol, and for each copy of its
//! library a function that calls the hook.
//! Touches: `symbols.rs`, by inclusion.
//! Law: no name is written down twice: a new line in `symbols.rs` is a new hook here.

use core::ffi::{c_char, c_ulonglong, c_void};

use crate::hooks::{cuda, libc, nvml, runtime};
use crate::interpose;
use crate::real::abi::*;
use crate::real::copies::{CopyId, Library, MOST_COPIES};
use crate::real::errno;
use crate::real::functions::{self, Call, INTERNAL, Row};

macro_rules! symbols {
    ($( $lib:ident fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $($hook:ident)::+
        $(, as $base:literal since $since:literal $($per_thread:ident)? )? ; )*) => {
        $( hook!($lib $name ( $($arg : $ty),* ) -> $ret = $($hook)::+); )*

        /// The entry point for the row and this copy of its library.
        pub(crate) fn entry(row: Row, copy: CopyId) -> *mut c_void {
            match row { $( Row::$name => $name::entry_of(copy) ),* }
        }
    };
}

/// The entry points of a driver library's function, one for each copy of the library; each is an
/// instance of the `entry` beside this.
macro_rules! entries {
    () => {
        pub(crate) fn entry_of(copy: CopyId) -> *mut c_void {
            const { assert!(MOST_COPIES == 4) };
            // Opaque to the optimiser, which would build a table of them: addresses in a table are
            // relocated at the start of every process.
            use core::hint::black_box as computed;
            (match copy.0 {
                0 => computed(entry::<0> as *const ()),
                1 => computed(entry::<1> as *const ()),
                2 => computed(entry::<2> as *const ()),
                _ => computed(entry::<3> as *const ()),
            }) as *mut c_void
        }
    };
}

/// The exported symbol. Only the runtime's symbols have versions, by which the loader would bind each
/// caller to a runtime of its own.
macro_rules! export_of {
    (Cudart $name:ident) => {
        export_versioned!($name);
    };
    ($lib:ident $name:ident) => {
        export!($name);
    };
}

macro_rules! hook {
    (Libc $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = interpose :: $module:ident :: $hook:ident) => {
        /// Exported by the hook's own file, in assembly.
        #[allow(non_snake_case, reason = "C spelling, where it is not Rust's")]
        pub(crate) mod $name {
            use super::*;
            pub(crate) fn entry_of(_: CopyId) -> *mut c_void {
                crate::interpose::$module::$hook as *const () as *mut c_void
            }
        }
    };
    // The hook handles only a few of its numbers. For all others it jumps to libc's function, as if
    // this library were absent.
    (Libc $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = numbered :: $hook:ident) => {
        #[allow(non_snake_case, reason = "C spelling")]
        pub(crate) mod $name {
            use super::*;
            /// The offset of its address among those of the first copy.
            pub(crate) const PLACE: usize = size_of::<*mut c_void>() * (INTERNAL + Row::$name as usize);

            pub(crate) fn entry_of(_: CopyId) -> *mut c_void {
                super::$name as *const () as *mut c_void
            }

            pub(crate) unsafe extern "C" fn called($($arg : $ty),*) -> $ret {
                match functions::$name::real() {
                    // SAFETY: the caller guarantees the contract of the function of this name, which is the
                    // hook's; the real function has this signature, by `symbols.rs`.
                    Some(real) => unsafe { libc::isolation::$hook(Call { copy: CopyId(0), real } $(, $arg)*) },
                    None => errno::not_in_libc(),
                }
            }
        }
        export_numbered!($name);
    };
    (Libc $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $($hook:ident)::+) => {
        #[allow(non_snake_case, reason = "C spelling")]
        pub(crate) mod $name {
            use super::*;
            /// The first call. A function of its own, so that later calls do not reserve stack for
            /// it.
            #[cold]
            #[inline(never)]
            pub(crate) unsafe extern "C" fn first($($arg : $ty),*) -> $ret {
                match functions::$name::real() {
                    // SAFETY: the caller guarantees the contract of the function of this name. The
                    // real function is known now, so the exported function does not come back here.
                    Some(_) => unsafe { super::$name($($arg),*) },
                    None => errno::not_in_libc(),
                }
            }

            pub(crate) fn entry_of(_: CopyId) -> *mut c_void {
                super::$name as *const () as *mut c_void
            }
        }
        // A function that is variadic in C takes its integers in the same registers as one that is
        // not.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg : $ty),*) -> $ret {
            match functions::$name::known() {
                // SAFETY: the caller guarantees the contract of the function of this name, which is the
                    // hook's; the real function has this signature, by `symbols.rs`.
                Some(real) => unsafe { $($hook)::+(Call { copy: CopyId(0), real } $(, $arg)*) },
                // SAFETY: the caller guarantees the contract of the function of this name.
                None => unsafe { $name::first($($arg),*) },
            }
        }
    };
    // Hooks that decide by the caller: a stub puts the return address into the register of the
    // first argument that the function does not have.
    ($lib:ident $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = cuda :: growth :: $hook:ident) => {
        #[allow(non_snake_case, reason = "C spelling")]
        pub(crate) mod $name {
            use super::*;
            use functions::$name::real;
            entries!();

            unsafe extern "C" fn called<const COPY: u8>($($arg : $ty,)* caller: usize) -> $ret {
                match real(CopyId(COPY)) {
                    // SAFETY: the caller guarantees the contract of the function of this name, which is the
                    // hook's; the real function has this signature, by `symbols.rs`.
                    Some(real) => unsafe {
                        cuda::growth::$hook(Call { copy: CopyId(COPY), real }, $($arg,)* caller)
                    },
                    None => Library::$lib.absent(),
                }
            }

            #[cfg(target_arch = "x86_64")]
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn entry<const COPY: u8>() {
                core::arch::naked_asm!(
                    "endbr64",
                    concat!("mov ", next_register!($($arg)*), ", qword ptr [rsp]"),
                    "jmp {called}",
                    called = sym called::<COPY>,
                )
            }

            #[cfg(target_arch = "aarch64")]
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn entry<const COPY: u8>() {
                core::arch::naked_asm!(
                    "hint #34",
                    concat!("mov ", next_register!($($arg)*), ", x30"),
                    "b {called}",
                    called = sym called::<COPY>,
                )
            }
        }
        export_of!($lib $name);
    };
    ($lib:ident $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $($hook:ident)::+) => {
        #[allow(non_snake_case, reason = "C spelling")]
        pub(crate) mod $name {
            use super::*;
            use functions::$name::real;
            entries!();

            pub(super) unsafe extern "C" fn entry<const COPY: u8>($($arg : $ty),*) -> $ret {
                match real(CopyId(COPY)) {
                    // SAFETY: the caller guarantees the contract of the function of this name, which is the
                    // hook's; the real function has this signature, by `symbols.rs`.
                    Some(real) => unsafe { $($hook)::+(Call { copy: CopyId(COPY), real } $(, $arg)*) },
                    None => Library::$lib.absent(),
                }
            }
        }
        export_of!($lib $name);
    };
}

include!("../symbols.rs");

/// The entry point for a function that no loaded library defines.
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
