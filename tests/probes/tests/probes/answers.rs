//! Every hooked API, by every route to it, in a slice: the exact numbers.
//! Touches: simulated machines.

use gpuslice_probes::{Bench, ROUTES};

const SLICE: u64 = 8 << 30;
/// The bytes that the probe's context holds on a simulated RTX 3090.
const CONTEXT: u64 = 254 << 20;
const EIGHT: &str = "\"memory\":8589934592";

/// Asserts that a probe prints the same numbers by every route.
fn says(bench: &Bench, probe: &str, major: u32, expected: &str) {
    for route in ROUTES {
        let said = bench.probe(probe, major, route);
        assert_eq!(said, expected, "{probe} of CUDA {major} by {route}");
    }
}

#[test]
fn cuda_memory_is_the_slices() {
    let free = SLICE - CONTEXT;
    let full = u32::MAX;
    let expected = format!(
        "cuMemGetInfo_v2 0 total={SLICE} free={free}\n\
         cuMemGetInfo 0 total={full} free={full} beside=7,7\n\
         cuDeviceTotalMem_v2 0 total={SLICE}\n\
         cuDeviceTotalMem 0 total={full} beside=7\n"
    );
    says(
        &Bench::sliced("rtx3090", EIGHT),
        "cuda_memory",
        12,
        &expected,
    );
}

#[test]
fn a_slice_that_fits_32_bits_is_exact_in_32_bits() {
    let (total, free) = (2u64 << 30, (2u64 << 30) - CONTEXT);
    let expected = format!(
        "cuMemGetInfo_v2 0 total={total} free={free}\n\
         cuMemGetInfo 0 total={total} free={free} beside=7,7\n\
         cuDeviceTotalMem_v2 0 total={total}\n\
         cuDeviceTotalMem 0 total={total} beside=7\n"
    );
    let bench = Bench::sliced("rtx3090", "\"memory\":2147483648");
    says(&bench, "cuda_memory", 12, &expected);
}

#[test]
fn what_cugetprocaddress_gives_out_is_ours_however_it_is_reached() {
    let numbers = format!("0 total={SLICE} free={}", SLICE - CONTEXT);
    let expected = format!(
        "cuGetProcAddress {numbers}\n\
         cuGetProcAddress_v2 {numbers}\n\
         cuGetProcAddress_v2_ptsz {numbers}\n\
         unknown 0 status=1 null=1\n\
         empty 0 status=1 null=1\n"
    );
    says(
        &Bench::sliced("rtx3090", EIGHT),
        "cuda_resolve",
        12,
        &expected,
    );
}

#[test]
fn a_driver_that_gives_out_private_addresses_is_answered_for_all_the_same() {
    let bench = Bench::sliced("rtx3090", EIGHT);
    let program = gpuslice_probes::compile("cuda_memory", gpuslice_probes::Linked::All(12));
    let run = bench.run(&program).arg("procaddress").with_shim();
    let said = gpuslice_probes::said(run.env("GPUSLICE_SIM_FAULTS", "procaddress-private"));
    let free = SLICE - CONTEXT;
    assert!(
        said.starts_with(&format!("cuMemGetInfo_v2 0 total={SLICE} free={free}\n")),
        "{said}"
    );
}

#[test]
fn the_runtime_says_what_the_driver_says() {
    for major in [11, 12, 13] {
        let bench = Bench::sliced("rtx3090", EIGHT);
        let expected = format!(
            "cudaMemGetInfo 0 total={SLICE} free={}\ncudaDeviceGetAttribute 0 integrated=0\n",
            SLICE - CONTEXT
        );
        says(&bench, "runtime_memory", major, &expected);
        let mut expected =
            format!("cudaGetDeviceProperties 0 total={SLICE} integrated=0 beyond=0\n");
        if major == 12 {
            expected += &expected.replace("Properties", "Properties_v2");
        }
        says(&bench, "runtime_properties", major, &expected);
    }
}

#[test]
fn the_runtimes_way_to_the_driver_leads_to_us() {
    let numbers = format!("0 total={SLICE} free={}\n", SLICE - CONTEXT);
    let plain = ["cudaGetDriverEntryPoint", "cudaGetDriverEntryPoint_ptsz"];
    let by_version = [
        "cudaGetDriverEntryPointByVersion",
        "cudaGetDriverEntryPointByVersion_ptsz",
    ];
    for (major, names) in [
        (11, plain.to_vec()),
        (12, [plain, by_version].concat()),
        (13, by_version.to_vec()),
    ] {
        let expected: String = names
            .iter()
            .map(|name| format!("{name} {numbers}"))
            .collect();
        let bench = Bench::sliced("rtx3090", EIGHT);
        says(&bench, "runtime_entry_point", major, &expected);
    }
}

#[test]
fn nvml_says_what_cuda_says() {
    let free = SLICE - CONTEXT;
    let expected = format!(
        "nvmlDeviceGetMemoryInfo 0 total={SLICE} free={free} used={CONTEXT}\n\
         nvmlDeviceGetMemoryInfo_v2 0 total={SLICE} reserved=0 free={free} used={CONTEXT}\n\
         nvmlDeviceGetConfComputeProtectedMemoryUsage 0 total=0 free=0 used=0\n"
    );
    says(
        &Bench::sliced("rtx3090", EIGHT),
        "nvml_memory",
        12,
        &expected,
    );
}

#[test]
fn a_mig_instance_is_as_large_as_the_slice() {
    let keys = "\"devices\":[{\"uuid\":\"MIG-a1111111-3333-5444-8555-666677770000\",\
                \"memory\":8589934592}]";
    let bench = Bench::sliced("h200-mig", keys);
    let expected = "nvmlDeviceGetAttributes 0 MB=8192\n\
                    nvmlDeviceGetAttributes_v2 0 MB=8192\n\
                    nvmlDeviceGetMemoryLimits_v1 13 soft=1 hard=1\n";
    says(&bench, "nvml_attributes", 12, expected);
    // CUDA reports the bytes of the instance, and has no query for its kind.
    let said = bench.probe("cuda_memory", 12, "plt");
    assert!(
        said.starts_with("cuMemGetInfo_v2 0 total=8589934592 "),
        "{said}"
    );
}

#[test]
fn a_device_that_the_slice_does_not_name_is_left_alone() {
    let keys = "\"devices\":[{\"uuid\":\"GPU-00000000-3333-5444-8555-666677770000\",\
                \"memory\":8589934592}]";
    let other = Bench::sliced("rtx3090", keys);
    for probe in [
        "cuda_memory",
        "runtime_memory",
        "nvml_memory",
        "nvml_attributes",
    ] {
        let program = gpuslice_probes::compile(probe, gpuslice_probes::Linked::All(12));
        let bare = Bench::bare("rtx3090").run(&program).answer().clean();
        assert_eq!(other.probe(probe, 12, "plt"), bare, "{probe}");
    }
}

/// A slice of 40 GiB on a DGX Spark. Without a ledger, the host's whole use counts as the slice's:
/// MemTotal - MemAvailable, which includes the probe's context.
const SPARK: u64 = 40 << 30;
const SPARK_KEYS: &str = "\"memory\":42949672960,\"reserve\":8589934592";
const SPARK_USED: u64 = ((127_600_748 - 121_267_812) << 10) + (256 << 20);

#[test]
fn on_unified_memory_cuda_and_nvml_tell_the_hosts_truth() {
    let bench = Bench::sliced("gb10", SPARK_KEYS);
    let free = SPARK - SPARK_USED;
    for route in ROUTES {
        let said = bench.probe("cuda_memory", 12, route);
        let expected = format!("cuMemGetInfo_v2 0 total={SPARK} free={free}\n");
        assert!(said.starts_with(&expected), "{said}");
    }
    let expected = format!(
        "nvmlDeviceGetMemoryInfo 0 total={SPARK} free={free} used={SPARK_USED}\n\
         nvmlDeviceGetMemoryInfo_v2 0 total={SPARK} reserved=0 free={free} used={SPARK_USED}\n\
         nvmlDeviceGetConfComputeProtectedMemoryUsage 3 total=1 free=1 used=1\n"
    );
    says(&bench, "nvml_memory", 12, &expected);
    says(
        &bench,
        "cuda_attribute",
        12,
        "cuDeviceGetAttribute 0 integrated=1 processors=1\n",
    );
}

#[test]
fn a_carve_out_is_not_the_memory_of_the_machine() {
    // NVML reports 8128 MiB there. In a slice, CUDA and NVML must report the same size.
    let bench = Bench::sliced("n1x", SPARK_KEYS);
    let cuda = bench.probe("cuda_memory", 12, "plt");
    let nvml = bench.probe("nvml_memory", 12, "plt");
    let numbers = cuda.lines().next().unwrap().split_once(' ').unwrap().1;
    assert!(
        numbers.starts_with(&format!("0 total={SPARK} free=")),
        "{cuda}"
    );
    let nvml = nvml.lines().next().unwrap();
    assert!(
        nvml.starts_with(&format!("nvmlDeviceGetMemoryInfo {numbers} used=")),
        "{nvml}"
    );
}

#[test]
fn a_device_that_claims_to_be_discrete_claims_it_everywhere() {
    let keys = format!("{SPARK_KEYS},\"present_as\":\"discrete\"");
    let bench = Bench::sliced("gb10", &keys);
    says(
        &bench,
        "cuda_attribute",
        12,
        "cuDeviceGetAttribute 0 integrated=0 processors=1\n",
    );
    let said = bench.probe("runtime_memory", 12, "dlsym");
    assert!(
        said.ends_with("cudaDeviceGetAttribute 0 integrated=0\n"),
        "{said}"
    );
    for (major, more) in [(12, true), (13, false)] {
        let mut expected =
            format!("cudaGetDeviceProperties 0 total={SPARK} integrated=0 beyond=0\n");
        if more {
            expected += &expected.replace("Properties", "Properties_v2");
        }
        says(&bench, "runtime_properties", major, &expected);
    }
}

#[test]
fn every_copy_to_the_device_arrives_by_every_route() {
    let names = [
        "cuMemcpyHtoD",
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoD_v2_ptds",
        "cuMemcpyHtoDAsync",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyHtoDAsync_v2_ptsz",
        "cuMemcpy",
        "cuMemcpy_ptds",
        "cuMemcpyAsync",
        "cuMemcpyAsync_ptsz",
        "cuMemcpyBatchAsync",
        "cuMemcpyBatchAsync_ptsz",
        "cuMemcpyBatchAsync_v2",
        "cuMemcpyBatchAsync_v2_ptsz",
    ];
    let expected: String = names
        .iter()
        .map(|name| format!("{name} 0 arrived\n"))
        .collect();
    for keys in [
        EIGHT,
        "\"memory\":8589934592,\"page_cache\":\"drop-behind\"",
    ] {
        says(&Bench::sliced("rtx3090", keys), "cuda_copy", 13, &expected);
    }
}
