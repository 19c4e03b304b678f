//! The metrics: their names, types, labels and meanings. The handbook has the same table.
//! Touches: nothing.
//! Law: names and labels are an interface. A metric may be added; one is not renamed.

use super::exposition::{Family, Type};

/// The labels of a slice's metrics.
pub(super) const SLICE: &str = "slice";
/// The labels of a slice's metrics on one GPU.
pub(super) const SHARE: &str = "slice, GPU";
/// The labels of a GPU's metrics.
pub(super) const GPU: &str = "GPU";
/// Metrics of the machine or of gpuslice have no labels.
pub(super) const NONE: &str = "";

const fn bytes(name: &'static str, labels: &'static str, help: &'static str) -> Family {
    Family {
        name,
        unit: Some("bytes"),
        kind: Type::Gauge,
        labels,
        help,
    }
}

const fn gauge(name: &'static str, labels: &'static str, help: &'static str) -> Family {
    Family {
        unit: None,
        ..bytes(name, labels, help)
    }
}

const fn counter(name: &'static str, labels: &'static str, help: &'static str) -> Family {
    Family {
        kind: Type::Counter,
        ..gauge(name, labels, help)
    }
}

const fn with_unit(unit: &'static str, family: Family) -> Family {
    Family {
        unit: Some(unit),
        ..family
    }
}

macro_rules! families {
    ($($constant:ident = $family:expr;)*) => {
        $(pub(super) const $constant: Family = $family;)*

        /// All of them, in the order of the output.
        pub const ALL: &[Family] = &[$($constant),*];
    };
}

families! {
    BUILD_INFO = gauge("gpuslice_build_info", "version", "1, with the version of gpuslice.");
    COLLECTED = with_unit("seconds", gauge("gpuslice_collected_timestamp", NONE,
        "Time at which these numbers were collected, in seconds since 1970."));
    COLLECTION = with_unit("seconds", gauge("gpuslice_collection_duration", NONE,
        "Time that collecting these numbers took."));

    WARNINGS = gauge("gpuslice_warnings", "kind",
        "Warnings of gpuslice status, by kind.");

    SLICE_INFO = gauge("gpuslice_slice_info", "slice, fence, total, pod_uid",
        "1, with properties of the slice. fence is driver, preload, counted (nothing is refused) or none.");
    SLICE_READABLE = gauge("gpuslice_slice_readable", SLICE,
        "1 if the slice and its ledger could be read; 0 if its numbers are missing here.");
    SLICE_IN_FORCE = gauge("gpuslice_slice_in_force", SLICE,
        "0 if no program of the slice's containers loads the library, so that nothing is limited.");
    STARTED = with_unit("seconds", gauge("gpuslice_slice_start_time", SLICE,
        "Start of the slice's command, in seconds since 1970."));
    UNCOUNTED = counter("gpuslice_uncounted_allocations", SLICE,
        "Allocations for which the slice's ledger had no room.");
    PROMISE = bytes("gpuslice_promise", SLICE,
        "Unified memory that the host has promised to the slice.");
    PROMISE_UNUSED = bytes("gpuslice_promise_unused", SLICE, "Unused part of the promise.");
    PAGE_AGE = with_unit("seconds", gauge("gpuslice_meminfo_page_age", SLICE,
        "Time since the slice's meminfo page was written. Its time is renewed each second."));

    LIMIT = bytes("gpuslice_limit", SHARE, "Device memory that the slice may hold.");
    USED = bytes("gpuslice_used", "slice, GPU, kind",
        "Device memory that the slice's processes have allocated, by kind.");
    FREE = bytes("gpuslice_free", SHARE, "Unused part of the limit.");
    USAGE = with_unit("ratio", gauge("gpuslice_usage", SHARE,
        "Used part of the limit, from 0 to 1."));
    HEADROOM = bytes("gpuslice_headroom", SHARE,
        "Part of the limit that is withheld from the reported total.");
    REFUSALS = counter("gpuslice_refusals", SHARE,
        "Requests that were refused because they exceeded the limit.");
    SHORTFALL = bytes("gpuslice_refusal_shortfall_max", SHARE,
        "Largest amount by which a refused request exceeded the limit.");
    PROCESSES = gauge("gpuslice_processes", SHARE, "Processes that hold device memory.");
    BYPASSING = bytes("gpuslice_bypassing", SHARE,
        "Device memory that the driver reports for processes without the library.");
    BYPASSING_PROCESSES = gauge("gpuslice_bypassing_processes", SHARE,
        "Processes of the slice that hold device memory without the library.");

    GPU_INFO = gauge("gpuslice_gpu_info", "GPU, name, unified", "1, with the name of the GPU.");
    GPU_TOTAL = bytes("gpuslice_gpu_total", GPU, "Memory of the GPU.");
    GPU_USED = bytes("gpuslice_gpu_used", GPU, "Memory of the GPU in use by all programs.");
    GPU_IN_SLICES = bytes("gpuslice_gpu_in_slices", GPU, "Used memory that slices count.");
    GPU_OUTSIDE = bytes("gpuslice_gpu_outside_slices", GPU, "Used memory that no slice counts.");
    GPU_LIMITS = bytes("gpuslice_gpu_limits_sum", GPU, "Sum of the limits of all slices.");
    GPU_LEFT = bytes("gpuslice_gpu_left", GPU, "Memory that another slice can be given.");

    HOST_TOTAL = bytes("gpuslice_host_total", NONE, "Memory of the host.");
    HOST_AVAILABLE = bytes("gpuslice_host_available", NONE,
        "Memory of the host that is available.");
    HOST_RESERVE = bytes("gpuslice_host_reserve", NONE,
        "Memory that the host keeps for itself on unified memory.");
    HOST_LEFT = bytes("gpuslice_host_left", NONE,
        "Unified memory that the host can promise to another slice.");

    GUARD_LEVEL = gauge("gpuslice_guard_level", NONE,
        "How short of memory the guard sees the host: 0 enough, 1 warn, 2 short, 3 terminate, 4 kill.");
    GUARD_SEEN = with_unit("seconds", gauge("gpuslice_guard_seen_timestamp", NONE,
        "Time at which the guard last worked, in seconds since 1970."));
    GUARD_NAMED = counter("gpuslice_guard_named_processes", NONE,
        "Processes that the guard has named because they hold memory beyond their slice.");
    GUARD_TERMINATED = counter("gpuslice_guard_terminations", NONE,
        "Slices and processes that the guard has asked to end.");
    GUARD_KILLED = counter("gpuslice_guard_kills", NONE,
        "Slices and processes that the guard has killed.");
    GUARD_SNAPSHOTS = counter("gpuslice_guard_snapshots", NONE,
        "Lists of processes that the guard has asked the driver for.");

    CACHE_DROPPED = with_unit("bytes", counter("gpuslice_page_cache_dropped", NONE,
        "Page cache that gpusliced has dropped."));
    CACHE_DROPS = counter("gpuslice_page_cache_drops", NONE,
        "Model files of which gpusliced has dropped page cache.");
    CACHE_KEPT = with_unit("bytes", counter("gpuslice_page_cache_kept", NONE,
        "Page cache of model files that gpusliced could not drop."));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_conventions_of_prometheus() {
        let mut seen = BTreeSet::new();
        for family in ALL {
            let name = family.full_name();
            let letters = |one: char| one.is_ascii_lowercase() || one == '_';
            assert!(
                name.starts_with("gpuslice_") && name.chars().all(letters),
                "{name}"
            );
            assert_eq!(
                name.ends_with("_total"),
                family.kind == Type::Counter,
                "{name}"
            );
            assert!(family.help.ends_with('.'), "{name}");
            assert!(seen.insert(name));
        }
    }
}
