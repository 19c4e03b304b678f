//! The table and the probes: every line of the one has its lines in the other.
//! Touches: `shim/src/symbols.rs`, by inclusion.

use gpuslice_probes::Bench;
use std::collections::BTreeSet;

/// The names of the table.
macro_rules! symbols {
    ($( $lib:ident fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $($hook:ident)::+
        $(, as $base:literal since $since:literal $($per_thread:ident)? )? ; )*) => {
        const NAMES: &[(&str, &str)] = &[$( (stringify!($lib), stringify!($name)) ),*];
    };
}

include!("../../../../shim/src/symbols.rs");

#[test]
fn every_line_of_the_table_has_a_probe() {
    let bench = Bench::counted("rtx3090", "\"memory\":8589934592");
    let mut probed = BTreeSet::new();
    for (probe, major) in [
        ("cuda_array", 12),
        ("cuda_capture", 12),
        ("cuda_context", 12),
        ("cuda_copy", 13),
        ("cuda_graph", 12),
        ("cuda_green", 12),
        ("cuda_ipc", 12),
        ("cuda_linear", 12),
        ("cuda_memory", 12),
        ("cuda_pinned", 12),
        ("cuda_pool", 12),
        ("cuda_attribute", 12),
        ("cuda_resolve", 12),
        ("cuda_vmm", 12),
        ("runtime_memory", 12),
        ("runtime_properties", 12),
        ("runtime_entry_point", 12),
        ("nvml_memory", 12),
        ("nvml_attributes", 12),
        ("nvml_processes", 12),
    ] {
        for line in bench.probe(probe, major, "dlsym").lines() {
            probed.insert(line.split(' ').next().unwrap().to_owned());
        }
    }
    let lacking: Vec<&str> = NAMES
        .iter()
        // The ways of libc are gone by every probe, and tested in `safety.rs`.
        .filter(|(library, name)| *library != "Libc" && !probed.contains(*name))
        .map(|(_, name)| *name)
        .collect();
    assert_eq!(lacking, [""; 0]);
}
