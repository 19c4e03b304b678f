//! The shim's declarations of the vendor's types and codes agree with two independent bindings,
//! which are generated from the vendor's headers.
//! Touches: declarations only.

use cudarc::driver::sys;
use nvml_wrapper_sys::bindings as nvml;
use std::mem::{align_of, offset_of, size_of};

#[path = "../../../../../shim/src/real/abi.rs"]
#[expect(dead_code, reason = "aliases and handles have no value to compare")]
mod abi;

#[test]
fn the_codes_are_the_vendors() {
    assert_eq!(abi::SUCCESS, sys::CUresult::CUDA_SUCCESS as u32);
    assert_eq!(
        abi::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
        sys::CUresult::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND as u32
    );
    assert_eq!(abi::SUCCESS, nvml::nvmlReturn_enum_NVML_SUCCESS);
    assert_eq!(
        abi::NVML_ERROR_NOT_SUPPORTED,
        nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED
    );
    assert_eq!(
        abi::NVML_ERROR_LIBRARY_NOT_FOUND,
        nvml::nvmlReturn_enum_NVML_ERROR_LIBRARY_NOT_FOUND
    );
}

#[test]
fn the_attribute_and_the_flag_are_the_vendors() {
    let integrated = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED as i32;
    assert_eq!(abi::ATTRIBUTE_INTEGRATED, integrated);
    let per_thread = sys::CUdriverProcAddress_flags::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    assert_eq!(abi::PER_THREAD_DEFAULT_STREAM, per_thread as u64);
}

/// Size, alignment, and where each field lies.
macro_rules! layout {
    ($name:ty, $($field:ident)*) => {
        (size_of::<$name>(), align_of::<$name>(), vec![$(offset_of!($name, $field)),*])
    };
}

#[test]
fn nvml_structs_lie_in_memory_as_the_vendors_do() {
    assert_eq!(
        layout!(abi::nvmlMemory_t, total free used),
        layout!(nvml::nvmlMemory_t, total free used)
    );
    assert_eq!(
        layout!(abi::nvmlMemory_v2_t, version total reserved free used),
        layout!(nvml::nvmlMemory_v2_t, version total reserved free used)
    );
    assert_eq!(
        layout!(abi::nvmlDeviceAttributes_t, counts memorySizeMB),
        layout!(nvml::nvmlDeviceAttributes_t, multiprocessorCount memorySizeMB)
    );
    // NVML_STRUCT_VERSION(Memory, 2).
    let version = u32::try_from(size_of::<nvml::nvmlMemory_v2_t>()).unwrap() | 2 << 24;
    assert_eq!(abi::NVML_MEMORY_V2, version);
    assert_eq!(abi::NVML_UUID_LENGTH, nvml::NVML_DEVICE_UUID_V2_BUFFER_SIZE);
}

#[test]
fn a_uuid_and_the_handles_are_as_large_as_the_vendors() {
    assert_eq!(size_of::<abi::CUuuid>(), size_of::<sys::CUuuid>());
    assert_eq!(size_of::<abi::CUresult>(), size_of::<sys::CUresult>());
    assert_eq!(size_of::<abi::CUdevice>(), size_of::<sys::CUdevice>());
    assert_eq!(
        size_of::<abi::nvmlReturn_t>(),
        size_of::<nvml::nvmlReturn_t>()
    );
    assert_eq!(
        size_of::<abi::nvmlDevice_t>(),
        size_of::<nvml::nvmlDevice_t>()
    );
}

#[test]
fn what_a_graph_allocates_lies_where_the_vendor_puts_it() {
    assert_eq!(
        layout!(abi::CUDA_MEM_ALLOC_NODE_PARAMS, accessDescs accessDescCount bytesize dptr),
        layout!(sys::CUDA_MEM_ALLOC_NODE_PARAMS_v1, accessDescs accessDescCount bytesize dptr)
    );
    // The device is `poolProps.location.id`, which follows the location's type.
    assert_eq!(
        offset_of!(abi::CUDA_MEM_ALLOC_NODE_PARAMS, id),
        offset_of!(sys::CUDA_MEM_ALLOC_NODE_PARAMS_v1, poolProps)
            + offset_of!(sys::CUmemPoolProps, location)
            + size_of::<i32>()
    );
    let sort = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC as i32;
    assert_eq!(abi::GRAPH_NODE_MEM_ALLOC, sort);
    let sort = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH as i32;
    assert_eq!(abi::GRAPH_NODE_GRAPH, sort);
    use sys::CUgraphMem_attribute as Attribute;
    let [used, reserved] = [
        Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
        Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
    ];
    assert_eq!(abi::GRAPH_MEM_USED, used as i32);
    assert_eq!(abi::GRAPH_MEM_RESERVED, reserved as i32);
}
