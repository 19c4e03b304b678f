//! The C interface: result codes, out-pointers that refuse NULL, and the macro in which every
//! exported function is written.
//! Touches: memory to which the caller's pointers point.

use std::ffi::{CStr, c_char};

pub(crate) type CUresult = u32;
pub(crate) type CUdevice = i32;
pub(crate) type CUdeviceptr = u64;
/// A context, stream, event, pool or array: an address that means something only to this library.
pub(crate) type Handle = usize;

pub(crate) const INVALID_VALUE: CUresult = 1;
pub(crate) const OUT_OF_MEMORY: CUresult = 2;
pub(crate) const NOT_INITIALIZED: CUresult = 3;
pub(crate) const NO_DEVICE: CUresult = 100;
pub(crate) const INVALID_DEVICE: CUresult = 101;
pub(crate) const INVALID_CONTEXT: CUresult = 201;
pub(crate) const INVALID_HANDLE: CUresult = 400;
pub(crate) const ILLEGAL_STATE: CUresult = 401;
pub(crate) const STREAM_CAPTURE_UNSUPPORTED: CUresult = 900;
pub(crate) const STREAM_CAPTURE_INVALIDATED: CUresult = 901;
pub(crate) const STREAM_CAPTURE_WRONG_THREAD: CUresult = 908;
pub(crate) const NOT_FOUND: CUresult = 500;
pub(crate) const CONTEXT_IS_DESTROYED: CUresult = 709;
pub(crate) const NOT_SUPPORTED: CUresult = 801;
pub(crate) const UNKNOWN: CUresult = 999;

/// The result of every function: success, or the vendor's code.
pub(crate) type Answer<T = ()> = Result<T, CUresult>;

/// The code for a NULL pointer where none is allowed.
const NULL_POINTER: CUresult = INVALID_VALUE;

include!("../../edge.rs");

/// Defines exported functions. The body returns an `Answer`; faults apply before it runs.
macro_rules! cuda {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> $crate::abi::CUresult {
            let body = || -> $crate::abi::Answer { $body };
            match $crate::gate::enter(stringify!($name)).and_then(|()| body()) {
                Ok(()) => 0,
                Err(code) => code,
            }
        }
    )*};
}
