//! Charges the reservations of pools and graphs to their device's account.
//! Touches: the ledger, through the account.

use gpuslice_config::ledger::{self, Kind};
use gpuslice_config::words::units::Bytes;

use super::{Account, Outcome};
use crate::sys;

impl ledger::Account for Account {
    fn claim(&self, bytes: Bytes) -> bool {
        !matches!(self.try_claim(bytes, Kind::Pool), Outcome::Refused(_))
    }

    fn record(&self, bytes: Bytes) {
        Account::record(self, bytes, Kind::Pool);
    }

    fn release(&self, bytes: Bytes) {
        Account::release(self, bytes, Kind::Pool);
    }

    fn wait(&self) {
        sys::nap();
    }

    fn clock(&self) -> u64 {
        sys::clock()
    }
}
