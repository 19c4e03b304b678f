//! The properties of memory objects: memory of another API that a program imports.
//! Touches: the caller's list.

use core::ffi::c_void;

use crate::account::opencl::imports::External;
use crate::account::sharing;

/// `CL_MEM_DEVICE_HANDLE_LIST_KHR`: its devices follow, up to a 0.
const DEVICES: u64 = 0x2051;
/// The handle types of cl_khr_external_memory and its relatives.
const HANDLES: core::ops::RangeInclusive<u64> = 0x2060..=0x2070;
/// `CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR` and `CL_EXTERNAL_MEMORY_HANDLE_DMA_BUF_KHR`.
const DESCRIPTORS: [u64; 2] = [0x2060, 0x2067];

/// The memory that a list of properties imports. None: it imports none.
///
/// # Safety
/// `properties` is null, or a list of pairs that ends with 0.
pub(super) unsafe fn external(properties: *const u64) -> Option<External> {
    if properties.is_null() {
        return None;
    }
    let (mut imports, mut key, mut devices) = (false, None, core::ptr::null());
    let mut next = properties;
    loop {
        // SAFETY: the caller guarantees the list; its end was not reached yet.
        let name = unsafe { next.read() };
        let value = next.wrapping_add(1);
        next = next.wrapping_add(2);
        match name {
            0 => return imports.then_some(External { key, devices }),
            DEVICES => {
                devices = value.cast();
                next = value;
                // SAFETY: the caller guarantees a list of devices that ends with 0.
                while unsafe { next.read() } != 0 {
                    next = next.wrapping_add(1);
                }
                next = next.wrapping_add(1);
            }
            name if HANDLES.contains(&name) => {
                imports = true;
                if DESCRIPTORS.contains(&name) {
                    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
                    const DESCRIPTOR: i32 = 1;
                    // SAFETY: a property has a value.
                    let descriptor = unsafe { value.read() };
                    let place = usize::try_from(descriptor).unwrap_or(usize::MAX) as *const c_void;
                    // SAFETY: a descriptor is no pointer to a handle.
                    key = unsafe { sharing::key_of_shareable(DESCRIPTOR, place) };
                }
            }
            _ => {}
        }
    }
}
