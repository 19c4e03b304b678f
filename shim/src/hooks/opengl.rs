//! OpenGL: the memory that `GL_NVX_gpu_memory_info` reports.
//! Touches: the real functions, then the caller's values; what `answer::vulkan` touches.
//! Law: nothing is refused, because few programs check for GL_OUT_OF_MEMORY. The program's GL error
//! state stays as it is.

use core::ffi::{CStr, c_char, c_void};

use gpuslice_config::answer::view::MemoryView;
use gpuslice_config::words::units::Bytes;

use crate::answer::vulkan::{self, Identity};
use crate::real::opengl::{self, Door, Function};
use crate::slice;
use crate::slice::loaded_slice::LoadedSlice;

/// `GPU_MEMORY_INFO_DEDICATED_VIDMEM_NVX`: the card's memory, in KiB.
const DEDICATED: u32 = 0x9047;
/// `GPU_MEMORY_INFO_TOTAL_AVAILABLE_MEMORY_NVX`: the dedicated memory and the memory of the host that the
/// card can use.
const TOTAL: u32 = 0x9048;
/// `GPU_MEMORY_INFO_CURRENT_AVAILABLE_VIDMEM_NVX`: the free memory. 0x904A and 0x904B count evictions
/// and are not changed.
const AVAILABLE: u32 = 0x9049;
/// `GL_DEVICE_UUID_EXT`.
const DEVICE_UUID: u32 = 0x9597;
/// `GL_VERSION`.
const VERSION: u32 = 0x1F02;
/// `GL_EXTENSIONS`.
const EXTENSIONS: u32 = 0x1F03;
/// `GL_NUM_EXTENSIONS`.
const NUM_EXTENSIONS: u32 = 0x821D;

/// A type in which OpenGL reports numbers.
trait Number: Copy {
    /// The query that reports numbers of this type.
    const QUERY: Function;
    /// The nearest number of this type.
    fn of(kib: u64) -> Self;
}

impl Number for i32 {
    const QUERY: Function = Function::Integers;
    fn of(kib: u64) -> i32 {
        i32::try_from(kib).unwrap_or(i32::MAX)
    }
}

impl Number for i64 {
    const QUERY: Function = Function::Integers64;
    fn of(kib: u64) -> i64 {
        i64::try_from(kib).unwrap_or(i64::MAX)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the driver's numbers have it, too"
)]
impl Number for f32 {
    const QUERY: Function = Function::Floats;
    fn of(kib: u64) -> f32 {
        kib as f32
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the driver's numbers have it, too"
)]
impl Number for f64 {
    const QUERY: Function = Function::Doubles;
    fn of(kib: u64) -> f64 {
        kib as f64
    }
}

/// Our function for one of the driver's.
pub(crate) fn entry<const DOOR: usize>(function: Function) -> Option<*mut c_void> {
    use core::hint::black_box as computed;
    let ours = match function {
        Function::Integers => computed(query::<i32, DOOR> as *const ()),
        Function::Integers64 => computed(query::<i64, DOOR> as *const ()),
        Function::Floats => computed(query::<f32, DOOR> as *const ()),
        Function::Doubles => computed(query::<f64, DOOR> as *const ()),
        Function::Main | Function::GetProcAddress => return None,
    };
    Some(ours as *mut c_void)
}

/// `glGetIntegerv`, `glGetInteger64v`, `glGetFloatv` and `glGetDoublev`.
unsafe extern "C" fn query<T: Number, const DOOR: usize>(name: u32, values: *mut T) {
    let door = Door::numbered(DOOR);
    // SAFETY: the query reports numbers of this type.
    let real = unsafe { opengl::get::<T>(door, T::QUERY) };
    let Some(real) = real else { return };
    // SAFETY: the caller guarantees the function's contract.
    unsafe { real(name, values) };
    if let Some(kib) = slices_own(door, name) {
        // SAFETY: the function's contract: room for one value.
        unsafe { values.write(T::of(kib)) };
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

/// The uuid of the context's device. OpenGL reports it only with GL_EXT_memory_object; without that, a
/// slice that lists one device is taken to be about this one.
fn uuid(door: Door, slice: &LoadedSlice) -> Option<[u8; 16]> {
    if !has_memory_object(door) {
        return slice.only().map(|only| only.bytes);
    }
    type GetBytes = unsafe extern "C" fn(u32, u32, *mut u8);
    // SAFETY: the function of this name has this type.
    let ask = unsafe { opengl::other::<GetBytes>(door, c"glGetUnsignedBytei_vEXT") }?;
    let mut bytes = [0; 16];
    // SAFETY: GL_EXT_memory_object's contract: room for 16 bytes; the context is current.
    unsafe { ask(DEVICE_UUID, 0, bytes.as_mut_ptr()) };
    Some(bytes)
}

/// Whether the context has GL_EXT_memory_object. A query that a context does not know would leave an
/// error, which the program would find.
fn has_memory_object(door: Door) -> bool {
    const NAME: &[u8] = b"GL_EXT_memory_object";
    type GetString = unsafe extern "C" fn(u32) -> *const c_char;
    type GetStringAt = unsafe extern "C" fn(u32, u32) -> *const c_char;
    // SAFETY: the function of this name has this type.
    let Some(get) = (unsafe { opengl::other::<GetString>(door, c"glGetString") }) else {
        return false;
    };
    let text = |name: *const c_char| {
        // SAFETY: OpenGL returns null or a C string that lives as long as the context.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes())
    };
    // SAFETY: glGetString's contract; the context is current.
    let version = text(unsafe { get(VERSION) }).unwrap_or_default();
    let version = version.strip_prefix(b"OpenGL ES ").unwrap_or(version);
    if matches!(version.first(), None | Some(b'0'..=b'2')) {
        // SAFETY: as above; contexts before version 3 have one list.
        let list = text(unsafe { get(EXTENSIONS) }).unwrap_or_default();
        return list.split(|byte| *byte == b' ').any(|name| name == NAME);
    }
    // SAFETY: the function of this name has this type.
    let get = unsafe { opengl::other::<GetStringAt>(door, c"glGetStringi") };
    // SAFETY: the function reports integers of 32 bits.
    let count = unsafe { opengl::get::<i32>(door, Function::Integers) };
    let (Some(get), Some(count_of)) = (get, count) else {
        return false;
    };
    let mut count = 0i32;
    // SAFETY: glGetIntegerv's contract: room for one value.
    unsafe { count_of(NUM_EXTENSIONS, &raw mut count) };
    (0..u32::try_from(count).unwrap_or(0)).any(|at| {
        // SAFETY: glGetStringi's contract: a number below the count.
        text(unsafe { get(EXTENSIONS, at) }) == Some(NAME)
    })
}
