//! The simulated machines' devices, and every query that is possible for each of them.
//! Touches: nothing.

use std::collections::BTreeSet;

const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;

/// A device, as its driver reports it.
pub(crate) struct Device {
    pub(crate) uuid: &'static str,
    /// CUDA's total, which is the most that a slice can report.
    pub(crate) total: u64,
    pub(crate) integrated: bool,
    pub(crate) mig: bool,
    /// Whether CUDA lists the device: of a GPU that MIG divides, it lists one instance.
    pub(crate) cuda: bool,
}

const fn card(uuid: &'static str, total: u64) -> Device {
    let (integrated, mig, cuda) = (false, false, true);
    Device {
        uuid,
        total,
        integrated,
        mig,
        cuda,
    }
}

const fn unified(uuid: &'static str, total: u64) -> Device {
    Device {
        integrated: true,
        ..card(uuid, total)
    }
}

const fn instance(uuid: &'static str, total: u64, cuda: bool) -> Device {
    Device {
        mig: true,
        cuda,
        ..card(uuid, total)
    }
}

pub(crate) const RTX3090: Device = card("GPU-3090aaaa-1111-4222-8333-444455550000", 25_438_126_080);
pub(crate) const H200: Device = card("GPU-200aaaaa-2222-4333-8444-555566660000", 143_165 * MIB);
pub(crate) const SECOND_H200: Device =
    card("GPU-200aaaaa-2222-4333-8444-555566660001", 143_165 * MIB);
pub(crate) const INSTANCES: [Device; 3] = [
    instance(
        "MIG-a1111111-3333-5444-8555-666677770000",
        71_300 * MIB,
        true,
    ),
    instance(
        "MIG-b2222222-3333-5444-8555-666677770000",
        16_334 * MIB,
        false,
    ),
    instance(
        "MIG-c3333333-3333-5444-8555-666677770000",
        16_334 * MIB,
        false,
    ),
];
pub(crate) const GB10: Device = unified(
    "GPU-b10aaaaa-4444-4555-8666-777788880000",
    127_600_748 * KIB,
);
pub(crate) const ORIN: Device =
    unified("GPU-0a1aaaaa-5555-4666-8777-888899990000", 64_349_728 * KIB);
pub(crate) const THOR: Device = unified(
    "GPU-7102aaaa-6666-4777-8888-9999aaaa0000",
    128_791_748 * KIB,
);
pub(crate) const N1X: Device = unified(
    "GPU-01baaaaa-7777-4888-8999-aaaabbbb0000",
    127_600_748 * KIB,
);

/// Routes by which functions of libcuda.so.1 and of libnvidia-ml.so.1 are found.
const BY_LINKER: [&str; 13] = [
    "dlsym-local",
    "dlsym-global",
    "rtld-default",
    "rtld-next",
    "linked-program",
    "linked-library",
    "library-rtld-default",
    "library-rtld-next",
    "preloaded-rtld-next",
    "deepbind",
    "deepbind-dlsym",
    "dlmopen",
    "dlmopen-dlsym",
];
/// Routes by which only functions of libcuda.so.1 are found.
const BY_DRIVER: [&str; 5] = [
    "cuGetProcAddress",
    "cuGetProcAddress_v2-legacy",
    "cuGetProcAddress_v2-per-thread",
    "cuGetProcAddress_v2_ptsz",
    "cuGetProcAddress-itself",
];
const OF_CUDA: [&str; 5] = [
    "cuMemGetInfo_v2",
    "cuMemGetInfo",
    "cuDeviceTotalMem_v2",
    "cuDeviceTotalMem",
    "cuDeviceGetAttribute",
];
const OF_NVML: [&str; 2] = ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"];
const OF_CUDART: [&str; 3] = [
    "cudaMemGetInfo",
    "cudaGetDeviceProperties",
    "cudaDeviceGetAttribute",
];

/// Every function, by every route that exists for the device. `shares` says whether it presents itself as
/// one that shares the host's memory.
pub(crate) fn expected(
    device: &Device,
    newest_cudart: u32,
    shares: bool,
) -> BTreeSet<(String, String)> {
    let mut rows: Vec<(&str, &str)> = Vec::new();
    let mut add = |apis: &[&'static str], routes: &[&'static str]| {
        rows.extend(
            apis.iter()
                .flat_map(|api| routes.iter().map(move |route| (*api, *route))),
        );
    };
    add(&OF_NVML, &BY_LINKER);
    if device.mig {
        add(&["nvmlDeviceGetAttributes_v2"], &BY_LINKER);
    }
    if device.cuda {
        add(&OF_CUDA, &BY_LINKER);
        add(&OF_CUDA, &BY_DRIVER);
        add(&OF_CUDART, &["static-cudart", "cudart-11", "cudart-12"]);
        add(&["cudaGetDeviceProperties_v2"], &["cudart-12"]);
        if newest_cudart == 13 {
            add(&OF_CUDART, &["cudart-13"]);
        }
    }
    if device.cuda {
        rows.extend([
            ("vkGetPhysicalDeviceMemoryProperties2", "vulkan-loader"),
            ("vkGetPhysicalDeviceMemoryProperties2", "vulkan-driver"),
            ("clGetDeviceInfo", "opencl-loader"),
            ("clGetDeviceInfo", "opencl-driver"),
        ]);
    }
    if shares {
        rows.push(("/proc/meminfo", "meminfo-libc"));
    }
    rows.into_iter()
        .map(|(api, route)| (api.to_owned(), route.to_owned()))
        .collect()
}
