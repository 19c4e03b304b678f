//! Fuzzes the list of GPUs, /run/gpuslice/devices.json.
//! Touches: its input.
#![no_main]

use gpuslice_host::machine::devices;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(devices) = devices::parse(text) else {
        return;
    };
    let _ = devices.indices();
    for target in devices.targets() {
        let _ = target.uuid.to_string();
    }
});
