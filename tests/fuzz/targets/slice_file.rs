//! Fuzzes slice files. A slice that was read and written again is unchanged.
//! Touches: its input.
#![no_main]

use gpuslice_config::slice::parse;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(slice) = parse(text) else { return };
    let written = slice.to_json();
    let again = parse(written.as_bytes()).expect("what was written can be read");
    assert_eq!(again.to_json(), written);
    for device in slice.devices() {
        assert!(slice.device(device.uuid).is_some());
    }
});
