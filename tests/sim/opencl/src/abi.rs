//! The C interface: codes, handles, and the macro in which the entries of the dispatch table are
//! written.
//! Touches: memory to which the caller's pointers point.

use std::ffi::c_void;

pub(crate) const SUCCESS: i32 = 0;
pub(crate) const DEVICE_NOT_FOUND: i32 = -1;
pub(crate) const MEM_OBJECT_ALLOCATION_FAILURE: i32 = -4;
pub(crate) const INVALID_VALUE: i32 = -30;
pub(crate) const INVALID_CONTEXT: i32 = -34;
pub(crate) const INVALID_MEM_OBJECT: i32 = -38;
pub(crate) const INVALID_IMAGE_FORMAT_DESCRIPTOR: i32 = -39;
pub(crate) const INVALID_IMAGE_SIZE: i32 = -40;
pub(crate) const INVALID_OPERATION: i32 = -59;
pub(crate) const INVALID_BUFFER_SIZE: i32 = -61;

/// One entry of the dispatch table: its index in `cl_icd.h`, its name, its function.
pub(crate) type Entry = (usize, &'static str, *const ());

/// Defines functions of the dispatch table, and the list of them.
macro_rules! entries {
    ($($index:literal fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $answer:ty)? $body:block)*) => {
        $( extern "C" fn $name($($arg: $type),*) $(-> $answer)? $body )*
        pub(crate) const ENTRIES: &[$crate::abi::Entry] =
            &[$( ($index, stringify!($name), $name as *const ()) ),*];
    };
}

/// Writes a value to a place of the caller's, unless that is null.
pub(crate) fn set<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the C contract of every out-parameter: not null, then writable for one T.
        unsafe { place.write_unaligned(value) };
    }
}

/// The element of an array of the caller's.
pub(crate) fn at<T: Copy>(array: *const T, n: usize) -> T {
    // SAFETY: the C contract of every array parameter: readable for the number of elements that the
    // caller passes.
    unsafe { array.wrapping_add(n).read_unaligned() }
}

/// Answers a query: writes `bytes` where the caller has room for them.
pub(crate) fn reply(bytes: &[u8], size: usize, value: *mut c_void, size_ret: *mut usize) -> i32 {
    if !value.is_null() {
        if size < bytes.len() {
            return INVALID_VALUE;
        }
        for (n, byte) in bytes.iter().enumerate() {
            set(value.cast::<u8>().wrapping_add(n), *byte);
        }
    }
    set(size_ret, bytes.len());
    SUCCESS
}

/// A text with its terminating NUL.
pub(crate) fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), b"\0"].concat()
}

/// The bytes of several handles.
pub(crate) fn handles(handles: impl Iterator<Item = usize>) -> Vec<u8> {
    handles.flat_map(usize::to_ne_bytes).collect()
}

/// The object behind a handle. None: null.
pub(crate) fn object<T>(handle: usize) -> Option<&'static T> {
    // SAFETY: the C contract of every handle: null, or an object of this library that is alive.
    unsafe { (handle as *const T).as_ref() }
}

/// A new object's handle.
pub(crate) fn handle<T>(object: T) -> usize {
    Box::into_raw(Box::new(object)) as usize
}

/// Deletes an object.
pub(crate) fn delete<T>(handle: usize) {
    // SAFETY: the last reference to an object that `handle` has made.
    drop(unsafe { Box::from_raw(handle as *mut T) });
}
