//! Arrays and mipmapped arrays: charges the memory that the driver reports once they exist, and keeps
//! physical memory charged that is mapped into sparse ones.
//! Touches: the ledger; the real function, unless the slice has no room.
//!
//! The size of an array's texels is claimed beforehand, and corrected by the driver's figure if it
//! reports one. Arrays whose memory is mapped later hold none. A sparse array keeps the physical
//! memory that is mapped into it.

use core::ffi::{c_uint, c_void};

use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use crate::account::physical;
use crate::account::{self, Account, Outcome, Paid, Request};
use crate::answer::device;
use crate::hooks::out;
use crate::real::abi::{
    CUDA_ARRAY_MEMORY_REQUIREMENTS, CUarray, CUdevice, CUresult, CUstream, SUCCESS,
};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::handles::{self, Space};
use gpuslice_config::ledger::stepped;

type Create = unsafe extern "C" fn(*mut CUarray, *const c_void) -> CUresult;
type CreateMipmapped = unsafe extern "C" fn(*mut CUarray, *const c_void, c_uint) -> CUresult;
type Destroy = unsafe extern "C" fn(CUarray) -> CUresult;
type MapAsync = unsafe extern "C" fn(*mut c_void, c_uint, CUstream) -> CUresult;

/// The dimensions and format of an array.
#[derive(Clone, Copy)]
struct Shape {
    extent: [u64; 3],
    format: u32,
    channels: u32,
    flags: u32,
    levels: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR`, and its predecessor with 32-bit extents.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flat<S> {
    extent: [S; 2],
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`, and its predecessor with 32-bit extents.
#[repr(C)]
#[derive(Clone, Copy)]
struct Deep<S> {
    extent: [S; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

impl<S: out::Amount> From<Flat<S>> for Shape {
    fn from(flat: Flat<S>) -> Shape {
        let [width, height] = flat.extent.map(out::Amount::into_u64);
        Shape {
            extent: [width, height, 0],
            format: flat.format,
            channels: flat.channels,
            flags: 0,
            levels: 1,
        }
    }
}

impl<S: out::Amount> From<Deep<S>> for Shape {
    fn from(deep: Deep<S>) -> Shape {
        Shape {
            extent: deep.extent.map(out::Amount::into_u64),
            format: deep.format,
            channels: deep.channels,
            flags: deep.flags,
            levels: 1,
        }
    }
}

impl Shape {
    /// The size of its texels, in bytes. Where the driver `is_asked` afterwards, this may be a
    /// lower bound.
    fn bytes(&self, is_asked: bool) -> u64 {
        let channels = u64::from(self.channels);
        // The side of a block of texels, and the block's size in bytes, by `CUarray_format`.
        let (side, block) = match self.format {
            0x01 | 0x08 => (1, channels),
            0x02 | 0x09 | 0x10 => (1, channels.saturating_mul(2)),
            0x03 | 0x0a | 0x20 => (1, channels.saturating_mul(4)),
            // BC1 and BC4, then the other block-compressed formats.
            0x91 | 0x92 | 0x97 | 0x98 => (4, 8),
            0x93..=0x9e => (4, 16),
            _ if is_asked => (1, 1),
            _ => (1, channels.saturating_mul(4)),
        };
        let level = |level: u32| {
            let extents = self.extent.iter().zip([side, side, 1]);
            let blocks = extents.map(|(extent, side): (&u64, u64)| {
                let texels = extent.checked_shr(level).unwrap_or(0).max(1);
                texels.div_ceil(side)
            });
            blocks.fold(block, u64::saturating_mul)
        };
        (0..self.levels.clamp(1, 32))
            .map(level)
            .fold(0, u64::saturating_add)
    }

    /// Whether the driver would accept the shape.
    fn is_valid(&self) -> bool {
        // BC6H has three channels.
        let channels = matches!(self.channels, 1 | 2 | 4) || self.format > 0x90;
        let format = matches!(self.format, 0x01..=0x03 | 0x08..=0x0a | 0x10 | 0x20 | 0x91..=0xff);
        self.extent.first() != Some(&0) && channels && format
    }

    /// Whether its memory is allocated on creation.
    fn holds(&self) -> bool {
        /// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`.
        const MAPPED_LATER: u32 = 0xc0;
        self.flags & MAPPED_LATER == 0
    }
}

/// `cuArrayCreate`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
pub(crate) unsafe fn create_v1(
    call: Call<Create>,
    handle: *mut CUarray,
    described: *const c_void,
) -> CUresult {
    // SAFETY: the caller guarantees null or a descriptor, and this function's is of this type.
    unsafe { create_as::<Flat<u32>>(call, handle, described) }
}

/// `cuArrayCreate_v2`.
///
/// # Safety
/// As `create_v1`.
pub(crate) unsafe fn create(
    call: Call<Create>,
    handle: *mut CUarray,
    described: *const c_void,
) -> CUresult {
    // SAFETY: the caller guarantees null or a descriptor, and this function's is of this type.
    unsafe { create_as::<Flat<usize>>(call, handle, described) }
}

/// `cuArray3DCreate`.
///
/// # Safety
/// As `create_v1`.
pub(crate) unsafe fn create_3d_v1(
    call: Call<Create>,
    handle: *mut CUarray,
    described: *const c_void,
) -> CUresult {
    // SAFETY: the caller guarantees null or a descriptor, and this function's is of this type.
    unsafe { create_as::<Deep<u32>>(call, handle, described) }
}

/// `cuArray3DCreate_v2`.
///
/// # Safety
/// As `create_v1`.
pub(crate) unsafe fn create_3d(
    call: Call<Create>,
    handle: *mut CUarray,
    described: *const c_void,
) -> CUresult {
    // SAFETY: the caller guarantees null or a descriptor, and this function's is of this type.
    unsafe { create_as::<Deep<usize>>(call, handle, described) }
}

/// # Safety
/// `described` is null or points to a T.
unsafe fn create_as<T: Copy + Into<Shape>>(
    call: Call<Create>,
    handle: *mut CUarray,
    described: *const c_void,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(handle, described) };
    let requirements = functions::cuArrayGetMemoryRequirements::real(call.copy);
    let destroy = functions::cuArrayDestroy::real(call.copy);
    if described.is_null() {
        return ask();
    }
    // SAFETY: the caller guarantees a T at `described`, which is not null.
    let shape: Shape = unsafe { described.cast::<T>().read() }.into();
    // SAFETY: `ask` creates an array of this shape and writes it to `handle`; both functions are
    // the driver's.
    unsafe { make(call.copy, shape, handle, requirements, destroy, ask) }
}

/// `cuMipmappedArrayCreate`.
///
/// # Safety
/// As `create_v1`.
pub(crate) unsafe fn create_mipmapped(
    call: Call<CreateMipmapped>,
    handle: *mut CUarray,
    described: *const c_void,
    levels: c_uint,
) -> CUresult {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let ask = || unsafe { (call.real)(handle, described, levels) };
    let requirements = functions::cuMipmappedArrayGetMemoryRequirements::real(call.copy);
    let destroy = functions::cuMipmappedArrayDestroy::real(call.copy);
    if described.is_null() {
        return ask();
    }
    // SAFETY: the function's contract guarantees a descriptor at `described`, which is not null.
    let shape: Shape = unsafe { described.cast::<Deep<usize>>().read() }.into();
    let shape = Shape { levels, ..shape };
    // SAFETY: `ask` creates an array of this shape and writes it to `handle`; both functions are
    // the driver's.
    unsafe { make(call.copy, shape, handle, requirements, destroy, ask) }
}

type Require =
    unsafe extern "C" fn(*mut CUDA_ARRAY_MEMORY_REQUIREMENTS, CUarray, CUdevice) -> CUresult;

/// # Safety
/// `ask` is a driver call that creates an array of this shape and writes it to `place`.
/// `requirements` and `destroy` are the driver's functions for such an array.
unsafe fn make(
    copy: CopyId,
    shape: Shape,
    place: *const CUarray,
    requirements: Option<Require>,
    destroy: Option<Destroy>,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(account) = account::current(copy).filter(|_| shape.holds()) else {
        return ask();
    };
    let bytes = shape.bytes(requirements.is_some());
    let request = Request {
        bytes: Bytes::new(bytes),
        claimed: stepped(bytes),
        kind: Kind::Array,
    };
    let is_valid = || !place.is_null() && shape.is_valid() && device::has_context(copy);
    // SAFETY: `pay` calls both closures on CUDA_SUCCESS, so the driver has written the array to
    // `place` if that is not null.
    let made = || unsafe { out::got_handle(place) };
    let record = || match made() {
        Some(array) => correct(&account, array, request.claimed, requirements, destroy),
        None => Paid::Released,
    };
    let undo = || {
        if let (Some(destroy), Some(array)) = (destroy, made()) {
            // SAFETY: the driver has just created the array; no other thread knows it.
            unsafe { destroy(array as CUarray) };
        }
    };
    account.pay(request, is_valid, ask, record, undo)
}

/// Records a new array, and corrects its claim to the size that the driver reports.
fn correct(
    account: &Account,
    array: u64,
    claimed: Bytes,
    requirements: Option<Require>,
    destroy: Option<Destroy>,
) -> Paid {
    let required = requirements.and_then(|ask| required(account.copy, ask, array));
    let bytes = required.unwrap_or(claimed);
    let (more, less) = (bytes.minus(claimed), claimed.minus(bytes));
    if more > Bytes::ZERO
        && let Outcome::Refused(_) = account.claim(more, Kind::Array)
        && let Some(destroy) = destroy
    {
        // SAFETY: the driver has just created the array; no other thread knows it.
        unsafe { destroy(array as CUarray) };
        return Paid::Exceeded;
    }
    account.release(less, Kind::Array);
    let charge = account.charge_here(bytes, Kind::Array);
    account.remember(Space::Array, array, charge);
    Paid::Kept
}

/// The memory of an array, as the driver reports it.
fn required(copy: CopyId, ask: Require, array: u64) -> Option<Bytes> {
    let dev = CUdevice::try_from(device::current(copy)?.0).ok()?;
    let mut said = CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: 0,
        alignment: 0,
        reserved: [0; 4],
    };
    // SAFETY: the function's contract: an array and its device.
    let code = unsafe { ask(&raw mut said, array as CUarray, dev) };
    (code == SUCCESS && said.size != 0).then(|| stepped(said.size as u64))
}

/// `cuArrayDestroy` and `cuMipmappedArrayDestroy`.
///
/// # Safety
/// As `create_v1`.
pub(crate) unsafe fn destroy(call: Call<Destroy>, array: CUarray) -> CUresult {
    let state = account::page();
    let found = state.and_then(|state| handles::find(state, Space::Array, array as u64));
    // SAFETY: the caller guarantees the real function's contract for this argument.
    let code = unsafe { (call.real)(array) };
    if code == SUCCESS {
        match (found, state) {
            (Some(found), _) => account::freed(found),
            // A sparse array has no record of its own.
            (None, Some(state)) => physical::array_destroyed(state, array as u64),
            (None, None) => {}
        }
    }
    code
}

/// `CUarrayMapInfo`.
#[repr(C)]
struct MapInfo {
    resource: i32,
    array: CUarray,
    subresource: i32,
    place: [u64; 4],
    operation: i32,
    handle_type: i32,
    handle: u64,
    offset: u64,
    devices: u32,
    flags: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<MapInfo>() == 96);

/// `cuMemMapArrayAsync`.
///
/// # Safety
/// As `create_v1`.
pub(crate) unsafe fn map_async(
    call: Call<MapAsync>,
    list: *mut c_void,
    count: c_uint,
    stream: CUstream,
) -> CUresult {
    /// `CU_MEM_OPERATION_TYPE_MAP`.
    const MAP: i32 = 1;
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let code = unsafe { (call.real)(list, count, stream) };
    if code == SUCCESS
        && !list.is_null()
        && let Some(state) = account::page()
    {
        let first = list.cast::<MapInfo>();
        for number in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: CUDA_SUCCESS, so the driver has read `count` entries.
            let entry = unsafe { first.wrapping_add(number).read() };
            if entry.operation == MAP {
                physical::mapped_into_array(state, entry.array as u64, entry.handle);
            }
        }
    }
    code
}
