//! The memory of graphs: charges the slice for the memory they reserve, as the driver reports it.
//! Touches: the driver's graph attributes of each device; the ledger.
//! Law: that of `config::ledger::Reserve`.

pub(crate) mod needs;

use gpuslice_config::ledger;
use gpuslice_config::ledger::{Grant, Growth, Kind, Reservable, Reserve};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use crate::account::pools;
use crate::account::{self, Account, Outcome, current_context};
use crate::real::abi::{CUdevice, GRAPH_MEM_RESERVED, GRAPH_MEM_USED, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions;
use crate::state::handles::{self, Space};
use crate::state::page::ProcessState;
use crate::state::reservations::{self, Known, What};
use gpuslice_config::ledger::stepped;

fn attribute(copy: CopyId, ordinal: CudaOrdinal, attribute: i32) -> Option<u64> {
    let mut value = 0u64;
    let ask = functions::cuDeviceGetGraphMemAttribute::real(copy)?;
    let dev = CUdevice::try_from(ordinal.0).ok()?;
    // SAFETY: cuDeviceGetGraphMemAttribute's contract: these attributes are 64 bits long.
    let code = unsafe { ask(dev, attribute, (&raw mut value).cast()) };
    (code == SUCCESS).then_some(value)
}

/// The memory that graphs reserve on a device, and the account it is charged to.
#[derive(Clone, Copy)]
pub(crate) struct Graphs {
    account: Account,
    copy: CopyId,
    ordinal: CudaOrdinal,
    known: Known,
}

impl Reservable for Graphs {
    fn reserved(&self) -> Option<Bytes> {
        let reserved = attribute(self.copy, self.ordinal, GRAPH_MEM_RESERVED).or_else(|| {
            // A device without a context holds no graph memory, and the query fails. It also fails
            // after an error of a kernel, and then the memory is held until the process ends.
            let is_there = current_context::has_primary(self.copy, self.ordinal);
            (is_there == Some(false)).then_some(0)
        });
        reserved.map(ledger::rounded)
    }

    fn used(&self) -> Bytes {
        let used = attribute(self.copy, self.ordinal, GRAPH_MEM_USED);
        used.map_or(Bytes::MAX, Bytes::new)
    }

    fn account(&self) -> &impl ledger::Account {
        self
    }
}

impl ledger::Account for Graphs {
    fn claim(&self, bytes: Bytes) -> bool {
        ledger::Account::claim(&self.account, bytes)
    }

    /// The driver has reserved memory that no launch has claimed.
    fn record(&self, bytes: Bytes) {
        ledger::Account::record(&self.account, bytes);
        forget_launches(self.account.state);
    }

    fn release(&self, bytes: Bytes) {
        ledger::Account::release(&self.account, bytes);
    }

    fn wait(&self) {
        self.account.wait();
    }

    fn clock(&self) -> u64 {
        self.account.clock()
    }
}

/// Forgets where graphs were launched: one of them did not have its memory any more. Each claims what
/// it needs at its next launch, so the excess does not add up from launch to launch.
#[cold]
#[inline(never)]
fn forget_launches(state: &'static ProcessState) {
    handles::each(state, |space, _, found| {
        if space == Space::Launched {
            found.take();
        }
    });
}

/// The graphs of a device, for the claim of one that is launched again. The memory that it needs is
/// reported as used, because the graph still maps it.
struct Relaunch<'a>(&'a Graphs);

impl Reservable for Relaunch<'_> {
    fn reserved(&self) -> Option<Bytes> {
        self.0.reserved()
    }

    fn used(&self) -> Bytes {
        Bytes::ZERO
    }

    fn account(&self) -> &impl ledger::Account {
        self.0.account()
    }
}

impl Graphs {
    /// The graphs of a device. None: they are not counted.
    pub(crate) fn of_device(
        account: Account,
        copy: CopyId,
        ordinal: CudaOrdinal,
    ) -> Option<Graphs> {
        let known = reservations::known(account.state, What::Graphs, Some(ordinal))?;
        Some(Graphs {
            account,
            copy,
            ordinal,
            known,
        })
    }

    fn reserve(&self) -> &'static Reserve {
        self.known.reserve()
    }

    /// Claims the memory that the driver may have to add before a graph can run. `is_relaunch`:
    /// whether the graph has run in the same stream before, and so has its memory unless it was
    /// trimmed. That is asked for each attempt.
    pub(crate) fn claim_launch(
        &self,
        need: Bytes,
        is_relaunch: &impl Fn() -> bool,
    ) -> Result<Grant, ()> {
        let reserve = self.reserve();
        let ask = |ask: fn(&Account, Bytes, Bytes) -> Outcome| {
            let idle = match is_relaunch() {
                true => reserve.count_on(need, &Relaunch(self)),
                false => reserve.count_on(need, self),
            };
            let lacking = need.minus(idle);
            let claimed = stepped(lacking.get());
            let asked = match lacking == Bytes::ZERO {
                true => Outcome::Uncounted,
                false => ask(&self.account, lacking, claimed),
            };
            let given = match asked {
                Outcome::Granted => Grant { claimed, idle },
                Outcome::Uncounted => Grant {
                    claimed: Bytes::ZERO,
                    idle,
                },
                Outcome::Refused(_) => {
                    reserve.let_go(idle);
                    return Err(());
                }
            };
            reserve.begin(given);
            Ok(given)
        };
        let quietly =
            |account: &Account, request, bytes| account.try_claim_steps(request, bytes, Kind::Pool);
        if let Ok(given) = ask(quietly) {
            return Ok(given);
        }
        self.trim();
        pools::trim(self.copy, &self.account);
        let state = self.account.state;
        let later = reservations::wait_for_others(state, &self.account, || ask(quietly).ok());
        let aloud =
            |account: &Account, request, bytes| account.claim_steps(request, bytes, Kind::Pool);
        later.map_or_else(|| ask(aloud), Ok)
    }

    fn trim(&self) {
        let trim = functions::cuDeviceGraphMemTrim::real(self.copy);
        if let (Some(trim), Ok(dev)) = (trim, CUdevice::try_from(self.ordinal.0))
            && let Some(mode) = pools::relaxed(self.copy)
        {
            // SAFETY: cuDeviceGraphMemTrim's contract.
            unsafe { trim(dev) };
            pools::exchange(self.copy, Some(mode));
            self.settle();
        }
    }

    fn settle(&self) {
        self.reserve().settle(Growth::OfOthers, self);
    }

    /// Records a launch that the driver has accepted. A running graph cannot be stopped, so its
    /// memory is recorded whatever the limit.
    pub(crate) fn launched(&self, given: Grant) {
        self.reserve().end(given, Growth::Kept, self);
    }
}

/// Corrects the ledger after a call by which graphs may have returned memory to the driver.
pub(crate) fn settle_all(copy: CopyId) {
    each(copy, Graphs::settle);
}

/// Returns the unused memory of a device's graphs to the driver and to the ledger. False: it has no
/// graphs with memory.
pub(crate) fn trim(copy: CopyId, device: &Account) -> bool {
    let mut trimmed = false;
    each(copy, |graphs| {
        if graphs.account.listed == device.listed {
            graphs.trim();
            trimmed = true;
        }
    });
    trimmed
}

fn each(copy: CopyId, mut visit: impl FnMut(&Graphs)) {
    let Some(state) = account::page() else {
        return;
    };
    reservations::each(state, |known| {
        if known.what() == What::Graphs
            && let Some(ordinal) = known.ordinal()
            && let Some(account) = account::by_ordinal(copy, ordinal)
        {
            visit(&Graphs {
                account,
                copy,
                ordinal,
                known,
            });
        }
    });
}
