//! OpenGL: the memory that `GL_NVX_gpu_memory_info` reports.
//! Touches: the real functions, then the caller's values.
//! Law: nothing is refused. OpenGL creates buffers without an answer that a program could act on, so a
//! refusal would end it.

use core::ffi::c_void;

use gpuslice_config::answer::view::MemoryView;
use gpuslice_config::words::units::Bytes;

use crate::answer::vulkan::{self, Identity};
use crate::real::opengl::{self, Door, Function};
use crate::slice;
use crate::slice::loaded_slice::LoadedSlice;

/// `GPU_MEMORY_INFO_DEDICATED_VIDMEM_NVX`: the card's memory, in KiB.
const DEDICATED: u32 = 0x9047;
/// `GPU_MEMORY_INFO_TOTAL_AVAILABLE_MEMORY_NVX`: that, and memory of the host for the card.
const TOTAL: u32 = 0x9048;
/// `GPU_MEMORY_INFO_CURRENT_AVAILABLE_VIDMEM_NVX`: the free memory. Two further values count what the
/// driver has evicted, which is not the slice's.
const AVAILABLE: u32 = 0x9049;
/// `GL_DEVICE_UUID_EXT`.
const DEVICE_UUID: u32 = 0x9597;

/// Our function for one of the driver's.
pub(crate) fn entry(door: Door, function: Function) -> Option<*mut c_void> {
    use core::hint::black_box as computed;
    let ours = match (door, function) {
        (Door::Egl, Function::Integers) => computed(integers::<0> as *const ()),
        (Door::Glx, Function::Integers) => computed(integers::<1> as *const ()),
        (Door::Egl, Function::Integers64) => computed(integers_64::<0> as *const ()),
        (Door::Glx, Function::Integers64) => computed(integers_64::<1> as *const ()),
        (Door::Egl, Function::Floats) => computed(floats::<0> as *const ()),
        (Door::Glx, Function::Floats) => computed(floats::<1> as *const ()),
        _ => return None,
    };
    Some(ours as *mut c_void)
}

const fn door(number: usize) -> Door {
    match number {
        0 => Door::Egl,
        _ => Door::Glx,
    }
}

/// `glGetIntegerv`.
unsafe extern "C" fn integers<const DOOR: usize>(name: u32, values: *mut i32) {
    // SAFETY: the function reports integers of 32 bits.
    let real = unsafe { opengl::get::<i32>(door(DOOR), Function::Integers) };
    let Some(real) = real else { return };
    // SAFETY: the caller guarantees the function's contract.
    unsafe { real(name, values) };
    if let Some(kib) = slices_own(door(DOOR), name) {
        // SAFETY: the function's contract: room for one value.
        unsafe { values.write(i32::try_from(kib).unwrap_or(i32::MAX)) };
    }
}

/// `glGetInteger64v`.
unsafe extern "C" fn integers_64<const DOOR: usize>(name: u32, values: *mut i64) {
    // SAFETY: the function reports integers of 64 bits.
    let real = unsafe { opengl::get::<i64>(door(DOOR), Function::Integers64) };
    let Some(real) = real else { return };
    // SAFETY: the caller guarantees the function's contract.
    unsafe { real(name, values) };
    if let Some(kib) = slices_own(door(DOOR), name) {
        // SAFETY: the function's contract: room for one value.
        unsafe { values.write(i64::try_from(kib).unwrap_or(i64::MAX)) };
    }
}

/// `glGetFloatv`.
unsafe extern "C" fn floats<const DOOR: usize>(name: u32, values: *mut f32) {
    // SAFETY: the function reports numbers of this type.
    let real = unsafe { opengl::get::<f32>(door(DOOR), Function::Floats) };
    let Some(real) = real else { return };
    // SAFETY: the caller guarantees the function's contract.
    unsafe { real(name, values) };
    if let Some(kib) = slices_own(door(DOOR), name) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a float has 24 bits, as the driver's has"
        )]
        // SAFETY: the function's contract: room for one value.
        unsafe {
            values.write(kib as f32)
        };
    }
}

/// The slice's value in KiB. None: the driver's own is right.
#[inline]
fn slices_own(door: Door, name: u32) -> Option<u64> {
    match name {
        DEDICATED..=AVAILABLE => value(door, name),
        _ => None,
    }
}

#[cold]
#[inline(never)]
fn value(door: Door, name: u32) -> Option<u64> {
    let view = view(door)?;
    let bytes = match name {
        AVAILABLE => view.free,
        DEDICATED | TOTAL => view.total,
        _ => return None,
    };
    Some(bytes.get() >> 10)
}

fn view(door: Door) -> Option<MemoryView> {
    let slice = slice::current()?;
    // SAFETY: the function reports integers of 32 bits.
    let real = unsafe { opengl::get::<i32>(door, Function::Integers) }?;
    // A driver without the extension leaves the value.
    let [total, free] = [DEDICATED, AVAILABLE].map(|name| {
        let mut kib = -1i32;
        // SAFETY: the program has just asked for such a value, so its context is current.
        unsafe { real(name, &raw mut kib) };
        u64::try_from(kib).ok().map(|kib| Bytes::new(kib << 10))
    });
    let (total, free) = (total?, free?);
    let identity = Identity::of_card(uuid(door, slice)?);
    let device = vulkan::device(slice, identity)?;
    // A driver whose card has no memory of its own may report 0.
    let total = match total.get() {
        0 => Bytes::new(u64::MAX),
        _ => total,
    };
    vulkan::view(slice, &device, identity, total, Some(free))
}

/// The uuid of the context's device. OpenGL tells it only by an extension, so a slice of one device is
/// not asked for it.
fn uuid(door: Door, slice: &LoadedSlice) -> Option<[u8; 16]> {
    if let Some(only) = slice.only() {
        return Some(only.bytes);
    }
    let ask = opengl::bytes(door)?;
    let mut bytes = [0; 16];
    // SAFETY: GL_EXT_memory_object's contract: room for 16 bytes; the context is current.
    unsafe { ask(DEVICE_UUID, 0, bytes.as_mut_ptr()) };
    (bytes != [0; 16]).then_some(bytes)
}
