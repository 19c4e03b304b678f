//! `cudaDeviceProp`: changes the total memory and `integrated`, where the layout is known.
//! Touches: the real function, then two fields of the caller's struct.

use crate::answer::{device, driver_memory};
use crate::hooks::cuda::info;
use crate::log::Piece::{Dec, Str};
use crate::log::counters;
use crate::real::abi::{SUCCESS, cudaDeviceProp, cudaError_t};
use crate::real::copies::{self, CopyId};
use crate::real::functions::{self, Call};
use crate::slice;

type GetProperties = unsafe extern "C" fn(*mut cudaDeviceProp, i32) -> cudaError_t;

/// The offsets of the two fields.
struct Layout {
    total_global_mem: usize,
    integrated: usize,
}

/// CUDA 11 (728 bytes), and the struct that CUDA 12 calls `_v2` (1032 bytes).
const UNTIL_12: Layout = Layout {
    total_global_mem: 288,
    integrated: 396,
};

/// CUDA 13 (1008 bytes).
const FROM_13: Layout = Layout {
    total_global_mem: 288,
    integrated: 388,
};

/// `cudaGetDeviceProperties`.
///
/// # Safety
/// The caller guarantees the vendor function's contract.
pub(crate) unsafe fn device_properties(
    call: Call<GetProperties>,
    prop: *mut cudaDeviceProp,
    device: i32,
) -> cudaError_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(prop, device) };
    if code == SUCCESS && !prop.is_null() && slice::current().is_some() {
        let layout = match version(call.copy) {
            11_000..13_000 => UNTIL_12,
            13_000..14_000 => FROM_13,
            other => return unknown(code, other),
        };
        // SAFETY: cudaSuccess, so the runtime has written a struct of this layout.
        unsafe { show(&layout, prop, device) };
    }
    code
}

/// `cudaGetDeviceProperties_v2`, which only CUDA 12 has.
///
/// # Safety
/// The caller guarantees the vendor function's contract.
pub(crate) unsafe fn device_properties_v2(
    call: Call<GetProperties>,
    prop: *mut cudaDeviceProp,
    device: i32,
) -> cudaError_t {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(prop, device) };
    if code == SUCCESS && !prop.is_null() && slice::current().is_some() {
        let layout = match version(call.copy) {
            12_000..13_000 => UNTIL_12,
            other => return unknown(code, other),
        };
        // SAFETY: cudaSuccess, so the runtime has written a struct of this layout.
        unsafe { show(&layout, prop, device) };
    }
    code
}

#[cold]
fn unknown(code: cudaError_t, version: i32) -> cudaError_t {
    let version = u64::try_from(version).unwrap_or(0);
    counters::LAYOUT.warn(&[
        Str("the layout of cudaDeviceProp in version "),
        Dec(version),
        Str(" is not known"),
    ]);
    code
}

/// The runtime's version: 12040 for 12.4.
pub(crate) fn version(copy: CopyId) -> i32 {
    let mut version = 0;
    if let Some(ask) = functions::cudaRuntimeGetVersion::real(copy) {
        // SAFETY: cudaRuntimeGetVersion's contract: it writes to locals of its types.
        let _ = unsafe { ask(&raw mut version) };
    }
    version
}

/// # Safety
/// The runtime has written a struct of this layout at `prop`.
unsafe fn show(layout: &Layout, prop: *mut cudaDeviceProp, dev: i32) {
    // The runtime's value may already be our answer, so the driver is queried.
    let Some(copy) = copies::any_driver() else {
        return;
    };
    let ordinal = device::ordinal(dev);
    let said = ordinal.and_then(|ordinal| driver_memory::total(copy, ordinal));
    let device = slice::current()
        .zip(ordinal)
        .and_then(|(slice, ordinal)| Some((slice, device::cuda(slice, copy, ordinal)?)));
    let (Some(said), Some((slice, device))) = (said, device) else {
        return;
    };
    let total = info::total_shown(slice, &device, said);
    let place = prop
        .wrapping_byte_add(layout.total_global_mem)
        .cast::<u64>();
    // SAFETY: the caller guarantees this layout, and the field lies at this offset.
    unsafe { place.write_unaligned(total.get()) };
    if info::hidden(copy, dev) {
        let place = prop.wrapping_byte_add(layout.integrated).cast::<i32>();
        // SAFETY: the caller guarantees this layout, and the field lies at this offset.
        unsafe { place.write_unaligned(0) };
    }
}
