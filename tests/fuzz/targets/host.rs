//! Fuzzes the parsers of the host's files: meminfo, cgroup, pressure, promises, processes.
//! Touches: its input.
#![no_main]

use gpuslice_config::promises::Promise;
use gpuslice_config::host::{cgroup, meminfo, pressure};
use gpuslice_host::machine::process;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let _ = (
        meminfo::parse(text),
        pressure::full_avg10(text),
        process::parse(text),
    );
    let _ = (cgroup::amount(text), cgroup::of_process(text, 4096));
    let (current, stat) = text.split_at(text.len().min(16));
    let _ = cgroup::of_cgroup(current, stat);
    if let Some(promise) = Promise::named(text) {
        assert!(promise.unused(stat) <= promise.budget);
        let name = [
            promise.budget.get().to_string().as_bytes(),
            b".",
            promise.slice,
        ]
        .concat();
        assert_eq!(name, text, "two names mean the same promise");
    }
});
