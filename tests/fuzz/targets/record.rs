//! Fuzzes the registry's records, and those of runs, which every user may write. A record that was
//! read and written again is unchanged.
//! Touches: its input; a folder below TMPDIR.
#![no_main]

use gpuslice_config::words::units::Bytes;
use gpuslice_host::machine::process::ProcessId;
use gpuslice_host::slices::records::SliceRecord;
use gpuslice_host::slices::tenants;
use std::fs;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    run(text);
    let Ok(record) = serde_json::from_slice::<SliceRecord>(text) else {
        return;
    };
    let _ = record.unified();
    let written = serde_json::to_vec(&record).expect("a record can be written");
    let again: SliceRecord =
        serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(again, record);
});

/// The record of this process's run.
fn run(text: &[u8]) {
    let folder = std::env::temp_dir().join(format!("record-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("the folder is made");
    let pid = i32::try_from(std::process::id()).expect("a pid");
    let owner = ProcessId::of(pid).expect("this process lives");
    let file = tenants::write(&folder, &owner, "", &[]).expect("the record is written");
    fs::write(&file, text).expect("the record is written");
    let living = tenants::living(&folder, |_| false);
    assert!(living.len() <= 1);
    for tenant in living {
        assert!(!tenant.shown(1).contains(char::is_control));
        let total = Bytes::gib(8);
        for budget in &tenant.devices {
            assert!(tenant.of_card(budget.uuid, total) <= total);
        }
        tenants::write(&folder, &owner, &tenant.name, &tenant.devices).expect("it is written");
        assert_eq!(
            tenants::living(&folder, |_| false),
            [tenant],
            "a record that was written again"
        );
    }
    let id = tenants::promise_id(&owner, &String::from_utf8_lossy(text));
    let read = tenants::promise_owner(&id);
    assert_eq!(read.map(|(owner, _)| owner), Some(owner));
}
