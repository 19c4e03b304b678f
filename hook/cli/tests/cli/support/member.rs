//! Makes this test process a member of a slice. It writes to the slice's ledger as the preloaded
//! library of another process would.
//! Touches: the ledger of that slice.

use gpuslice_config::ledger::{Claim, Device, Kind, Ledger, Open};
use gpuslice_config::slice;
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;
use std::ffi::CString;
use std::fs;

/// The GPU of the simulated RTX 3090.
pub(crate) const GPU: &str = "GPU-3090aaaa-1111-4222-8333-444455550000";

/// This process as a member of a slice.
pub(crate) struct Member {
    ledger: Ledger,
    device: Device,
}

impl Member {
    /// Joins the slice that a slice file describes.
    pub(crate) fn of(config: &str) -> Member {
        Member::of_ledger(&ledger_of(config))
    }

    /// Joins the slice that has this ledger.
    pub(crate) fn of_ledger(path: &str) -> Member {
        let ledger = Ledger::open(&CString::new(path).unwrap(), Open::Existing).unwrap();
        let device = ledger.device(&GPU.parse::<DeviceUuid>().unwrap()).unwrap();
        Member { ledger, device }
    }

    /// Claims that much memory.
    pub(crate) fn take(&self, bytes: Bytes, kind: Kind) {
        let claim = self.ledger.claim(self.device, bytes, kind, Bytes::MAX);
        assert_eq!(claim, Claim::Granted);
    }

    /// Releases that much memory.
    pub(crate) fn give_back(&self, bytes: Bytes, kind: Kind) {
        self.ledger.release(self.device, bytes, kind);
    }

    /// Records a refused request that was short by that much.
    pub(crate) fn is_refused(&self, short_by: Bytes) {
        self.ledger.refused(self.device, short_by);
    }
}

/// The ledger that a slice file names.
pub(crate) fn ledger_of(config: &str) -> String {
    let slice = slice::parse(&fs::read(config).unwrap()).unwrap();
    slice.ledger.unwrap().as_str().to_owned()
}

/// The command name of this process.
pub(crate) fn own_name() -> String {
    let path = format!("/proc/{}/comm", std::process::id());
    fs::read_to_string(path).unwrap().trim().to_owned()
}
