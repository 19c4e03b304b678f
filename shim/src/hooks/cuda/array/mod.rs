//! Arrays and mipmapped arrays: charges the size of their texels, and keeps physical memory charged
//! that is mapped into sparse ones.
//! Touches: the ledger; the real function, unless the slice has no room.
//!
//! `cuArrayGetMemoryRequirements` answers only for arrays whose memory is mapped later, which hold
//! none. A sparse array keeps the physical memory that is mapped into it.

mod shape;

use core::ffi::{c_uint, c_void};

use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use crate::account::physical;
use crate::account::{self, Paid, Request};
use crate::answer::device;
use crate::hooks::cuda::array::shape::{Deep, Flat, Shape};
use crate::hooks::out;
use crate::real::abi::{CUarray, CUresult, CUstream, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions::{self, Call};
use crate::state::handles::{self, Space};
use gpuslice_config::ledger::stepped;

type Create = unsafe extern "C" fn(*mut CUarray, *const c_void) -> CUresult;
type CreateMipmapped = unsafe extern "C" fn(*mut CUarray, *const c_void, c_uint) -> CUresult;
type Destroy = unsafe extern "C" fn(CUarray) -> CUresult;
type MapAsync = unsafe extern "C" fn(*mut c_void, c_uint, CUstream) -> CUresult;

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
    let destroy = functions::cuArrayDestroy::real(call.copy);
    if described.is_null() {
        return ask();
    }
    // SAFETY: the caller guarantees a T at `described`, which is not null.
    let shape: Shape = unsafe { described.cast::<T>().read() }.into();
    // SAFETY: `ask` creates an array of this shape and writes it to `handle`; `destroy` is the
    // driver's.
    unsafe { make(call.copy, shape, handle, destroy, ask) }
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
    let destroy = functions::cuMipmappedArrayDestroy::real(call.copy);
    if described.is_null() {
        return ask();
    }
    // SAFETY: the function's contract guarantees a descriptor at `described`, which is not null.
    let mut shape: Shape = unsafe { described.cast::<Deep<usize>>().read() }.into();
    shape.levels = levels;
    // SAFETY: `ask` creates an array of this shape and writes it to `handle`; `destroy` is the
    // driver's.
    unsafe { make(call.copy, shape, handle, destroy, ask) }
}

/// # Safety
/// `ask` is a driver call that creates an array of this shape and writes it to `place`. `destroy` is
/// the driver's function for such an array.
unsafe fn make(
    copy: CopyId,
    shape: Shape,
    place: *const CUarray,
    destroy: Option<Destroy>,
    ask: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(account) = account::current(copy).filter(|_| shape.holds()) else {
        return ask();
    };
    let bytes = shape.bytes();
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
        Some(array) => {
            let charge = account.charge_here(request.claimed, Kind::Array);
            account.remember(Space::Array, array, charge);
            Paid::Kept
        }
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
