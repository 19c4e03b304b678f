//! Pays for memory: claims it, calls the driver, and keeps or releases the claim.
//! Touches: the ledger, through the account; the driver, by the call that it is given.
//! Law: no value with a destructor is alive while the driver is called, because the thread may be
//! cancelled in it. `pay` does not compile with a closure that has one.

use core::mem::needs_drop;

use gpuslice_config::answer::admit::Refusal;
use gpuslice_config::ledger::Kind;
use gpuslice_config::words::units::Bytes;

use super::{Account, Outcome};
use crate::real::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUresult, SUCCESS};

/// Memory that a program requests.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    /// The size that the program has passed; the host's memory is checked against it.
    pub(crate) bytes: Bytes,
    /// The size to claim, in whole steps.
    pub(crate) claimed: Bytes,
    /// The kind that it is charged as.
    pub(crate) kind: Kind,
}

/// The end of a claim whose memory the driver has allocated.
pub(crate) enum Paid {
    /// The claim stays charged, for memory that was recorded.
    Kept,
    /// The claim is released: the memory shares a step that is paid for, or has no record.
    Released,
}

impl Account {
    /// Allocates memory if there is room for it. `allocate` is the driver's function, with the
    /// caller's own arguments. `record` is called when it has succeeded, and records the memory.
    ///
    /// If there is no room even after a trim, the program gets "out of memory" without a call of the
    /// driver. If the arguments are not valid (`is_valid`), the driver is called instead, so that the
    /// program gets the driver's own error; `undo` frees memory that it has allocated after all.
    #[inline(always)]
    pub(crate) fn pay<V, A, R, U>(
        &self,
        request: Request,
        is_valid: V,
        allocate: A,
        record: R,
        undo: U,
    ) -> CUresult
    where
        V: FnOnce() -> bool,
        A: FnOnce() -> CUresult,
        R: FnOnce() -> Paid,
        U: FnOnce(),
    {
        const {
            assert!(!needs_drop::<V>() && !needs_drop::<A>());
            assert!(!needs_drop::<R>() && !needs_drop::<U>());
        }
        let Request {
            bytes,
            claimed,
            kind,
        } = request;
        match self.try_claim_trimming(bytes, claimed, kind) {
            Outcome::Granted => {}
            Outcome::Uncounted => return allocate(),
            Outcome::Refused(refusal) => {
                return self.refuse_call(claimed, refusal, is_valid, allocate, undo);
            }
        }
        let code = allocate();
        let paid = match code {
            SUCCESS => record(),
            _ => Paid::Released,
        };
        if let Paid::Kept = paid {
            return code;
        }
        self.release(claimed, kind);
        if code == CUDA_ERROR_OUT_OF_MEMORY {
            self.refused_by_driver(claimed, kind);
        }
        code
    }

    /// Refuses a request. If the driver itself rejects the request, the program gets the driver's
    /// error and no refusal is recorded.
    #[cold]
    fn refuse_call(
        &self,
        claimed: Bytes,
        refusal: Refusal,
        is_valid: impl FnOnce() -> bool,
        allocate: impl FnOnce() -> CUresult,
        undo: impl FnOnce(),
    ) -> CUresult {
        if !is_valid() {
            let code = allocate();
            if code != SUCCESS {
                return code;
            }
            undo();
        }
        self.refuse(claimed, refusal);
        CUDA_ERROR_OUT_OF_MEMORY
    }
}
