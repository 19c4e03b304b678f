//! Calls the dynamic linker directly, because `check` compares the ways to look up a function.
//! Touches: the dynamic linker. A library that it opens is never closed.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::NonNull;

/// The address of a driver function or of any other symbol.
pub(crate) type Symbol = NonNull<c_void>;

/// A loaded library, or one of the two pseudo-handles RTLD_DEFAULT and RTLD_NEXT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle(*mut c_void);

/// RTLD_DEFAULT: every library that the caller sees, in load order.
pub(crate) const DEFAULT: Handle = Handle(libc::RTLD_DEFAULT);
/// RTLD_NEXT: every library after the caller's own.
pub(crate) const NEXT: Handle = Handle(libc::RTLD_NEXT);

impl Handle {
    /// Returns the raw handle, for another function that calls dlsym.
    pub(crate) fn raw(self) -> *mut c_void {
        self.0
    }
}

/// Loads `file`.
pub(crate) fn open(file: &CStr, flags: c_int) -> Result<Handle, String> {
    // SAFETY: the name is a C string. The library's constructors run, as in every program that
    // loads it.
    let handle = unsafe { libc::dlopen(file.as_ptr(), flags) };
    opened(handle)
}

/// Loads `file` and its dependencies into a new namespace, as copies that no other code uses.
pub(crate) fn open_apart(file: &CStr) -> Result<Handle, String> {
    // SAFETY: as for dlopen; the C library creates the namespace.
    let handle = unsafe { libc::dlmopen(libc::LM_ID_NEWLM, file.as_ptr(), libc::RTLD_NOW) };
    opened(handle)
}

fn opened(handle: *mut c_void) -> Result<Handle, String> {
    if !handle.is_null() {
        return Ok(Handle(handle));
    }
    // SAFETY: dlerror returns null, or a text that stays until the next dl* call of this thread.
    let error = unsafe { libc::dlerror() };
    if error.is_null() {
        return Err("the dynamic linker gave no reason".to_owned());
    }
    // SAFETY: the pointer is not null, so it is that text, which is a C string.
    let error = unsafe { CStr::from_ptr(error) };
    Err(error.to_string_lossy().into_owned())
}

/// Looks `name` up as this program's own code would.
#[expect(
    clippy::disallowed_methods,
    reason = "this is a program under test: which answer it gets is the question"
)]
pub(crate) fn symbol(place: Handle, name: &CStr) -> Option<Symbol> {
    // SAFETY: `place` is RTLD_DEFAULT, RTLD_NEXT or a handle that was never closed.
    NonNull::new(unsafe { libc::dlsym(place.raw(), name.as_ptr()) })
}

/// Converts a name to a C string. Returns None if it contains a zero byte, which no symbol name
/// does.
pub(crate) fn c_name(name: &str) -> Option<CString> {
    CString::new(name).ok()
}
