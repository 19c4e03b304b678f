//! Pays for the memory of OpenCL: claims it on every device of a context, and releases it when the
//! driver reports that the memory object goes.
//! Touches: the ledger, through the account; this process's own table; the driver, by the call that
//! it is given, and to be told of an object's end.
//! Law: memory is claimed before the driver is called. No value with a destructor is alive then.

pub(crate) mod imports;
pub(crate) mod leaving;

use core::ffi::c_void;
use core::marker::PhantomData;

use gpuslice_config::ledger::{Kind, rounded, stepped};
use gpuslice_config::words::units::Bytes;

use crate::account::{self, Account, Outcome};
use crate::answer::opencl::{self, Room};
use crate::log::counters;
use crate::real::copies::CopyId;
use crate::real::opencl::{
    CL_SUCCESS, Destructor, cl_context, cl_device_id, cl_mem, clReleaseMemObject,
    clSetMemObjectDestructorCallback,
};
use crate::slice;
use crate::state::allocations::SMALL;
use crate::state::handles::{Charge, FoundEntry, Space};
use crate::state::page;

/// The end of a request.
pub(crate) enum Made {
    /// The driver has been called, and has returned this object or null. It has this number of
    /// records.
    Object(*mut c_void, usize),
    /// The slice has no room.
    Refused,
}

/// Memory that a program requests.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) context: cl_context,
    pub(crate) bytes: u64,
    pub(crate) kind: Kind,
}

/// The bytes to claim. The driver puts small requests into blocks that they share.
fn claimed(bytes: u64) -> Bytes {
    match bytes {
        ..=SMALL => rounded(bytes),
        _ => stepped(bytes),
    }
}

/// The account of a device.
#[inline(never)]
fn account(id: cl_device_id) -> Option<Account> {
    let slice = slice::current()?;
    let ledger = slice.ledger()?;
    let device = opencl::device(slice, id)?;
    Some(Account {
        slice,
        device,
        ledger,
        listed: device.listed?,
        state: page::page_or_none(slice.enforces())?,
        copy: CopyId(0),
    })
}

/// The devices of a request that are counted, each with its account.
#[inline(always)]
fn accounts(devices: &[cl_device_id]) -> impl Iterator<Item = Account> {
    devices.iter().filter_map(|id| account(*id))
}

/// The number of an object's record for one of its devices.
fn record(object: *mut c_void, device: usize) -> u64 {
    account::part(object as u64, device)
}

/// The records of an object.
fn records(object: *mut c_void) -> impl Iterator<Item = FoundEntry> {
    (0..64).map_while(move |device| account::find(Space::OpenCl, record(object, device)))
}

/// The driver's function that allocates, with the caller's own arguments. One copy of this code
/// serves all functions. It is no `dyn` reference, whose table would be relocated at the start of
/// every process. It has no destructor.
#[derive(Clone, Copy)]
pub(crate) struct Allocate<'a> {
    ask: *mut c_void,
    call: unsafe fn(*mut c_void) -> *mut c_void,
    lifetime: PhantomData<&'a mut c_void>,
}

impl<'a> Allocate<'a> {
    pub(crate) fn by<F: FnMut() -> *mut c_void>(ask: &'a mut F) -> Allocate<'a> {
        /// # Safety
        /// `ask` points to an `F` that nobody else uses during the call.
        unsafe fn call<F: FnMut() -> *mut c_void>(ask: *mut c_void) -> *mut c_void {
            // SAFETY: the caller's contract.
            unsafe { (*ask.cast::<F>())() }
        }
        Allocate {
            ask: core::ptr::from_mut(ask).cast(),
            call: call::<F>,
            lifetime: PhantomData,
        }
    }

    /// Calls the function.
    pub(crate) fn call(self) -> *mut c_void {
        // SAFETY: `by` has made both of one closure, which it borrows for the lifetime.
        unsafe { (self.call)(self.ask) }
    }
}

/// Allocates memory if every device of its context has room for it.
#[inline(never)]
pub(crate) fn pay(request: Request, allocate: Allocate<'_>) -> Made {
    let mut room = Room::uninit();
    // The driver has its own error for a request of 0 bytes.
    let devices = match request.bytes {
        0 => &[],
        _ => opencl::devices(request.context, &mut room),
    };
    let Some(granted) = claim(devices, request, claimed(request.bytes)) else {
        return Made::Refused;
    };
    let object = allocate.call();
    let records = match granted {
        0 => 0,
        granted => settle(devices, request, granted, object),
    };
    Made::Object(object, records)
}

/// Records the memory of a new object, or releases it if the driver has created none. Returns the
/// number of records.
fn settle(devices: &[cl_device_id], request: Request, granted: u64, object: *mut c_void) -> usize {
    let bytes = claimed(request.bytes);
    let mut number = 0usize;
    for (place, account) in accounts(devices).enumerate() {
        if granted & bit(place) == 0 {
            continue;
        }
        if object.is_null() {
            account.release(bytes, request.kind);
            account.refused_by_driver(bytes, request.kind);
            continue;
        }
        let charge = account.charge_in(bytes, request.kind, 0);
        account.remember(Space::OpenCl, record(object, number), charge);
        number = number.saturating_add(1);
    }
    number
}

fn bit(place: usize) -> u64 {
    let place = u32::try_from(place).unwrap_or(u32::MAX);
    1u64.checked_shl(place).unwrap_or(0)
}

/// Claims memory on each device. Returns the devices on which it is counted, one bit each. None: a
/// device has no room, and nothing is claimed.
#[inline(never)]
fn claim(devices: &[cl_device_id], request: Request, bytes: Bytes) -> Option<u64> {
    let mut granted = 0;
    for (place, account) in accounts(devices).enumerate() {
        let outcome = match account.try_claim(bytes, request.kind) {
            Outcome::Refused(refusal) => account.claim_trimmed(bytes, bytes, request.kind, refusal),
            outcome => outcome,
        };
        match outcome {
            Outcome::Granted => granted |= bit(place),
            Outcome::Uncounted => {}
            Outcome::Refused(refusal) => {
                for (place, account) in accounts(devices).enumerate() {
                    if granted & bit(place) != 0 {
                        account.release(bytes, request.kind);
                    }
                }
                account.refuse(bytes, refusal);
                return None;
            }
        }
    }
    Some(granted)
}

/// Asks the driver to report the end of a memory object that has this number of records, and
/// releases its memory then.
#[inline(never)]
pub(crate) fn follow(object: cl_mem, records: usize) {
    if records != 0 {
        report_end(object, gone, records);
    }
}

/// Asks the driver to call a function at the end of a memory object.
fn report_end(object: cl_mem, call: Destructor, data: usize) {
    let asked = clSetMemObjectDestructorCallback::real().is_some_and(|ask| {
        let data = core::ptr::without_provenance_mut(data);
        // SAFETY: clSetMemObjectDestructorCallback's contract: a live object; the function is never
        // unloaded.
        unsafe { ask(object, call, data) == CL_SUCCESS }
    });
    if !asked {
        counters::UNCOUNTED.warn_text(
            "the OpenCL driver does not report the end of a memory object: it stays counted",
        );
    }
}

/// The driver's report that a memory object goes. It comes just before the memory is freed, once
/// the object, its parts and all commands that use it are done.
unsafe extern "C" fn gone(object: cl_mem, records: *mut c_void) {
    for number in 0..records.addr() {
        if let Some(found) = account::find(Space::OpenCl, record(object, number)) {
            freed(found);
        }
    }
}

/// Releases the memory of a record.
#[inline(never)]
fn freed(found: FoundEntry) {
    account::freed(found);
}

/// Corrects the claims of a new object to the size that the driver reports. False: there is no room
/// for it, and the object was freed again.
pub(crate) fn correct(request: Request, object: cl_mem, bytes: u64) -> bool {
    let (before, after) = (claimed(request.bytes), claimed(bytes));
    let (more, less) = (after.minus(before), before.minus(after));
    if more > Bytes::ZERO {
        let mut room = Room::uninit();
        let devices = opencl::devices(request.context, &mut room);
        let grown = Request {
            bytes: more.get(),
            ..request
        };
        if claim(devices, grown, more).is_none() {
            if let Some(free) = clReleaseMemObject::real() {
                // SAFETY: the driver has just created the object; no other thread knows it.
                unsafe { free(object) };
            }
            return false;
        }
    }
    for found in records(object) {
        let charge = found.charge();
        let resized = Charge {
            bytes: charge.bytes.plus(more).minus(less),
            ..charge
        };
        if found.replace(resized)
            && let Some(ledger) = account::ledger()
        {
            account::give_back(ledger, charge.device, less, charge.kind);
        }
    }
    true
}
