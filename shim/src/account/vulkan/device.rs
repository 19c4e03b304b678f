//! Charges the memory that a Vulkan device takes before its first allocation, as a context.
//! Touches: NVML, which it loads if the process has not; the ledger.
//!
//! No call reports this memory. For the first device of a process on a card, it is the growth of
//! NVML's figure for this process, which neighbours do not move. A process that allocates meanwhile
//! by another thread does, so the growth then counts for nothing. Later devices claim the size before
//! they are created. Where NVML does not list this process, nothing is charged: a device of Vulkan
//! has no usual size.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuslice_config::ledger::{Kind, rounded};
use gpuslice_config::words::device::DeviceUuid;
use gpuslice_config::words::units::Bytes;

use crate::account::context_size::Meter;
use crate::account::share::Full;
use crate::account::{Account, Outcome};

/// The plausible sizes: up to the largest that is believed of a context.
const SIZES: core::ops::RangeInclusive<u64> = 1..=(768 << 20);

/// What is known of a card, by its number in the ledger: nothing, or a size of a device plus one.
static KNOWN: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Whether a thread measures: the growth would include what another one creates.
static BUSY: AtomicBool = AtomicBool::new(false);

fn known(account: &Account) -> Option<&'static AtomicU64> {
    KNOWN.get(usize::from(account.listed.number()))
}

/// The charge of a device that is being created. It has no destructor: the thread may be cancelled in
/// the driver.
#[derive(Clone, Copy)]
pub(crate) enum Cost {
    /// Claimed before the call.
    Claimed(Bytes),
    /// Measured by the call: NVML's figure and the ledger's before it.
    Measured { meter: Meter, used: u64, own: Bytes },
    /// Not charged.
    Nothing,
}

/// Claims the size of a device if it is known, or prepares to measure it.
#[inline(never)]
pub(crate) fn begin(account: &Account, uuid: DeviceUuid) -> Result<Cost, Full> {
    // NVML reports no processes' memory that a device shares with the host.
    let Some(known) = known(account).filter(|_| !account.unified()) else {
        return Ok(Cost::Nothing);
    };
    if let Some(size) = known.load(Ordering::Acquire).checked_sub(1) {
        let size = Bytes::new(size);
        return match account.claim(size, Kind::Context) {
            Outcome::Granted => Ok(Cost::Claimed(size)),
            Outcome::Uncounted => Ok(Cost::Nothing),
            Outcome::Refused(_) => Err(Full),
        };
    }
    if BUSY.swap(true, Ordering::Acquire) {
        return Ok(Cost::Nothing);
    }
    let meter = Meter::of(uuid);
    Ok(Cost::Measured {
        meter,
        used: meter.own().unwrap_or(0),
        own: account.ledger.own(account.listed),
    })
}

impl Cost {
    /// Charges what was measured, or takes the claim back if no device was created. Returns what is
    /// charged.
    #[inline(never)]
    pub(crate) fn end(self, account: &Account, is_created: bool) -> Bytes {
        match self {
            Cost::Nothing => Bytes::ZERO,
            Cost::Claimed(size) if is_created => size,
            Cost::Claimed(size) => {
                account.release(size, Kind::Context);
                Bytes::ZERO
            }
            Cost::Measured { meter, used, own } => {
                let grown = meter.own().map(|now| now.saturating_sub(used));
                meter.close();
                BUSY.store(false, Ordering::Release);
                let is_alone = account.ledger.own(account.listed) == own;
                match is_created && is_alone {
                    true => learn(account, grown),
                    false => Bytes::ZERO,
                }
            }
        }
    }
}

/// Remembers the size of a device, and charges it.
fn learn(account: &Account, grown: Option<u64>) -> Bytes {
    let size = grown
        .filter(|size| SIZES.contains(size))
        .map_or(0, rounded_up);
    if let Some(known) = known(account) {
        known.store(size.saturating_add(1), Ordering::Release);
    }
    let size = Bytes::new(size);
    match size > Bytes::ZERO && account.record(size, Kind::Context) {
        true => size,
        false => Bytes::ZERO,
    }
}

fn rounded_up(size: u64) -> u64 {
    rounded(size).get()
}

/// Releases the charge of a device that no longer exists.
#[inline(never)]
pub(crate) fn gone(account: &Account, size: Bytes) {
    account.release(size, Kind::Context);
}
