//! The parts of the vendor's binary interface that `check` uses.
//!
//! Touches: nothing. Only the code that uses [`call`] makes calls.

use std::ffi::c_int;

/// Calls a function that was looked up by name, and returns its int: `call!(symbol, value => type,
/// …)`.
macro_rules! call {
    ($symbol:expr $(, $value:expr => $type:ty)* $(,)?) => {{
        let symbol: std::ptr::NonNull<std::ffi::c_void> = $symbol;
        // SAFETY: the symbol was looked up by name, and the caller of this macro gives that name's
        // published prototype. A code address fits into a function pointer here.
        let function = unsafe {
            std::mem::transmute::<
                std::ptr::NonNull<std::ffi::c_void>,
                unsafe extern "C" fn($($type),*) -> std::ffi::c_int,
            >(symbol)
        };
        // SAFETY: every pointer argument points to a live local that is at least as large as the
        // prototype requires, and the driver keeps none of the pointers.
        unsafe { function($($value),*) }
    }};
}
pub(crate) use call;

/// `CU_DEVICE_ATTRIBUTE_INTEGRATED` and `cudaDevAttrIntegrated`.
pub(crate) const INTEGRATED: c_int = 18;

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM`.
pub(crate) const LEGACY_STREAM: u64 = 1;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
pub(crate) const PER_THREAD_STREAM: u64 = 2;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct NvmlMemory {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct NvmlMemoryV2 {
    pub(crate) version: u32,
    pub(crate) total: u64,
    pub(crate) reserved: u64,
    pub(crate) free: u64,
    pub(crate) used: u64,
}

/// `NVML_STRUCT_VERSION(Memory, 2)`.
pub(crate) const MEMORY_V2: u32 = 0x0200_0028;

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct NvmlAttributes {
    pub(crate) counts: [u32; 8],
    pub(crate) memory_size_mib: u64,
}

/// Room for `cudaDeviceProp` of any CUDA version (1032 bytes at most so far).
#[repr(C, align(8))]
pub(crate) struct Properties([u8; 4096]);

impl Properties {
    /// Returns a buffer of zeroes.
    pub(crate) const fn new() -> Properties {
        Properties([0; 4096])
    }

    /// Reads `totalGlobalMem`, which has had this offset since CUDA 11.
    pub(crate) fn total_global_mem(&self) -> Option<u64> {
        let (field, _) = self.0.get(288..)?.split_first_chunk()?;
        Some(u64::from_ne_bytes(*field))
    }

    /// Reads `integrated`, whose offset depends on the CUDA version.
    pub(crate) fn integrated(&self, offset: usize) -> Option<bool> {
        let (field, _) = self.0.get(offset..)?.split_first_chunk()?;
        Some(i32::from_ne_bytes(*field) != 0)
    }
}

/// Offset of `integrated` in `cudaDeviceProp` of CUDA 11 and 12.
pub(crate) const INTEGRATED_AT_11: usize = 396;
/// Offset of `integrated` in `cudaDeviceProp` of CUDA 13.
pub(crate) const INTEGRATED_AT_13: usize = 388;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structs_are_as_large_as_the_vendors() {
        assert_eq!(size_of::<NvmlMemory>(), 24);
        assert_eq!(size_of::<NvmlMemoryV2>(), 40);
        assert_eq!(size_of::<NvmlAttributes>(), 40);
    }
}
