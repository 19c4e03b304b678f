//! Memory pools: a slice is charged for what they reserve, which only the driver knows.
//! Touches: the driver's attribute of each pool; the ledger.
//! Law: what the ledger has of a pool is what the driver said last. Whoever changes it asks once
//! more, so that of two who ask at once the later word stays.

use core::sync::atomic::Ordering;

use gpuslice_config::device::CudaOrdinal;
use gpuslice_config::ledger::Kind;
use gpuslice_config::units::Bytes;

use crate::abi::{CUdeviceptr, CUmemoryPool, SUCCESS};
use crate::account::{self, Account, Asked};
use crate::held::{self, Found, Space};
use crate::idle::Idle;
use crate::private::{self, Private};
use crate::real::Slot;
use crate::table;

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED: i32 = 5;
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
const USED: i32 = 7;

/// How many pools a process has without all that it holds being gone through for them.
pub(crate) const POOLS: usize = 16;

/// `Private::pools_known`: this process has never used a pool, ...
const NONE: u32 = 0;
/// ... has used some, which are listed, ...
const SOME: u32 = 1;
/// ... or has used more than are listed.
const MORE: u32 = 2;

fn attribute(slot: Slot, pool: CUmemoryPool, attribute: i32) -> Option<u64> {
    let mut value = 0u64;
    let ask = table::cuMemPoolGetAttribute::real(slot)?;
    // SAFETY: cuMemPoolGetAttribute's contract: these attributes are 64 bits long.
    let code = unsafe { ask(pool, attribute, (&raw mut value).cast()) };
    (code == SUCCESS).then_some(value)
}

/// What of what a pool has reserved is in use by nobody.
pub(crate) fn unused(slot: Slot, pool: CUmemoryPool) -> u64 {
    let reserved = attribute(slot, pool, RESERVED).unwrap_or(0);
    reserved.saturating_sub(attribute(slot, pool, USED).unwrap_or(u64::MAX))
}

/// The pool's own device and entry, or those of the device that it is used on for the first time.
pub(crate) fn known(slot: Slot, pool: CUmemoryPool, here: CudaOrdinal) -> Option<(Account, Found)> {
    let private = private::page()?;
    let found = match held::find(private, Space::Pool, pool as u64) {
        Some(found) => found,
        None => {
            created(slot, pool, Some(here));
            held::find(private, Space::Pool, pool as u64)?
        }
    };
    // A pool belongs to no context: there its device's ordinal stands, plus one.
    let ordinal = found.held().context.checked_sub(1)?;
    Some((account::of(slot, CudaOrdinal(u32::from(ordinal)))?, found))
}

/// Remembers a pool. `device`: where its memory is; None: on the host of a discrete device.
pub(crate) fn created(slot: Slot, pool: CUmemoryPool, device: Option<CudaOrdinal>) {
    let charged = device.or(Some(CudaOrdinal(0)));
    if let Some(ordinal) = charged
        && let Some(account) = account::of(slot, ordinal)
    {
        let next = u8::try_from(ordinal.0.saturating_add(1)).unwrap_or(0);
        let next = if device.is_some() { next } else { 0 };
        enlist(account.private, pool as u64);
        let held = account.held(Bytes::ZERO, Kind::Pool, next);
        account.remember(Space::Pool, pool as u64, held);
    }
}

fn enlist(private: &Private, pool: u64) {
    private.pools_known.fetch_max(SOME, Ordering::AcqRel);
    for place in &private.pools {
        match place.compare_exchange(0, pool, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(there) if there == pool => return,
            Err(_) => {}
        }
    }
    private.pools_known.store(MORE, Ordering::Release);
}

/// Memory from a pool that is still in use, before that is destroyed.
pub(crate) fn in_use(slot: Slot, pool: CUmemoryPool) -> u64 {
    attribute(slot, pool, USED).unwrap_or(0)
}

/// Forgets a pool that is gone. What was `in_use` keeps what the pool has reserved until the last
/// of it is freed.
pub(crate) fn destroyed(pool: CUmemoryPool, found: Found, in_use: u64) {
    if in_use == 0 {
        account::freed(found);
    } else if let Some(private) = private::page()
        && found.take()
    {
        private.dooms.store(1, Ordering::Release);
        held::put_payload(private, Space::DoomedUse, pool as u64, in_use);
        held::put(private, Space::Doomed, pool as u64, found.held());
    }
    let Some(private) = private::page() else {
        return;
    };
    // The next pool of this place begins with nothing.
    Idle::of_pool(private, pool).let_go(Bytes::MAX);
    for place in &private.pools {
        let _ = place.compare_exchange(pool as u64, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Memory that is about to be freed, and came from a pool that was destroyed.
#[derive(Clone, Copy)]
pub(crate) struct Leftover {
    pool: u64,
    bytes: u64,
}

/// What of a destroyed pool lies at an address.
#[inline]
pub(crate) fn leftover(slot: Slot, address: CUdeviceptr) -> Option<Leftover> {
    let private = private::page()?;
    match private.dooms.load(Ordering::Acquire) {
        0 => None,
        _ => look(private, slot, address),
    }
}

#[cold]
fn look(private: &'static Private, slot: Slot, address: CUdeviceptr) -> Option<Leftover> {
    /// `CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`.
    const POOL: i32 = 17;
    let (mut pool, mut base, mut bytes) = (0u64, 0, 0usize);
    let ask = table::cuPointerGetAttribute::real(slot)?;
    // SAFETY: cuPointerGetAttribute's contract: this attribute is a handle.
    let code = unsafe { ask((&raw mut pool).cast(), POOL, address) };
    (code == SUCCESS).then_some(())?;
    held::find(private, Space::Doomed, pool)?;
    let ask = table::cuMemGetAddressRange_v2::real(slot)?;
    // SAFETY: cuMemGetAddressRange_v2's contract.
    let code = unsafe { ask(&raw mut base, &raw mut bytes, address) };
    (code == SUCCESS).then_some(Leftover {
        pool,
        bytes: account::rounded(bytes as u64).get(),
    })
}

impl Leftover {
    /// The driver has freed it. With the last of it goes what its pool had reserved.
    pub(crate) fn freed(self) {
        let Some(private) = private::page() else {
            return;
        };
        while let Some(found) = held::find(private, Space::DoomedUse, self.pool) {
            let left = found.payload().saturating_sub(self.bytes);
            if left != 0 && found.replace_payload(left) {
                return;
            }
            if left == 0 && found.take() {
                break;
            }
        }
        if let Some(pool) = held::find(private, Space::Doomed, self.pool) {
            account::freed(pool);
        }
    }
}

/// Makes the ledger say what the driver says of a pool. `claimed` was granted for it beforehand
/// and is used up or given back; more than that has to be granted too. False: it was not, and the
/// ledger has not changed. Whoever made the pool grow sees to it then.
pub(crate) fn settle(account: &Account, slot: Slot, pool: CUmemoryPool, claimed: Bytes) -> bool {
    let said = Said {
        idle: Idle::of_pool(account.private, pool),
        reserved: || attribute(slot, pool, RESERVED),
        used: || attribute(slot, pool, USED).unwrap_or(0),
    };
    let grant = |lacking| !matches!(account.ask(lacking, Kind::Pool), Asked::Refused(_));
    settle_as(account, (Space::Pool, pool as u64), &said, grant, claimed)
}

/// What the driver says of something that reserves, and who counts on it.
pub(crate) struct Said<Reserved, Used> {
    pub(crate) idle: Idle,
    pub(crate) reserved: Reserved,
    pub(crate) used: Used,
}

impl<Reserved: Fn() -> Option<u64>, Used: Fn() -> u64> Said<Reserved, Used> {
    /// What is to be held, where so much is. What others count on may be gone, and is reserved
    /// again by those that do: it is not let go of before they have ended.
    fn to_hold(&self, held: Bytes) -> Option<Bytes> {
        let reserved = account::rounded((self.reserved)()?);
        if reserved >= held {
            return Some(reserved);
        }
        let counted_on = self.idle.counted_on();
        if counted_on == 0 {
            return Some(reserved);
        }
        let soon = account::stepped(counted_on.saturating_add((self.used)()));
        Some(Bytes::new(reserved.get().max(soon.get().min(held.get()))))
    }
}

/// The same for whatever reserves as pools do.
pub(crate) fn settle_as(
    account: &Account,
    (space, number): (Space, u64),
    said: &Said<impl Fn() -> Option<u64>, impl Fn() -> u64>,
    grant: impl Fn(Bytes) -> bool,
    claimed: Bytes,
) -> bool {
    let mut left = claimed;
    let mut fits = true;
    // Others change it at the same time: each of them asks again after it has written.
    for _ in 0..64 {
        let Some(found) = held::find(account.private, space, number) else {
            break;
        };
        let held = found.held();
        let Some(reserved) = said.to_hold(held.bytes) else {
            break;
        };
        let more = reserved.minus(held.bytes);
        let less = held.bytes.minus(reserved);
        if more == less {
            break;
        }
        let lacking = more.minus(left);
        if lacking != Bytes::ZERO && !grant(lacking) {
            fits = false;
            break;
        }
        left = left.plus(lacking);
        let written = held::Held {
            bytes: reserved,
            ..held
        };
        if found.replace(written) {
            left = left.minus(more).plus(less);
        }
    }
    account.release(left, Kind::Pool);
    fits
}

/// Does it for every pool of this process.
#[inline]
pub(crate) fn settle_all(slot: Slot) {
    each(slot, |account, pool| {
        settle(account, slot, pool, Bytes::ZERO);
    });
}

/// Gives back to the driver, and to the ledger, what pools of a device have and do not use.
pub(crate) fn trim(slot: Slot, device: &Account) {
    let Some(trim) = table::cuMemPoolTrimTo::real(slot) else {
        return;
    };
    each(slot, |account, pool| {
        if account.listed == device.listed {
            // SAFETY: cuMemPoolTrimTo's contract; the pool is one that this process uses.
            unsafe { trim(pool, 0) };
            settle(account, slot, pool, Bytes::ZERO);
        }
    });
}

#[inline]
fn each(slot: Slot, mut visit: impl FnMut(&Account, CUmemoryPool)) {
    let Some(private) = private::page() else {
        return;
    };
    let known = private.pools_known.load(Ordering::Acquire);
    if known == NONE {
        return;
    }
    let mut visit = |number: u64, found: Found| {
        let ordinal = found.held().context.checked_sub(1);
        if let Some(ordinal) = ordinal
            && let Some(account) = account::of(slot, CudaOrdinal(u32::from(ordinal)))
        {
            visit(&account, number as CUmemoryPool);
        }
    };
    if known == MORE {
        held::each(private, |space, number, found| {
            if space == Space::Pool {
                visit(number, found);
            }
        });
        return;
    }
    for place in &private.pools {
        let number = place.load(Ordering::Acquire);
        if number != 0
            && let Some(found) = held::find(private, Space::Pool, number)
        {
            visit(number, found);
        }
    }
}
