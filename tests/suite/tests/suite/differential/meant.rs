//! The intended differences between a program in a slice and one without a slice, with reasons.

use super::machines::{Place, Size};

/// A line as it is compared. An amount of memory, which the client marks (`free#123`), is left out:
/// a slice is there to change it.
pub(super) fn shown(line: &str) -> String {
    let mut parts = line.split('#');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push('#');
        shown.push_str(part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    }
    shown
}

/// Whether the driver lists no process. It lists those with a context. A slice lists those that hold
/// memory: a process can keep memory of `cuMemCreate` after the end of its context.
pub(super) fn is_without_context(bare: &str) -> bool {
    let lists = [
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetRunningProcessDetailList",
    ];
    let Some((call, answer)) = bare.split_once(" = ") else {
        return false;
    };
    // The number of processes: 0, also where that was there before.
    let is_empty = answer.starts_with("0 00000000 ") || answer.starts_with("0 - ");
    let is_empty_list = answer.contains("180000010000000000000000");
    lists.iter().any(|name| call.starts_with(name)) && (is_empty || is_empty_list)
}

/// Whether NVML reports no memory, as on devices that share the host's. In a slice it reports the
/// slice, so that all functions agree.
pub(super) fn is_reported_by_slice(place: &Place, bare: &str, sliced: &str) -> bool {
    let Some((call, answer)) = bare.split_once(" = ") else {
        return false;
    };
    let is_memory = call.starts_with("nvmlDeviceGetMemoryInfo");
    let is_unified = place.kind.scenario == "gb10";
    is_unified && is_memory && answer == "3 -" && sliced.starts_with(&format!("{call} = 0 "))
}

/// Whether a call has got no memory from a pool. A slice trims pools before it refuses, so it may have
/// more free memory afterwards than the driver would have had without it.
pub(super) fn trims_pools(sliced: &str) -> bool {
    let is_of_pool = sliced.contains("Async(") || sliced.contains("Async_ptsz(");
    is_of_pool && matches!(code(sliced), Some((_, 2)))
}

/// Whether a pool was destroyed. Its memory that is in use stays counted until it is freed, also if
/// the last context of the device ends first (LIMITS.md, "Accounting that leaks").
pub(super) fn may_leak(bare: &str) -> bool {
    bare.starts_with("cuMemPoolDestroy(") && matches!(code(bare), Some((_, 0)))
}

/// Whether the driver has granted managed memory. A slice counts and limits all of it at the call,
/// the driver only what is on the device: from then on, a slice refuses more than the driver does.
pub(super) fn is_managed(bare: &str) -> bool {
    let names = ["cuMemAllocManaged(", "cudaMallocManaged("];
    names.iter().any(|name| bare.starts_with(name)) && matches!(code(bare), Some((_, 0)))
}

/// The code of a call in a line, and the line before it.
fn code(line: &str) -> Option<(&str, i32)> {
    let (call, rest) = line.split_once(" = ")?;
    let code = rest.split(' ').next()?;
    Some((call, code.parse().ok()?))
}

/// Whether the slice has refused what the card has granted, with the vendor's own code. What comes
/// after that is not compared: the programs do not have the same things any more.
pub(super) fn is_refusal(bare: &str, sliced: &str) -> bool {
    if let Some((made, refused)) = opencl(bare).zip(opencl(sliced)) {
        // CL_MEM_OBJECT_ALLOCATION_FAILURE; clSVMAlloc returns null, and has no code.
        return made.0 != "null" && refused.0 == "null" && matches!(refused.1, -4 | -1_515_870_811);
    }
    let (Some((call, 0)), Some((same, refused))) = (code(bare), code(sliced)) else {
        return false;
    };
    // VK_ERROR_OUT_OF_DEVICE_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation.
    let expected = if call.starts_with("vk") { -2 } else { 2 };
    call == same && refused == expected
}

/// The result of a call of OpenCL that returns a handle and a code.
fn opencl(line: &str) -> Option<(&str, i32)> {
    let (name, code) = line.strip_prefix(" = ")?.split_once(' ')?;
    let is_result = name == "null" || name.starts_with("Cl") || name.starts_with("Svm");
    is_result.then_some((name, code.parse().ok()?))
}

/// The amounts of memory in a line, with their names.
fn numbers(line: &str) -> Vec<(&str, u64)> {
    let mut found = Vec::new();
    let parts: Vec<&str> = line.split('#').collect();
    for pair in parts.windows(2) {
        let name = pair[0].rsplit(' ').next().unwrap_or_default();
        let digits = pair[1].split(' ').next().unwrap_or_default();
        found.extend(digits.parse().ok().map(|number| (name, number)));
    }
    found
}

/// What has happened in a sequence so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    /// Everything was freed.
    pub(super) is_end: bool,
    /// A slice may have trimmed pools.
    pub(super) trimmed: bool,
    /// Memory of a destroyed pool may still count.
    pub(super) leaks: bool,
}

/// Why the numbers of a slice are wrong, if they are. Only those of cuMemGetInfo_v2 are checked:
/// other tests compare all functions that report memory with one another.
pub(super) fn wrong_numbers(
    place: &Place,
    size: Size,
    seen: Seen,
    bare: &str,
    sliced: &str,
) -> Option<String> {
    if !bare.starts_with("cuMemGetInfo_v2") {
        return None;
    }
    let [("free", bare_free), ("total", bare_total)] = numbers(bare)[..] else {
        return None;
    };
    let [("free", free), ("total", total)] = numbers(sliced)[..] else {
        return None;
    };
    if total != bare_total.min(place.limit(size)) {
        return Some(format!("the total is {total}"));
    }
    // On a device that shares the host's memory, page cache is free as well.
    let is_unified = place.kind.scenario == "gb10";
    if free > bare_free && !is_unified && !seen.trimmed {
        return Some(format!(
            "more is free than the driver has: {free} > {bare_free}"
        ));
    }
    // Everything is freed by now. What is left is the context, which both hold.
    let (held, expected) = (total - free, bare_total - bare_free);
    (seen.is_end && !seen.leaks && !is_unified && held != expected)
        .then(|| format!("{held} bytes count as held, and the driver holds {expected}"))
}
