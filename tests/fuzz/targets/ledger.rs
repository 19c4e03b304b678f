//! Fuzzes what the host reads of a ledger: tenants may write anything into theirs.
//! Touches: its input, as a file below TMPDIR.
#![no_main]

use gpuslice_config::ledger::{SIZE, Snapshot, beginning};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    // Not in memory: a ledger is never opened through a link, as /proc/self/fd has them.
    let file = std::env::temp_dir().join(format!("ledger-{}", std::process::id()));
    // The input is what follows the header; what it leaves out is zero.
    let mut contents = [&beginning()[..], text].concat();
    contents.resize(SIZE, 0);
    fs::write(&file, contents).expect("the ledger is written");
    let path = CString::new(file.as_os_str().as_bytes()).expect("a path without nul");
    let mut bytes = Box::new([0; SIZE]);
    let snapshot = Snapshot::read(&path, &mut bytes).expect("the header is right");
    let _ = (snapshot.uncounted(), snapshot.refusals().count());
    for record in snapshot.slots() {
        let kinds = record.by_kind.iter().map(|(_, held)| *held);
        assert_eq!(kinds.fold(0, u64::saturating_add), record.used);
    }
});
