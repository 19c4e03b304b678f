//! The vendor's types that the table uses: codes, handles, layouts.
//! Touches: nothing.
//!
//! Codes are plain integers, not a Rust `enum` as in cudarc: a newer driver may return a code that
//! is unknown here, and an `enum` with an unknown value is undefined behaviour. Tests compare these
//! with the declarations of cudarc and nvml-wrapper-sys.
#![expect(
    non_camel_case_types,
    non_snake_case,
    reason = "the vendor's own spelling"
)]

use core::ffi::{c_uint, c_ulonglong, c_void};

/// The return code of a driver function.
pub(crate) type CUresult = u32;
/// A device of the driver API: its ordinal.
pub(crate) type CUdevice = i32;
/// A device pointer of the driver API.
pub(crate) type CUdeviceptr = u64;
/// A context of the driver API.
pub(crate) type CUcontext = *mut c_void;
/// An array of the driver API, mipmapped or not.
pub(crate) type CUarray = *mut c_void;
/// A memory pool of the driver API.
pub(crate) type CUmemoryPool = *mut c_void;
/// A stream of the driver API.
pub(crate) type CUstream = *mut c_void;
/// A graph of the driver API.
pub(crate) type CUgraph = *mut c_void;
/// A node of a graph.
pub(crate) type CUgraphNode = *mut c_void;
/// An executable graph.
pub(crate) type CUgraphExec = *mut c_void;
/// An event of the driver API.
pub(crate) type CUevent = *mut c_void;
/// The return code of a runtime function.
pub(crate) type cudaError_t = u32;
/// The return code of an NVML function.
pub(crate) type nvmlReturn_t = u32;
/// A device of NVML: an opaque pointer.
pub(crate) type nvmlDevice_t = *mut c_void;

/// `CUDA_SUCCESS`, `cudaSuccess`, `NVML_SUCCESS`.
pub(crate) const SUCCESS: u32 = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const CUDA_ERROR_OUT_OF_MEMORY: CUresult = 2;
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const CUDA_ERROR_INVALID_VALUE: CUresult = 1;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub(crate) const CUDA_ERROR_INVALID_CONTEXT: CUresult = 201;
/// `CUDA_ERROR_INVALID_HANDLE`.
pub(crate) const CUDA_ERROR_INVALID_HANDLE: CUresult = 400;
/// `CUDA_ERROR_ILLEGAL_STATE`.
pub(crate) const CUDA_ERROR_ILLEGAL_STATE: CUresult = 401;
/// `CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD`.
pub(crate) const CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: CUresult = 908;
/// `CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND`, and the runtime's code of that name.
pub(crate) const CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: u32 = 302;
/// `NVML_ERROR_INSUFFICIENT_SIZE`.
pub(crate) const NVML_ERROR_INSUFFICIENT_SIZE: nvmlReturn_t = 7;
/// `NVML_ERROR_NOT_FOUND`.
pub(crate) const NVML_ERROR_NOT_FOUND: nvmlReturn_t = 6;
/// `NVML_ERROR_NOT_SUPPORTED`.
pub(crate) const NVML_ERROR_NOT_SUPPORTED: nvmlReturn_t = 3;
/// `NVML_ERROR_LIBRARY_NOT_FOUND`.
pub(crate) const NVML_ERROR_LIBRARY_NOT_FOUND: nvmlReturn_t = 12;

/// `CU_DEVICE_ATTRIBUTE_INTEGRATED` and `cudaDevAttrIntegrated`.
pub(crate) const ATTRIBUTE_INTEGRATED: i32 = 18;

/// `CU_GRAPH_NODE_TYPE_GRAPH`.
pub(crate) const GRAPH_NODE_GRAPH: i32 = 4;
/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
pub(crate) const GRAPH_NODE_MEM_ALLOC: i32 = 10;
/// `CU_GRAPH_NODE_TYPE_MEM_FREE`.
pub(crate) const GRAPH_NODE_MEM_FREE: i32 = 11;
/// `CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT`.
pub(crate) const GRAPH_MEM_USED: i32 = 0;
/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
pub(crate) const GRAPH_MEM_RESERVED: i32 = 2;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`: selects the `_ptsz` variants.
pub(crate) const PER_THREAD_DEFAULT_STREAM: c_ulonglong = 2;

/// `CUipcMemHandle`: passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUipcMemHandle {
    pub(crate) bytes: [u8; 64],
}

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CUuuid {
    pub(crate) bytes: [u8; 16],
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlMemory_t {
    pub(crate) total: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlMemory_v2_t {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

/// `nvmlMemory_v2`: the size of the struct and its version.
pub(crate) const NVML_MEMORY_V2: c_uint = 0x0200_0028;

/// `nvmlProcessInfo_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlProcessInfo_v1_t {
    pub(crate) pid: c_uint,
    pub(crate) usedGpuMemory: c_ulonglong,
}

/// `nvmlProcessDetail_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlProcessDetail_v1_t {
    pub(crate) pid: c_uint,
    pub(crate) usedGpuMemory: c_ulonglong,
    pub(crate) gpuInstanceId: c_uint,
    pub(crate) computeInstanceId: c_uint,
    pub(crate) usedGpuCcProtectedMemory: c_ulonglong,
}

/// `nvmlProcessDetailList_v1_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlProcessDetailList_v1_t {
    pub(crate) version: c_uint,
    pub(crate) mode: c_uint,
    pub(crate) numProcArrayEntries: c_uint,
    pub(crate) procArray: *mut nvmlProcessDetail_v1_t,
}

/// `nvmlProcessDetailList_v1`: the size of the struct and its version.
pub(crate) const NVML_PROCESS_DETAIL_LIST_V1: c_uint = 0x0100_0018;

/// `nvmlProcessInfo_t`, of versions 2 and 3.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlProcessInfo_t {
    pub(crate) pid: c_uint,
    pub(crate) usedGpuMemory: c_ulonglong,
    pub(crate) gpuInstanceId: c_uint,
    pub(crate) computeInstanceId: c_uint,
}

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlDeviceAttributes_t {
    pub(crate) counts: [c_uint; 8],
    pub(crate) memorySizeMB: c_ulonglong,
}

/// The out-parameter of `nvmlDeviceGetMemoryLimits_v1`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct nvmlMemoryLimits_v1_t {
    pub(crate) cgroup: *const c_void,
    pub(crate) softLimit: c_ulonglong,
    pub(crate) hardLimit: c_ulonglong,
    pub(crate) currentUsed: c_ulonglong,
}

/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
pub(crate) const NVML_UUID_LENGTH: u32 = 96;

/// `cudaDeviceProp`: opaque, only its address is used; see `hooks::runtime::properties` for
/// layouts.
pub(crate) type cudaDeviceProp = c_void;

const _: () = {
    assert!(size_of::<nvmlMemory_t>() == 24);
    assert!(size_of::<nvmlMemory_v2_t>() == 40);
    assert!(size_of::<nvmlProcessInfo_v1_t>() == 16);
    assert!(size_of::<nvmlProcessInfo_t>() == 24);
    assert!(size_of::<nvmlProcessDetail_v1_t>() == 32);
    assert!(size_of::<nvmlProcessDetailList_v1_t>() == 24);
    assert!(size_of::<nvmlDeviceAttributes_t>() == 40);
    assert!(core::mem::offset_of!(nvmlDeviceAttributes_t, memorySizeMB) == 32);
    assert!(size_of::<nvmlMemoryLimits_v1_t>() == 32);
};

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct CUDA_MEM_ALLOC_NODE_PARAMS {
    /// The start of its `CUmemPoolProps`: allocation type, handle types, location type.
    pub(crate) start: [i32; 3],
    /// The device, if the location is one.
    pub(crate) id: i32,
    pub(crate) more: [u64; 9],
    pub(crate) accessDescs: *const c_void,
    pub(crate) accessDescCount: usize,
    pub(crate) bytesize: usize,
    pub(crate) dptr: CUdeviceptr,
}
