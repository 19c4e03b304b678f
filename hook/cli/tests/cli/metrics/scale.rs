//! A node with very many slices.

use super::{Daemon, samples};
use crate::support::{Home, processor_time};
use gpuslice_config::ledger::{Claim, Kind, Ledger, Open};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

const SLICES: usize = 72;
const GPUS: usize = 8;

/// Registers slices of this process on eight GPUs each, as runs with a slice file of their own do.
fn slices(home: &Home) -> Vec<Ledger> {
    let registry = home.runtime.path().join("gpuslice");
    fs::create_dir(&registry).unwrap();
    fs::set_permissions(&registry, fs::Permissions::from_mode(0o700)).unwrap();
    let uuids: Vec<DeviceUuid> = (0..GPUS)
        .map(|gpu| {
            format!("GPU-{gpu:08}-1111-4222-8333-444455550000")
                .parse()
                .unwrap()
        })
        .collect();
    (0..SLICES)
        .map(|slice| {
            let file = home.runtime.path().join(format!("{slice}.json"));
            let ledger = home.runtime.path().join(format!("{slice}.ledger"));
            let devices: Vec<String> = uuids
                .iter()
                .map(|uuid| format!(r#"{{"uuid": "{uuid}", "memory": 8589934592}}"#))
                .collect();
            let text = format!(
                r#"{{"version": 1, "name": "s{slice}", "ledger": "{}", "devices": [{}]}}"#,
                ledger.display(),
                devices.join(",")
            );
            fs::write(&file, text).unwrap();
            symlink(
                &file,
                registry.join(format!("s{slice}-{}", std::process::id())),
            )
            .unwrap();
            let mode = Open::Create {
                mode: 0o600,
                devices: GPUS,
            };
            let ledger = CString::new(ledger.to_str().unwrap()).unwrap();
            let ledger = Ledger::open(&ledger, mode).unwrap();
            for uuid in &uuids {
                let device = ledger.device(uuid).unwrap();
                let claim = ledger.claim(device, Bytes::gib(1), Kind::Linear, Bytes::MAX);
                assert_eq!(claim, Claim::Granted);
            }
            ledger
        })
        .collect()
}

#[test]
fn ten_thousand_series_are_collected_and_sent_in_little_time() {
    let home = Home::new();
    let _ledgers = slices(&home);
    let daemon = Daemon::start(&home, "");
    // The first scrape asks the driver, which takes its own time.
    daemon.get("/metrics");
    let mut best = Duration::MAX;
    let before = processor_time(daemon.process.id());
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(1100));
        let start = Instant::now();
        let text = daemon.get("/metrics");
        best = best.min(start.elapsed());
        let all = samples(&text);
        assert!(all.len() >= 10_000, "{}", all.len());
    }
    let each = (processor_time(daemon.process.id()) - before) / 3;
    eprintln!("10,000 series: {best:?} by the clock, {each:?} of the processor");
    // Processor time, which other load does not change much. A build without optimisation takes
    // about ten times as long.
    let bound = Duration::from_millis(if cfg!(debug_assertions) { 2000 } else { 50 });
    assert!(each <= bound, "{each:?}");
}
