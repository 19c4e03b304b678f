//! Pays for memory that OpenCL imports: the process that has exported it, while that process holds
//! it, and the importer afterwards.
//! Touches: the ledger, through the account; this process's own table; the driver, by the call that
//! it is given, and to be told of an object's end.

use core::ffi::c_void;

use gpuslice_config::ledger::Class;
use gpuslice_config::words::units::Bytes;

use super::{Allocate, Made, Request, account, report_end};
use crate::account::share::{self, Full, Granted, Named};
use crate::account::sharing::Key;
use crate::account::{Account, find, ledger};
use crate::answer::opencl::{self, Room};
use crate::log::counters;
use crate::real::opencl::{cl_device_id, cl_mem};
use crate::state::handles::{self, Space};

/// Memory of another API that a program imports.
#[derive(Clone, Copy)]
pub(crate) struct External {
    /// The key of the memory. None: it cannot be told from other memory, and is not charged.
    pub(crate) key: Option<Key>,
    /// The devices that the program names, up to a null. Null: those of the context.
    pub(crate) devices: *const cl_device_id,
}

/// The account of the device that has the memory: the first one on which a process of the slice has
/// exported it, or else the first one.
fn payer(devices: impl Iterator<Item = cl_device_id>, class: Class) -> Option<Account> {
    let mut first = None;
    for account in devices.filter_map(account) {
        if account.ledger.exported(account.listed, class).is_some() {
            return Some(account);
        }
        first = first.or(Some(account));
    }
    first
}

/// Imports memory, if the slice has room for it.
///
/// # Safety
/// `external.devices` is null, or a list that ends with a null.
#[inline(never)]
pub(crate) unsafe fn pay(request: Request, external: External, allocate: Allocate<'_>) -> Made {
    let mut room = Room::uninit();
    let of_context = opencl::devices(request.context, &mut room).iter().copied();
    let named = (0usize..).map_while(|number| {
        let at = external.devices.wrapping_add(number);
        let is_null = external.devices.is_null();
        // SAFETY: the caller guarantees a list whose end was not reached yet.
        let device = (!is_null).then(|| unsafe { at.read() })?;
        (!device.is_null()).then_some(device)
    });
    let found = external.key.filter(|_| request.bytes != 0).and_then(|key| {
        let account = match external.devices.is_null() {
            true => payer(of_context, key.class()),
            false => payer(named, key.class()),
        };
        Some((account?, key))
    });
    let Some((account, key)) = found else {
        return Made::Object(allocate.call(), 0);
    };
    let bytes = share::paged(request.bytes);
    let named = Named {
        bytes,
        is_charged: true,
    };
    let granted = match share::import(&account, key, named) {
        Ok(Some(granted)) => granted,
        Ok(None) => return Made::Object(allocate.call(), 0),
        Err(Full) => return Made::Refused,
    };
    let object = allocate.call();
    match object.is_null() {
        true => granted.undo(&account, bytes),
        false => keep(&account, object, granted, bytes),
    }
    Made::Object(object, 0)
}

/// Records imported memory by its object.
fn keep(account: &Account, object: cl_mem, granted: Granted, bytes: Bytes) {
    let number = object as u64;
    // An object that ended without a report.
    if let Some(old) = handles::find(account.state, Space::OpenClImport, number) {
        release(old);
    }
    let record = granted.record(account, bytes);
    if handles::put_payload(account.state, Space::OpenClImport, number, record) {
        return report_end(object, gone, 0);
    }
    granted.undo(account, bytes);
    counters::UNCOUNTED.warn_text("no memory to record an import, which is not counted");
}

/// The driver's report that an object with imported memory goes.
unsafe extern "C" fn gone(object: cl_mem, _: *mut c_void) {
    if let Some(found) = find(Space::OpenClImport, object as u64) {
        release(found);
    }
}

fn release(found: handles::FoundEntry) {
    if found.take()
        && let Some(ledger) = ledger()
    {
        share::release(found.payload(), ledger);
    }
}
