//! The simulated Vulkan driver. It has the SONAME of NVIDIA's, reports the cards of the simulated
//! machine, and takes their memory. It computes nothing: every object but memory is a number.
//! Touches: the simulated machine. Never: stdout, a real device, the real host's memory numbers.
#![allow(non_snake_case, reason = "the vendor's names")]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a simulator with C's types at its edge; it is never shipped"
)]
#![expect(clippy::vec_box, reason = "the address of a box is its handle")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "each function reads and writes structs of its caller"
)]

mod device;
mod instance;
mod memory;
mod names;
mod physical;

use ash::vk;
use std::ffi::{CStr, c_char};

/// The address of a function that a loader or a program asks for by name.
type Found = vk::PFN_vkVoidFunction;

/// The version of the loader's interface that NVIDIA's driver has, too.
const INTERFACE: u32 = 5;

/// The first word of every dispatchable object, which the loader replaces.
const LOADER_MAGIC: u64 = 0x01CD_C0DE;

/// Agrees on a version of the interface between loader and driver.
///
/// # Safety
/// The loader passes a valid place, here and in the functions below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vk_icdNegotiateLoaderICDInterfaceVersion(version: *mut u32) -> vk::Result {
    // SAFETY: the loader's contract.
    unsafe { version.write(version.read().min(INTERFACE)) };
    vk::Result::SUCCESS
}

/// The driver's only way to its functions.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vk_icdGetInstanceProcAddr(
    instance: vk::Instance,
    name: *const c_char,
) -> Found {
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    names::of_instance(instance, name)
}

/// The functions of physical devices, for loaders that look them up apart.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vk_icdGetPhysicalDeviceProcAddr(
    _instance: vk::Instance,
    name: *const c_char,
) -> Found {
    // SAFETY: the caller's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    names::of_physical_device(name)
}

/// Writes as much of a list as the caller has room for, as every enumeration of Vulkan does.
///
/// # Safety
/// `count` is valid, and `room` is null or has room for `count` elements.
unsafe fn enumerate<T: Copy>(list: &[T], count: *mut u32, room: *mut T) -> vk::Result {
    // SAFETY: the caller's contract.
    unsafe {
        if room.is_null() {
            count.write(list.len() as u32);
            return vk::Result::SUCCESS;
        }
        let written = list.len().min(count.read() as usize);
        room.copy_from_nonoverlapping(list.as_ptr(), written);
        count.write(written as u32);
        match written == list.len() {
            true => vk::Result::SUCCESS,
            false => vk::Result::INCOMPLETE,
        }
    }
}

/// Visits the structs that are chained to one of the caller's.
///
/// # Safety
/// `next` is null or the start of a valid chain.
unsafe fn chain(next: *mut std::ffi::c_void, mut visit: impl FnMut(&mut vk::BaseOutStructure<'_>)) {
    let mut at = next.cast::<vk::BaseOutStructure<'_>>();
    // SAFETY: the caller's contract.
    while let Some(link) = unsafe { at.as_mut() } {
        visit(link);
        at = link.p_next;
    }
}

/// A text in one of Vulkan's fixed arrays.
fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from.cast_signed() as c_char;
    }
    out
}
