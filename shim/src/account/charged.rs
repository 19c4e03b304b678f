//! Charges the reservations of pools and graphs to their device's account.
//! Touches: the ledger, through the account; the current device's entry of the slice.

use gpuslice_config::ledger::{self, Kind};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use super::pools::Pool;
use super::{Account, Outcome, by_ordinal, sharing_host};
use crate::answer::location::{self, Location};
use crate::real::copies::CopyId;
use crate::state::reservations::What;
use crate::sys;

/// The properties of a pool that decide which account is charged for it: values of
/// `CUmemPoolProps`.
#[derive(Clone, Copy)]
pub(crate) struct PoolPlace {
    /// The allocation type.
    pub(crate) kind: i32,
    /// The location's type.
    pub(crate) location: i32,
    /// The location's id.
    pub(crate) id: i32,
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`: any memory that is not managed.
pub(crate) const PINNED: i32 = 1;
/// `CU_MEM_ALLOCATION_TYPE_MANAGED`, since CUDA 13.
const MANAGED: i32 = 2;

/// A pool, and the device that is charged for it. No device: the pool is not counted.
pub(crate) type Payer = (What, Option<CudaOrdinal>);

/// The payer of a pool. None: the current device pays, and the thread has none.
pub(crate) fn payer(
    copy: CopyId,
    handle: u64,
    place: PoolPlace,
    here: Option<CudaOrdinal>,
) -> Option<Payer> {
    let is = |ordinal: CudaOrdinal, test: fn(&Account) -> bool| {
        by_ordinal(copy, ordinal).is_some_and(|account| test(&account))
    };
    let at = location::of(place.location, place.id);
    if place.kind == MANAGED {
        let device = match at {
            Location::Device(ordinal) => ordinal,
            Location::Host | Location::Unknown => here?,
        };
        let counted = is(device, Account::counts_managed);
        return Some((What::Managed(handle), counted.then_some(device)));
    }
    let device = match at {
        Location::Device(ordinal) => ordinal,
        // On unified memory the host's memory is the device's.
        Location::Host => {
            let sharing = sharing_host(copy).map(|(ordinal, _)| ordinal);
            return Some((What::Pinned(handle), sharing));
        }
        Location::Unknown => here?,
    };
    Some((What::Pool(handle), Some(device)))
}

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

impl ledger::Account for Pool {
    fn claim(&self, bytes: Bytes) -> bool {
        let outcome = self.account.try_claim(bytes, self.kind());
        !matches!(outcome, Outcome::Refused(_))
    }

    fn record(&self, bytes: Bytes) {
        self.account.record(bytes, self.kind());
    }

    fn release(&self, bytes: Bytes) {
        self.account.release(bytes, self.kind());
    }

    fn wait(&self) {
        sys::nap();
    }

    fn clock(&self) -> u64 {
        sys::clock()
    }
}
