//! Writes and reads the caller's out-parameters, in each integer type that an API reports in.
//! Touches: the caller's out-parameters.
//! Law: writes only where the caller has passed a place.

use gpuslice_config::words::units::Bytes;

/// Writes an amount to `place`, or the largest value that fits there.
///
/// # Safety
/// `place` is null, or the driver has just written a T there.
#[inline]
pub(crate) unsafe fn put<T: Amount>(place: *mut T, amount: Bytes) {
    if !place.is_null() {
        // SAFETY: not null, so the caller guarantees a T there.
        unsafe { place.write(T::at_most(amount)) };
    }
}

/// Reads an amount that the driver has written. None: the caller has passed null.
///
/// # Safety
/// `place` is null, or the driver has just written a T there.
#[inline]
pub(crate) unsafe fn got<T: Amount>(place: *const T) -> Option<u64> {
    if place.is_null() {
        return None;
    }
    // SAFETY: not null, so the caller guarantees a T there.
    Some(unsafe { place.read() }.into_u64())
}

/// Reads a handle that the driver has written. None: the caller has passed null, or the handle is
/// null.
///
/// # Safety
/// `place` is null, or the driver has just written a handle there.
pub(crate) unsafe fn got_handle(place: *const *mut core::ffi::c_void) -> Option<u64> {
    if place.is_null() {
        return None;
    }
    // SAFETY: not null, so the caller guarantees a handle there.
    let handle = unsafe { place.read() };
    (!handle.is_null()).then_some(handle as u64)
}

/// An integer in which an API reports an amount.
pub(crate) trait Amount: Copy {
    /// The amount, or the largest that fits.
    fn at_most(amount: Bytes) -> Self;
    fn into_u64(self) -> u64;
}

impl Amount for u32 {
    fn at_most(amount: Bytes) -> u32 {
        u32::try_from(amount.get()).unwrap_or(u32::MAX)
    }
    fn into_u64(self) -> u64 {
        u64::from(self)
    }
}

impl Amount for u64 {
    fn at_most(amount: Bytes) -> u64 {
        amount.get()
    }
    fn into_u64(self) -> u64 {
        self
    }
}

impl Amount for usize {
    fn at_most(amount: Bytes) -> usize {
        usize::try_from(amount.get()).unwrap_or(usize::MAX)
    }
    fn into_u64(self) -> u64 {
        self as u64
    }
}
