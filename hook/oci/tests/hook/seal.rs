//! Ledgers that are sealed as the hook seals them.
//! Touches: mounts in a namespace of this test's own; needs root.

use gpuslice_config::ledger::{Kind, Ledger, Open, Snapshot, size_for};
use gpuslice_config::words::units::Bytes;
use gpuslice_hook::apply::seal;
use gpuslice_host::base::sys;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

#[test]
fn a_sealed_ledger_counts_and_nobody_cuts_it() {
    if !nix::unistd::geteuid().is_root() || unshare(CloneFlags::CLONE_NEWNS).is_err() {
        eprintln!("skipped: needs root");
        return;
    }
    let (none, private) = (None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC);
    mount(none, "/", none, private, none).unwrap();
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = folder.path().join("slice");
    std::fs::create_dir(&place).unwrap();
    let ledger = place.join("ledger");
    for devices in [1, 8] {
        if let Err(error) = seal::make(&place, devices) {
            sys::unmount(&place).unwrap();
            eprintln!("skipped: this kernel cannot seal a ledger ({error})");
            return;
        }
        assert!(seal::is_sealed(&ledger));
        let facts = std::fs::metadata(&ledger).unwrap();
        assert_eq!(facts.len(), size_for(devices) as u64);
        for length in [0, 4096, 1 << 40] {
            let file = std::fs::OpenOptions::new().write(true).open(&ledger);
            let cut = file.unwrap().set_len(length).unwrap_err();
            assert_eq!(cut.kind(), std::io::ErrorKind::PermissionDenied);
        }
        let path = CString::new(ledger.as_os_str().as_bytes()).unwrap();
        let opened = Ledger::open(&path, Open::Existing).unwrap();
        let uuid = "GPU-3090aaaa-1111-4222-8333-444455550000".parse().unwrap();
        let gpu = opened.device(&uuid).unwrap();
        let claim = |bytes| opened.claim(gpu, Bytes::new(bytes), Kind::Linear, Bytes::new(100));
        assert_eq!(claim(60), gpuslice_config::ledger::Claim::Granted);
        assert_ne!(claim(60), gpuslice_config::ledger::Claim::Granted);
        let mut bytes = vec![0; size_for(devices)];
        let seen = Snapshot::read(&path, &mut bytes).unwrap();
        let held: Vec<_> = seen.slots().map(|slot| (slot.used, slot.alive)).collect();
        assert_eq!(held, [(60, true)]);
        assert!(seen.is_sealed());
        sys::unmount(&place).unwrap();
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
    }
    let mut best = u128::MAX;
    for _ in 0..50 {
        let start = Instant::now();
        seal::make(&place, 1).unwrap();
        best = best.min(start.elapsed().as_micros());
        sys::unmount(&place).unwrap();
    }
    eprintln!("sealed in {best} µs at best");
}
