//! Images: claims the size of their texels, and corrects it to the size that the driver reports.
//! Touches: the ledger; the real function, unless the slice has no room.

use core::ffi::c_void;

use gpuslice_config::ledger::Kind;

use crate::account::opencl::imports::External;
use crate::account::opencl::{self, Allocate, Made, Request};
use crate::hooks::opencl::buffer::{import, refused};
use crate::hooks::opencl::properties;
use crate::real::opencl::{
    CL_MEM_SIZE, CL_SUCCESS, cl_context, cl_image_desc, cl_image_format, cl_int, cl_mem,
    clCreateImage, clCreateImage2D, clCreateImage3D, clCreateImageWithProperties,
    clGetMemObjectInfo,
};

/// `clCreateImage2D`.
///
/// # Safety
/// The caller guarantees the vendor function's contract, here and in the hooks below.
#[expect(clippy::too_many_arguments, reason = "the vendor's own")]
pub(crate) unsafe fn flat(
    real: clCreateImage2D::Real,
    context: cl_context,
    flags: u64,
    format: *const cl_image_format,
    width: usize,
    height: usize,
    row_pitch: usize,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let mut ask = || unsafe { real(context, flags, format, width, height, row_pitch, host, code) };
    // SAFETY: the caller guarantees null or a format, and that `code` is null or writable.
    unsafe {
        make(
            context,
            format,
            [width, height, 1],
            Allocate::by(&mut ask),
            code,
        )
    }
}

/// `clCreateImage3D`.
///
/// # Safety
/// As `flat`.
#[expect(clippy::too_many_arguments, reason = "the vendor's own")]
pub(crate) unsafe fn deep(
    real: clCreateImage3D::Real,
    context: cl_context,
    flags: u64,
    format: *const cl_image_format,
    width: usize,
    height: usize,
    depth: usize,
    row_pitch: usize,
    slice_pitch: usize,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let mut ask = || unsafe {
        real(
            context,
            flags,
            format,
            width,
            height,
            depth,
            row_pitch,
            slice_pitch,
            host,
            code,
        )
    };
    // SAFETY: the caller guarantees null or a format, and that `code` is null or writable.
    unsafe {
        make(
            context,
            format,
            [width, height, depth],
            Allocate::by(&mut ask),
            code,
        )
    }
}

/// `clCreateImage`.
///
/// # Safety
/// As `flat`.
pub(crate) unsafe fn create(
    real: clCreateImage::Real,
    context: cl_context,
    flags: u64,
    format: *const cl_image_format,
    desc: *const cl_image_desc,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let mut ask = || unsafe { real(context, flags, format, desc, host, code) };
    // SAFETY: the caller guarantees null or a description, null or a format, and that `code` is null
    // or writable.
    unsafe { described(context, None, format, desc, Allocate::by(&mut ask), code) }
}

/// `clCreateImageWithProperties`.
///
/// # Safety
/// As `flat`.
#[expect(clippy::too_many_arguments, reason = "the vendor's own")]
pub(crate) unsafe fn with_properties(
    real: clCreateImageWithProperties::Real,
    context: cl_context,
    properties: *const u64,
    flags: u64,
    format: *const cl_image_format,
    desc: *const cl_image_desc,
    host: *mut c_void,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees the real function's contract for these arguments.
    let mut ask = || unsafe { real(context, properties, flags, format, desc, host, code) };
    // SAFETY: the caller guarantees null or a list that ends with 0.
    let external = unsafe { properties::external(properties) };
    // SAFETY: the caller guarantees null or a description, null or a format, and that `code` is null
    // or writable.
    unsafe {
        described(
            context,
            external,
            format,
            desc,
            Allocate::by(&mut ask),
            code,
        )
    }
}

/// Creates an image, whose memory may be another object's, or imported.
///
/// # Safety
/// `format` and `desc` are null or valid; `external` is of the caller's list; `code` is null or
/// writable.
#[inline(never)]
unsafe fn described(
    context: cl_context,
    external: Option<External>,
    format: *const cl_image_format,
    desc: *const cl_image_desc,
    ask: Allocate<'_>,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees null or a description.
    let Some(extent) = (unsafe { extent(desc) }) else {
        return ask.call();
    };
    match external {
        // SAFETY: the caller guarantees null or a format, and that `code` is null or writable.
        None => unsafe { make(context, format, extent, ask, code) },
        Some(external) => {
            // SAFETY: the caller guarantees null or a format.
            let request = unsafe { request(context, format, extent) };
            // SAFETY: the caller guarantees the list of `external`, and `code`.
            unsafe { import(request, external, ask, code) }
        }
    }
}

/// The texels of an image in each direction. None: the driver rejects the description, or the image
/// lies in the memory of another object.
///
/// # Safety
/// `desc` is null or points to a description.
unsafe fn extent(desc: *const cl_image_desc) -> Option<[usize; 3]> {
    // SAFETY: the caller guarantees null or a description.
    let desc = unsafe { desc.as_ref() }?;
    if !desc.mem_object.is_null() {
        return None;
    }
    let cl_image_desc {
        width,
        height,
        depth,
        array_size,
        ..
    } = *desc;
    match desc.image_type {
        // CL_MEM_OBJECT_IMAGE2D, …IMAGE3D, …IMAGE2D_ARRAY, …IMAGE1D, …IMAGE1D_ARRAY.
        0x10F1 => Some([width, height, 1]),
        0x10F2 => Some([width, height, depth]),
        0x10F3 => Some([width, height, array_size]),
        0x10F4 => Some([width, 1, 1]),
        0x10F5 => Some([width, array_size, 1]),
        _ => None,
    }
}

/// The size of a texel, or a lower bound of it. 0: OpenCL has no such format, and the driver refuses
/// it with a code of its own.
fn texel(format: cl_image_format) -> u64 {
    // Orders run from CL_R to CL_ABGR. Types begin with CL_SNORM_INT8; the range has room for those of
    // extensions.
    let is_known =
        matches!(format.order, 0x10B0..=0x10C3) && matches!(format.data_type, 0x10D0..=0x10EF);
    if !is_known {
        return 0;
    }
    let channels = match format.order {
        // CL_RG, CL_RA, CL_Rx.
        0x10B2 | 0x10B3 | 0x10BA => 2,
        // CL_RGBA, CL_BGRA, CL_ARGB, CL_sRGBA, CL_sBGRA, CL_ABGR.
        0x10B5..=0x10B7 | 0x10C1..=0x10C3 => 4,
        _ => 1,
    };
    let bytes = match format.data_type {
        // CL_SNORM_INT16, CL_UNORM_INT16, CL_SIGNED_INT16, CL_UNSIGNED_INT16, CL_HALF_FLOAT.
        0x10D1 | 0x10D3 | 0x10D8 | 0x10DB | 0x10DD => 2,
        // CL_SIGNED_INT32, CL_UNSIGNED_INT32, CL_FLOAT.
        0x10D9 | 0x10DC | 0x10DE => 4,
        _ => 1,
    };
    u64::wrapping_mul(channels, bytes)
}

/// The request for an image of this size.
///
/// # Safety
/// `format` is null or points to a format.
unsafe fn request(
    context: cl_context,
    format: *const cl_image_format,
    extent: [usize; 3],
) -> Request {
    // SAFETY: the caller guarantees null or a format.
    let texel = unsafe { format.as_ref() }.map_or(0, |format| texel(*format));
    let sides = extent.iter().map(|side| *side as u64);
    Request {
        context,
        bytes: sides.fold(texel, u64::saturating_mul),
        kind: Kind::Array,
    }
}

/// Creates an image that has memory of its own, and corrects its claims.
///
/// # Safety
/// `format` is null or points to a format; `code` is null or writable.
#[inline(never)]
unsafe fn make(
    context: cl_context,
    format: *const cl_image_format,
    extent: [usize; 3],
    ask: Allocate<'_>,
    code: *mut cl_int,
) -> cl_mem {
    // SAFETY: the caller guarantees null or a format.
    let request = unsafe { request(context, format, extent) };
    let made = opencl::pay(request, ask);
    let object = match made {
        Made::Object(object, 0) => return object,
        Made::Object(object, records) => {
            opencl::follow(object, records);
            object
        }
        // SAFETY: the caller guarantees that `code` is null or writable.
        Made::Refused => return unsafe { refused(code) },
    };
    match size(object) {
        // SAFETY: the caller guarantees that `code` is null or writable.
        Some(bytes) if !opencl::correct(request, object, bytes) => unsafe { refused(code) },
        _ => object,
    }
}

/// The size of an object, as the driver reports it.
fn size(object: cl_mem) -> Option<u64> {
    let mut size = 0usize;
    let ask = clGetMemObjectInfo::real()?;
    let (place, room) = ((&raw mut size).cast(), size_of::<usize>());
    // SAFETY: clGetMemObjectInfo's contract: a live object, and room for its size.
    let code = unsafe { ask(object, CL_MEM_SIZE, room, place, core::ptr::null_mut()) };
    (code == CL_SUCCESS && size != 0).then_some(size as u64)
}
