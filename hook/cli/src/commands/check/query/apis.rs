//! Lists the functions that report memory, how to call them, and how to read their answers.
//! Touches: the driver, through the functions that it is given.
//! Law: a new API is one entry of [`APIS`] (and its name in linked.c, which a test checks).

use super::abi::{
    INTEGRATED, INTEGRATED_AT_11, INTEGRATED_AT_13, MEMORY_V2, NvmlAttributes, NvmlMemory,
    NvmlMemoryV2, Properties, call,
};
use super::codes;
use super::dl::Symbol;
use super::other_apis::{meminfo, opencl, vulkan};
use super::row::Reading;
use gpuslice_config::words::units::{Bytes, KIB, MIB};
use std::ffi::{c_int, c_uint, c_void};

/// The library that exports a function. It decides on which devices and routes the function exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// libcuda.so.1.
    Cuda,
    /// libnvidia-ml.so.1.
    Nvml,
    /// libnvidia-ml.so.1, for MIG instances only.
    NvmlMig,
    /// libcudart.so of these major versions.
    Cudart(&'static [u32]),
    /// Vulkan's driver.
    Vulkan,
    /// OpenCL's driver.
    OpenCl,
    /// No library: libc opens `/proc/meminfo`.
    MeminfoByLibc,
    /// No library: a system call opens `/proc/meminfo`.
    MeminfoBySystemCall,
    /// The function of libcuda.so.1 that a static libcudart calls when its own function is called.
    StaticCudart,
}

/// The names of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    /// The exported name.
    pub(crate) export: &'static str,
    /// The name to pass to cuGetProcAddress.
    pub(crate) asked: &'static str,
    /// The CUDA version to pass to cuGetProcAddress.
    pub(crate) version: c_int,
    /// Whether libcuda.so.1 exports it, and not libnvidia-ml.so.1 or libcudart.
    pub(crate) of_cuda: bool,
}

impl Name {
    /// A function of libcuda.so.1.
    pub(crate) const fn cuda(export: &'static str, asked: &'static str, version: c_int) -> Name {
        Name {
            export,
            asked,
            version,
            of_cuda: true,
        }
    }

    /// A function that cuGetProcAddress does not return.
    pub(crate) const fn plain(export: &'static str) -> Name {
        Name {
            export,
            asked: export,
            version: 0,
            of_cuda: false,
        }
    }
}

/// The precision in which a function reports an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Width {
    /// To the byte.
    Exact,
    /// To the byte, in 32 bits: an amount of 4 GiB or more reads as 4 GiB less one byte.
    Saturated32,
    /// In whole KiB.
    WholeKib,
    /// In whole MiB.
    WholeMib,
}

impl Width {
    /// Returns the amount as a function of this precision reports it.
    pub(crate) fn cut(self, bytes: u64) -> u64 {
        match self {
            Width::Exact => bytes,
            Width::Saturated32 => bytes.min(u64::from(u32::MAX)),
            Width::WholeKib => bytes & !(KIB.saturating_sub(1)),
            Width::WholeMib => bytes & !(MIB.saturating_sub(1)),
        }
    }
}

/// The device to query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryTarget {
    /// The ordinal in CUDA's enumeration, which is also the `CUdevice`.
    pub(crate) device: c_int,
    /// The `nvmlDevice_t`, `VkPhysicalDevice` or `cl_device_id`.
    pub(crate) handle: *mut c_void,
}

impl QueryTarget {
    /// A device in CUDA's enumeration.
    pub(crate) const fn cuda(ordinal: c_int) -> QueryTarget {
        QueryTarget {
            device: ordinal,
            handle: std::ptr::null_mut(),
        }
    }

    /// A device in the enumeration of NVML, Vulkan or OpenCL.
    pub(crate) const fn handle(handle: *mut c_void) -> QueryTarget {
        QueryTarget { device: 0, handle }
    }
}

/// A function that reports memory.
pub(crate) struct Api {
    /// The vendor's name of the function, used in reports.
    pub(crate) name: &'static str,
    /// The library that exports it.
    pub(crate) family: Family,
    /// The symbol to look up.
    pub(crate) symbol: Name,
    /// The precision of its amounts.
    pub(crate) width: Width,
    /// Calls the function. The symbol must be the function that `symbol` names, its driver must be
    /// initialised, and the device's context must be current.
    pub(crate) ask: fn(Symbol, QueryTarget) -> Result<Reading, String>,
}

impl Api {
    /// Checks whether it queries the device of the current context.
    pub(crate) fn needs_context(&self) -> bool {
        self.symbol.asked == MEM_GET_INFO_V2.asked
    }
}

const MEM_GET_INFO_V2: Name = Name::cuda("cuMemGetInfo_v2", "cuMemGetInfo", 3020);
const TOTAL_MEM_V2: Name = Name::cuda("cuDeviceTotalMem_v2", "cuDeviceTotalMem", 3020);
const GET_ATTRIBUTE: Name = Name::cuda("cuDeviceGetAttribute", "cuDeviceGetAttribute", 2000);

/// Reports whether a device shares the host's memory.
pub(crate) const IS_INTEGRATED: &str = "cuDeviceGetAttribute";
/// The yardstick on devices that CUDA lists. Every child queries it in addition to its own route.
pub(crate) const CUDA_YARDSTICK: &str = "cuMemGetInfo_v2";
/// The yardstick on devices that only NVML lists.
pub(crate) const NVML_YARDSTICK: &str = "nvmlDeviceGetMemoryInfo";

const fn api(
    name: &'static str,
    family: Family,
    symbol: Name,
    width: Width,
    ask: fn(Symbol, QueryTarget) -> Result<Reading, String>,
) -> Api {
    Api {
        name,
        family,
        symbol,
        width,
        ask,
    }
}

/// Every function that is queried.
#[rustfmt::skip]
pub(crate) const APIS: [Api; 20] = [
    api("cuMemGetInfo_v2", Family::Cuda, MEM_GET_INFO_V2, Width::Exact, mem_get_info_v2),
    api("cuMemGetInfo", Family::Cuda, Name::cuda("cuMemGetInfo", "cuMemGetInfo", 2000), Width::Saturated32, mem_get_info_v1),
    api("cuDeviceTotalMem_v2", Family::Cuda, TOTAL_MEM_V2, Width::Exact, total_mem_v2),
    api("cuDeviceTotalMem", Family::Cuda, Name::cuda("cuDeviceTotalMem", "cuDeviceTotalMem", 2000), Width::Saturated32, total_mem_v1),
    api(IS_INTEGRATED, Family::Cuda, GET_ATTRIBUTE, Width::Exact, get_attribute),
    api("nvmlDeviceGetMemoryInfo", Family::Nvml, Name::plain("nvmlDeviceGetMemoryInfo"), Width::Exact, memory_info),
    api("nvmlDeviceGetMemoryInfo_v2", Family::Nvml, Name::plain("nvmlDeviceGetMemoryInfo_v2"), Width::Exact, memory_info_v2),
    api("nvmlDeviceGetAttributes_v2", Family::NvmlMig, Name::plain("nvmlDeviceGetAttributes_v2"), Width::WholeMib, attributes),
    api("cudaMemGetInfo", Family::Cudart(&[11, 12, 13]), Name::plain("cudaMemGetInfo"), Width::Exact, cuda_mem_get_info),
    api("cudaGetDeviceProperties", Family::Cudart(&[11, 12]), Name::plain("cudaGetDeviceProperties"), Width::Exact, properties_11),
    api("cudaGetDeviceProperties", Family::Cudart(&[13]), Name::plain("cudaGetDeviceProperties"), Width::Exact, properties_13),
    api("cudaGetDeviceProperties_v2", Family::Cudart(&[12]), Name::plain("cudaGetDeviceProperties_v2"), Width::Exact, properties_11),
    api("cudaDeviceGetAttribute", Family::Cudart(&[11, 12, 13]), Name::plain("cudaDeviceGetAttribute"), Width::Exact, cuda_get_attribute),
    api("cudaMemGetInfo", Family::StaticCudart, MEM_GET_INFO_V2, Width::Exact, mem_get_info_v2),
    api("cudaGetDeviceProperties", Family::StaticCudart, TOTAL_MEM_V2, Width::Exact, total_mem_v2),
    api("cudaDeviceGetAttribute", Family::StaticCudart, GET_ATTRIBUTE, Width::Exact, get_attribute),
    api("vkGetPhysicalDeviceMemoryProperties2", Family::Vulkan, Name::plain("vkGetPhysicalDeviceMemoryProperties2"), Width::Exact, vulkan::memory),
    api("clGetDeviceInfo", Family::OpenCl, Name::plain("clGetDeviceInfo"), Width::Exact, opencl::memory),
    api(meminfo::FILE, Family::MeminfoByLibc, Name::plain(meminfo::FILE), Width::WholeKib, meminfo::by_libc),
    api(meminfo::FILE, Family::MeminfoBySystemCall, Name::plain(meminfo::FILE), Width::WholeKib, meminfo::by_system_call),
];

/// Returns the precision of the function with that name.
pub(crate) fn width(api: &str) -> Width {
    APIS.iter()
        .find(|known| known.name == api)
        .map_or(Width::Exact, |known| known.width)
}

/// Checks whether the function with that name reports an amount of memory.
pub(crate) fn tells_memory(api: &str) -> bool {
    !api.ends_with("GetAttribute")
}

/// Checks whether the function with that name belongs to NVML. NVML also counts the memory that it
/// reserves.
pub(crate) fn is_nvml(api: &str) -> bool {
    api.starts_with("nvml")
}

/// The CUDA driver's library.
pub(crate) const CUDA: &str = "libcuda.so.1";
/// NVML's library.
pub(crate) const NVML: &str = "libnvidia-ml.so.1";

/// Returns the driver library without which the function with that name cannot be queried.
pub(crate) fn library(api: &str) -> &'static str {
    match is_nvml(api) {
        true => NVML,
        false => CUDA,
    }
}

/// Returns the position in the table of the function with that name, by which reports are sorted.
pub(crate) fn place(api: &str) -> usize {
    APIS.iter()
        .position(|known| known.name == api)
        .unwrap_or(APIS.len())
}

fn both(total: u64, free: u64) -> Reading {
    Reading {
        total: Some(total),
        free: Some(free),
        ..Reading::default()
    }
}

fn mem_get_info_v2(symbol: Symbol, _: QueryTarget) -> Result<Reading, String> {
    let (mut free, mut total) = (0usize, 0usize);
    codes::cuda(call!(symbol, &raw mut free => *mut usize, &raw mut total => *mut usize))?;
    Ok(with_used(total, free))
}

fn cuda_mem_get_info(symbol: Symbol, _: QueryTarget) -> Result<Reading, String> {
    let (mut free, mut total) = (0usize, 0usize);
    codes::cudart(call!(symbol, &raw mut free => *mut usize, &raw mut total => *mut usize))?;
    Ok(with_used(total, free))
}

/// Computes `used` by subtraction, as programs do.
fn with_used(total: usize, free: usize) -> Reading {
    let (total, free) = (bytes(total), bytes(free));
    Reading {
        used: Some(Bytes::new(total).minus(Bytes::new(free)).get()),
        ..both(total, free)
    }
}

fn bytes(amount: usize) -> u64 {
    u64::try_from(amount).unwrap_or(u64::MAX)
}

fn mem_get_info_v1(symbol: Symbol, _: QueryTarget) -> Result<Reading, String> {
    let (mut free, mut total) = (0 as c_uint, 0 as c_uint);
    codes::cuda(call!(symbol, &raw mut free => *mut c_uint, &raw mut total => *mut c_uint))?;
    Ok(both(total.into(), free.into()))
}

fn only_total(total: u64) -> Reading {
    Reading {
        total: Some(total),
        ..Reading::default()
    }
}

fn total_mem_v2(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    let mut total = 0usize;
    codes::cuda(call!(symbol, &raw mut total => *mut usize, target.device => c_int))?;
    Ok(only_total(bytes(total)))
}

fn total_mem_v1(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    let mut total = 0 as c_uint;
    codes::cuda(call!(symbol, &raw mut total => *mut c_uint, target.device => c_int))?;
    Ok(only_total(total.into()))
}

fn integrated(value: c_int) -> Reading {
    Reading {
        integrated: Some(value != 0),
        ..Reading::default()
    }
}

fn get_attribute(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    let mut value: c_int = 0;
    codes::cuda(
        call!(symbol, &raw mut value => *mut c_int, INTEGRATED => c_int, target.device => c_int),
    )?;
    Ok(integrated(value))
}

fn cuda_get_attribute(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    let mut value: c_int = 0;
    codes::cudart(
        call!(symbol, &raw mut value => *mut c_int, INTEGRATED => c_int, target.device => c_int),
    )?;
    Ok(integrated(value))
}

fn properties_11(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    properties(symbol, target, INTEGRATED_AT_11)
}

fn properties_13(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    properties(symbol, target, INTEGRATED_AT_13)
}

fn properties(symbol: Symbol, target: QueryTarget, integrated: usize) -> Result<Reading, String> {
    let mut properties = Properties::new();
    codes::cudart(call!(symbol, &raw mut properties => *mut Properties, target.device => c_int))?;
    Ok(Reading {
        total: properties.total_global_mem(),
        integrated: properties.integrated(integrated),
        ..Reading::default()
    })
}

fn memory_info(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    let mut memory = NvmlMemory::default();
    codes::nvml(call!(symbol, target.handle => *mut c_void, &raw mut memory => *mut NvmlMemory))?;
    Ok(Reading {
        used: Some(memory.used),
        ..both(memory.total, memory.free)
    })
}

fn memory_info_v2(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    let mut memory = NvmlMemoryV2 {
        version: MEMORY_V2,
        ..NvmlMemoryV2::default()
    };
    codes::nvml(call!(symbol, target.handle => *mut c_void, &raw mut memory => *mut NvmlMemoryV2))?;
    Ok(Reading {
        used: Some(memory.used),
        reserved: Some(memory.reserved),
        ..both(memory.total, memory.free)
    })
}

fn attributes(symbol: Symbol, target: QueryTarget) -> Result<Reading, String> {
    let mut attributes = NvmlAttributes::default();
    codes::nvml(
        call!(symbol, target.handle => *mut c_void, &raw mut attributes => *mut NvmlAttributes),
    )?;
    Ok(only_total(Bytes::mib(attributes.memory_size_mib).get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_the_driver_can_be_asked_by_a_linked_library() {
        let source = include_str!("linked.c");
        for api in &APIS {
            let linked = format!("FUNCTION({})", api.symbol.export);
            let of_others = matches!(
                api.family,
                Family::Cudart(_)
                    | Family::Vulkan
                    | Family::OpenCl
                    | Family::MeminfoByLibc
                    | Family::MeminfoBySystemCall
            );
            assert!(of_others || source.contains(&linked), "{linked} is missing");
        }
    }

    #[test]
    fn one_name_tells_equally_finely_wherever_it_is_found() {
        for api in &APIS {
            assert_eq!(api.width, width(api.name), "{}", api.name);
        }
    }
}
