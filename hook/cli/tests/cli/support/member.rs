//! A process of a slice: this one, which takes what it is told to and gives the slice's ledger
//! what the preloaded library of another would.
//! Touches: the ledger of that slice.

use gpuslice_config::ledger::{Claim, Device, Kind, Ledger, Open};
use gpuslice_config::slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::ffi::CString;
use std::fs;

/// The GPU of the simulated RTX 3090.
pub(crate) const GPU: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

/// This process, in a slice.
pub(crate) struct Member {
    ledger: Ledger,
    device: Device,
}

impl Member {
    /// Joins the slice of a slice file.
    pub(crate) fn of(config: &str) -> Member {
        Member::of_ledger(&ledger_of(config))
    }

    /// Joins the slice of a ledger.
    pub(crate) fn of_ledger(path: &str) -> Member {
        let ledger = Ledger::open(&CString::new(path).unwrap(), Open::Existing).unwrap();
        let device = ledger.device(&GPU.parse::<DeviceUuid>().unwrap()).unwrap();
        Member { ledger, device }
    }

    /// Takes that much.
    pub(crate) fn take(&self, bytes: Bytes, kind: Kind) {
        let claim = self.ledger.claim(self.device, bytes, kind, Bytes::MAX);
        assert_eq!(claim, Claim::Granted);
    }

    /// Is refused a request that was short by that much.
    pub(crate) fn is_refused(&self, short_by: Bytes) {
        self.ledger.refused(self.device, short_by);
    }
}

/// The ledger that a slice file names.
pub(crate) fn ledger_of(config: &str) -> String {
    let slice = slice::parse(&fs::read(config).unwrap()).unwrap();
    slice.ledger.unwrap().as_str().to_owned()
}

/// What this process is called.
pub(crate) fn own_name() -> String {
    let path = format!("/proc/{}/comm", std::process::id());
    fs::read_to_string(path).unwrap().trim().to_owned()
}
