//! Fuzzes the host's reader of ledgers. Tenants may write anything into their ledger.
//! Touches: its input, as a file below TMPDIR.
#![no_main]

use gpuslice_config::ledger::{Locks, MAX_SIZE, Snapshot, beginning, size_for};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;

// The first byte of the input holds the number of devices, and whether the header is right. The
// input is padded with zeros to the size of a ledger.
libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let Some((first, text)) = text.split_first() else {
        return;
    };
    let (devices, right) = (usize::from(first % 8), first & 0x80 == 0);
    let header = beginning(devices, Locks::Ledger);
    let head = if right { &header[..] } else { &[] };
    let mut contents = [head, text].concat();
    contents.resize(size_for(devices), 0);
    // This cannot be a file in memory: its path in /proc/self/fd is a link, and a ledger is never
    // opened through a link.
    let file = std::env::temp_dir().join(format!("ledger-{}", std::process::id()));
    fs::write(&file, contents).expect("the ledger is written");
    let path = CString::new(file.as_os_str().as_bytes()).expect("a path without nul");
    let mut bytes = vec![0; MAX_SIZE];
    let snapshot = match Snapshot::read(&path, &mut bytes) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            assert!(!right, "{error}");
            return;
        }
    };
    let _ = (snapshot.uncounted(), snapshot.refusals().count());
    for record in snapshot.slots() {
        let kinds = record.by_kind.iter().map(|(_, held)| *held);
        assert_eq!(kinds.fold(0, u64::saturating_add), record.used);
    }
});
