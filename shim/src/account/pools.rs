//! Memory pools: charges the slice for the memory they reserve, as the driver reports it.
//! Touches: the driver's attributes of each pool; the ledger.
//! Law: that of `config::ledger::Reserve`.

use core::sync::atomic::Ordering;

use gpuslice_config::ledger;
use gpuslice_config::ledger::{Growth, Kind, Reservable, Reserve};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use crate::account::charged::{PINNED, Payer, PoolPlace, payer};
use crate::account::{self, Account};
use crate::answer::device;
use crate::log::counters;
use crate::real::abi::{CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUmemoryPool, CUresult, SUCCESS};
use crate::real::copies::CopyId;
use crate::real::functions;
use crate::state::handles::{self, Space};
use crate::state::page;
use crate::state::reservations::{self, Entered, Known, What};

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED: i32 = 5;
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
const USED: i32 = 7;

fn attribute(copy: CopyId, pool: CUmemoryPool, attribute: i32) -> Option<u64> {
    let mut value = 0u64;
    let ask = functions::cuMemPoolGetAttribute::real(copy)?;
    // SAFETY: cuMemPoolGetAttribute's contract: these attributes are 64 bits long.
    let code = unsafe { ask(pool, attribute, (&raw mut value).cast()) };
    (code == SUCCESS).then_some(value)
}

/// A pool, and the account it is charged to.
#[derive(Clone, Copy)]
pub(crate) struct Pool {
    pub(crate) account: Account,
    pub(crate) copy: CopyId,
    handle: CUmemoryPool,
    known: Known,
    entered: Entered,
}

impl Reservable for Pool {
    fn reserved(&self) -> Option<Bytes> {
        self.value(RESERVED).map(ledger::rounded)
    }

    fn used(&self) -> Bytes {
        self.value(USED).map_or(Bytes::MAX, Bytes::new)
    }

    fn account(&self) -> &impl ledger::Account {
        self
    }
}

impl Pool {
    /// The kind of memory that the pool is charged as.
    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        self.known.kind()
    }

    fn value(&self, name: i32) -> Option<u64> {
        let may = self.known.may_be_used(self.entered);
        may.then(|| attribute(self.copy, self.handle, name))?
    }

    /// The memory that it has reserved.
    pub(crate) fn reserve(&self) -> &'static Reserve {
        self.known.reserve()
    }

    /// Forgets the handle: the driver does not know it as a pool.
    pub(crate) fn forget(&self) {
        destroyed(self.copy, self.known, 0);
    }

    /// Ends the use of the pool in a driver call: from here on another thread may destroy it.
    pub(crate) fn leave(&self) {
        self.known.leave(self.entered);
    }
}

/// A pool for which no record can be kept, and the account that would be charged for it.
pub(crate) struct Unrecorded {
    account: Account,
    kind: Kind,
}

impl Unrecorded {
    /// Refuses an allocation from the pool if the slice enforces its limit, or else calls the driver.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(self, allocate: impl FnOnce() -> CUresult) -> CUresult {
        if self.account.refuses_unrecorded(self.kind) {
            counters::UNCOUNTED
                .warn_text("a memory pool cannot be recorded: an allocation from it is refused");
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        counters::UNCOUNTED.warn_text("a memory pool cannot be recorded, and is not counted");
        allocate()
    }
}

/// A pool that the program names. A pool not seen before is charged to the device that it belongs
/// to, or to `here` if the driver does not report where its memory lies. None: it is not charged, or
/// the driver does not know it. Other threads cannot destroy it until `Pool::leave`.
pub(crate) fn named(
    copy: CopyId,
    handle: CUmemoryPool,
    here: CudaOrdinal,
) -> Result<Option<Pool>, Unrecorded> {
    let unknown = || owner(copy, handle, here).unwrap_or((What::Pool(handle as u64), Some(here)));
    let known = match recorded(handle) {
        Some(known) => Ok(Some(known)),
        None => learn(copy, unknown()),
    };
    match known {
        Ok(known) => Ok(known.and_then(|known| entered(copy, handle, known, Known::enter_later))),
        Err(_) if attribute(copy, handle, RESERVED).is_none() => Ok(None),
        Err(unrecorded) => Err(unrecorded),
    }
}

/// The current pool of a device, which serves allocations that name no pool. Charge as in `named`.
pub(crate) fn current(copy: CopyId, here: CudaOrdinal) -> Result<Option<Pool>, Unrecorded> {
    /// The number of retries when another thread changes the current pool meanwhile.
    const ROUNDS: u32 = 16;
    for _ in 0..ROUNDS {
        let Some(handle) = current_handle(copy, here) else {
            return Ok(None);
        };
        let known = match recorded(handle) {
            Some(known) => Some(known),
            // A pool destroyed just now is no longer the current one.
            None if current_handle(copy, here) != Some(handle) => continue,
            None => learn(copy, (What::Pool(handle as u64), Some(here)))?,
        };
        let Some(known) = known else {
            return Ok(None);
        };
        let Some(pool) = entered(copy, handle, known, Known::enter_later) else {
            match account_of(copy, known.ordinal()) {
                Some(_) => continue,
                None => return Ok(None),
            }
        };
        if current_handle(copy, here) == Some(handle) {
            return Ok(Some(pool));
        }
        pool.leave();
    }
    unrecorded(copy, What::Pool(0), Some(here))
}

/// The record of a pool.
fn recorded(handle: CUmemoryPool) -> Option<Known> {
    reservations::pool(page::page()?, handle as u64)
}

#[cold]
#[inline(never)]
fn account_of(copy: CopyId, device: Option<CudaOrdinal>) -> Option<Account> {
    account::by_ordinal(copy, device?)
}

fn current_handle(copy: CopyId, ordinal: CudaOrdinal) -> Option<CUmemoryPool> {
    ask_handle(functions::cuDeviceGetMemPool::real(copy)?, ordinal)
}

type AskHandle = unsafe extern "C" fn(*mut CUmemoryPool, CUdevice) -> CUresult;

fn ask_handle(ask: AskHandle, ordinal: CudaOrdinal) -> Option<CUmemoryPool> {
    let mut pool = core::ptr::null_mut();
    let dev = CUdevice::try_from(ordinal.0).ok()?;
    // SAFETY: the contract of cuDeviceGetMemPool, and equally of cuDeviceGetDefaultMemPool.
    let code = unsafe { ask(&raw mut pool, dev) };
    (code == SUCCESS && !pool.is_null()).then_some(pool)
}

/// The payer of a pool: the device whose default or current pool it is, or else its location as the
/// driver reports it. None: the driver does not report it.
fn owner(copy: CopyId, handle: CUmemoryPool, here: CudaOrdinal) -> Option<Payer> {
    /// `CU_MEMPOOL_ATTR_ALLOCATION_TYPE`, `..._LOCATION_TYPE` and `..._LOCATION_ID`, since CUDA 13.2.
    const PLACE: [i32; 3] = [9, 12, 11];
    let default = functions::cuDeviceGetDefaultMemPool::real(copy);
    let is_its = |ordinal: &CudaOrdinal| {
        let default = default.and_then(|ask| ask_handle(ask, *ordinal));
        default == Some(handle) || current_handle(copy, *ordinal) == Some(handle)
    };
    if let Some(device) = device::all(copy).find(is_its) {
        return Some((What::Pool(handle as u64), Some(device)));
    }
    let value = |one| {
        // The driver writes 32 bits.
        let [a, b, c, d, ..] = attribute(copy, handle, one)?.to_ne_bytes();
        Some(i32::from_ne_bytes([a, b, c, d]))
    };
    let [kind, location, id] = PLACE.map(value);
    let place = PoolPlace {
        kind: kind.unwrap_or(PINNED),
        location: location?,
        id: id?,
    };
    payer(copy, handle as u64, place, Some(here))
}

/// Records a pool. None: no device is charged for it.
fn learn(copy: CopyId, (what, device): Payer) -> Result<Option<Known>, Unrecorded> {
    let known = page::page().and_then(|state| reservations::known(state, what, device));
    match known {
        Some(known) => Ok(Some(known)),
        None => unrecorded(copy, what, device),
    }
}

#[cold]
#[inline(never)]
fn unrecorded<T>(
    copy: CopyId,
    what: What,
    device: Option<CudaOrdinal>,
) -> Result<Option<T>, Unrecorded> {
    let kind = what.kind();
    let account = account_of(copy, device);
    account.map_or(Ok(None), |account| Err(Unrecorded { account, kind }))
}

fn entered(
    copy: CopyId,
    handle: CUmemoryPool,
    known: Known,
    enter: fn(&Known) -> Option<Entered>,
) -> Option<Pool> {
    Some(Pool {
        account: account::by_ordinal(copy, known.ordinal()?)?,
        copy,
        handle,
        known,
        entered: enter(&known)?,
    })
}

/// Remembers a pool that was just created. One whose payer is not known yet, or for which there is no
/// place, is learned when it is used.
pub(crate) fn created(copy: CopyId, handle: CUmemoryPool, place: PoolPlace) {
    let Some(state) = account::page() else {
        return;
    };
    // The driver returns a handle again only after it was destroyed.
    if let Some(old) = reservations::pool(state, handle as u64) {
        destroyed(copy, old, 0);
    }
    if let Some(old) = handles::find(state, Space::Doomed, handle as u64) {
        account::freed(old);
    }
    if let Some(old) = handles::find(state, Space::DoomedUse, handle as u64) {
        old.take();
    }
    if let Some((what, device)) = payer(copy, handle as u64, place, device::current(copy)) {
        reservations::made(state, what, device);
    }
}

/// Blocks driver calls with the pools of a device, and waits for those in progress. The device's
/// primary context may be about to end, and its pools may end with it.
pub(crate) fn close_all(ordinal: CudaOrdinal) {
    each_on(ordinal, |known| known.close());
    each_on(ordinal, |known| known.wait_until_left());
}

/// Follows `close_all`: forgets the closed pools if they have ended, else reopens them.
pub(crate) fn closed(copy: CopyId, ordinal: CudaOrdinal, have_ended: bool) {
    each_on(ordinal, |known| match have_ended {
        true => ended(copy, known, Known::forget_reset, 0),
        false => known.open(),
    });
}

fn each_on(ordinal: CudaOrdinal, mut visit: impl FnMut(Known)) {
    let Some(state) = account::page() else {
        return;
    };
    reservations::each(state, |known| {
        if known.pool().is_some() && known.ordinal() == Some(ordinal) {
            visit(known);
        }
    });
}

/// The memory from a pool that is still in use; read before the pool is destroyed.
pub(crate) fn in_use(copy: CopyId, pool: CUmemoryPool) -> u64 {
    attribute(copy, pool, USED).unwrap_or(0)
}

/// Forgets a destroyed pool. While memory from it is `in_use`, its whole reserve stays charged;
/// freeing the last of it releases the reserve.
pub(crate) fn destroyed(copy: CopyId, known: Known, in_use: u64) {
    ended(copy, known, Known::forget, in_use);
}

fn ended(copy: CopyId, known: Known, forget: fn(&Known) -> Option<Bytes>, in_use: u64) {
    let account = account_of(copy, known.ordinal());
    let kind = known.kind();
    let (Some(bytes), Some(handle)) = (forget(&known), known.pool()) else {
        return;
    };
    let Some(account) = account else {
        return;
    };
    if in_use == 0 {
        return account.release(bytes, kind);
    }
    let state = account.state;
    state.dooms.store(1, Ordering::Release);
    handles::put_payload(state, Space::DoomedUse, handle, in_use);
    let left = account.charge_in(bytes, kind, 0);
    handles::put(state, Space::Doomed, handle, left);
}

/// Corrects the ledger after a call by which the pool may have returned unused memory to the
/// driver.
fn settle(pool: &Pool) {
    pool.reserve().settle(Growth::OfOthers, pool);
}

/// Calls `settle` for every pool of this process.
#[inline]
pub(crate) fn settle_all(copy: CopyId) {
    each(copy, settle);
}

/// Returns the unused memory of a device's pools to the driver and to the ledger. False: there was
/// no pool to trim.
pub(crate) fn trim(copy: CopyId, device: &Account) -> bool {
    let Some(trim) = functions::cuMemPoolTrimTo::real(copy) else {
        return false;
    };
    // Without the relaxed mode, the trim would end the captures of other threads.
    let Some(mode) = relaxed(copy) else {
        return false;
    };
    let mut trimmed = false;
    each(copy, |pool| {
        if pool.account.listed == device.listed {
            // SAFETY: cuMemPoolTrimTo's contract; the pool is one that this process uses.
            unsafe { trim(pool.handle, 0) };
            settle(pool);
            trimmed = true;
        }
    });
    exchange(copy, Some(mode));
    trimmed
}

/// Switches this thread to relaxed stream-capture mode: calls that the program did not make must
/// not end another thread's capture. Returns the previous mode.
pub(crate) fn relaxed(copy: CopyId) -> Option<i32> {
    /// `CU_STREAM_CAPTURE_MODE_RELAXED`.
    const RELAXED: i32 = 2;
    exchange(copy, Some(RELAXED))
}

/// Sets this thread's stream-capture mode. Returns the previous mode.
pub(crate) fn exchange(copy: CopyId, mode: Option<i32>) -> Option<i32> {
    let mut mode = mode?;
    let exchange = functions::cuThreadExchangeStreamCaptureMode::real(copy)?;
    // SAFETY: cuThreadExchangeStreamCaptureMode's contract: it writes to locals of its types.
    let code = unsafe { exchange(&raw mut mode) };
    (code == SUCCESS).then_some(mode)
}

#[inline]
fn each(copy: CopyId, mut visit: impl FnMut(&Pool)) {
    let Some(state) = page::page() else {
        return;
    };
    reservations::each(state, |known| {
        if let Some(handle) = known.pool()
            && let Some(pool) = entered(copy, handle as CUmemoryPool, known, Known::enter)
        {
            visit(&pool);
            pool.leave();
        }
    });
}
