//! Idle memory: memory that this process's CUDA pools and graphs keep without using it. It is returned
//! to the driver before a request of any API is refused, and the request is tried again.
//! Touches: the driver's pools and graphs; the ledger.

use gpuslice_config::answer::admit::Refusal;
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use super::{Account, Outcome, graphs, pools};
use crate::real::copies;
use crate::state::reservations;

impl Account {
    /// Like `try_claim_steps`, but returns idle memory to the driver before it refuses.
    #[inline(always)]
    pub(crate) fn try_claim_trimming(&self, request: Bytes, bytes: Bytes, kind: Kind) -> Outcome {
        match self.try_claim_steps(request, bytes, kind) {
            Outcome::Refused(refusal) => self.claim_trimmed(request, bytes, kind, refusal),
            outcome => outcome,
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn claim_trimmed(
        &self,
        request: Bytes,
        bytes: Bytes,
        kind: Kind,
        refusal: Refusal,
    ) -> Outcome {
        // Pools and graphs cannot return more than the process holds. If even that is too little, they
        // keep their memory.
        let is_hopeless = refusal.short_by > self.ledger.own(self.listed);
        match !is_hopeless && self.trims() {
            true => self.try_claim_steps(request, bytes, kind),
            false => Outcome::Refused(refusal),
        }
    }

    /// Returns the idle memory of this device to the driver and to the ledger. False: this process
    /// keeps none.
    #[cold]
    #[inline(never)]
    pub(crate) fn trims(&self) -> bool {
        // A process without pools may be one without CUDA.
        if reservations::are_none(self.state) {
            return false;
        }
        let Some(copy) = copies::any_driver() else {
            return false;
        };
        let of_pools = pools::trim(copy, self);
        let of_graphs = graphs::trim(copy, self);
        of_pools || of_graphs
    }
}
