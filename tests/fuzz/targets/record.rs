//! Fuzzes the registry's records. A record that was read and written again is unchanged.
//! Touches: its input.
#![no_main]

use gpuslice_host::slices::records::SliceRecord;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Ok(record) = serde_json::from_slice::<SliceRecord>(text) else {
        return;
    };
    let _ = record.unified();
    let written = serde_json::to_vec(&record).expect("a record can be written");
    let again: SliceRecord = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(again, record);
});
