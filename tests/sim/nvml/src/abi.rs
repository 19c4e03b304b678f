//! The C interface: result codes, and the macro in which every exported function is written.
//! Touches: memory to which the caller's pointers point.

use std::ffi::{CStr, c_char};

pub(crate) type nvmlReturn_t = u32;
/// A device handle: a number that means something only to this library.
pub(crate) type nvmlDevice_t = usize;

pub(crate) const UNINITIALIZED: nvmlReturn_t = 1;
pub(crate) const INVALID_ARGUMENT: nvmlReturn_t = 2;
pub(crate) const NOT_SUPPORTED: nvmlReturn_t = 3;
pub(crate) const NO_PERMISSION: nvmlReturn_t = 4;
pub(crate) const NOT_FOUND: nvmlReturn_t = 6;
pub(crate) const FUNCTION_NOT_FOUND: nvmlReturn_t = 13;
pub(crate) const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
pub(crate) const DRIVER_NOT_LOADED: nvmlReturn_t = 9;
pub(crate) const GPU_IS_LOST: nvmlReturn_t = 15;
pub(crate) const INSUFFICIENT_RESOURCES: nvmlReturn_t = 23;
pub(crate) const ARGUMENT_VERSION_MISMATCH: nvmlReturn_t = 25;

/// The result of every function: success, or the vendor's code.
pub(crate) type Answer<T = ()> = Result<T, nvmlReturn_t>;

/// The code for a NULL pointer where none is allowed.
const NULL_POINTER: nvmlReturn_t = INVALID_ARGUMENT;

include!("../../edge.rs");

/// Writes a string if `len` bytes have room for it, and returns an error if not.
pub(crate) fn set_string(to: Out<u8>, len: u32, text: &str) -> Answer {
    if (len as usize) <= text.len() {
        return Err(INSUFFICIENT_SIZE);
    }
    set_text(to, i32::try_from(len).unwrap_or(i32::MAX), text)
}

/// Defines exported functions. The body returns an `Answer`; faults apply before it runs.
macro_rules! nvml {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> $crate::abi::nvmlReturn_t {
            let body = || -> $crate::abi::Answer { $body };
            match $crate::gate::enter(stringify!($name)).and_then(|()| body()) {
                Ok(()) => 0,
                Err(code) => code,
            }
        }
    )*};
}
