//! Fuzzes the parsers of the host's files about memory: memory pressure and cgroups. No amount is
//! larger than the file says.
//! Touches: its input.
#![no_main]

use gpuslice_config::host::{cgroup, pressure};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    for share in [pressure::full_avg10(text), pressure::some_avg10(text)] {
        assert!(share.is_none_or(|share| share <= 10_000));
    }
    let _ = cgroup::of_process(text, 4096);
    let (current, stat) = text.split_at(text.len().min(16));
    if let Some(held) = cgroup::of_cgroup(current, stat) {
        assert!(cgroup::amount(current).is_some_and(|all| held <= all));
    }
    if let Some(amount) = cgroup::amount(text) {
        let written = amount.get().to_string();
        assert_eq!(cgroup::amount(written.as_bytes()), Some(amount));
    }
});
