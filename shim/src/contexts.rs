//! Numbers for the contexts of this process, so that what ends with a context is known.
//! Touches: the page of this process; the driver, when there is more than one context.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

use crate::abi::SUCCESS;
use crate::private::Private;
use crate::real::Slot;
use crate::table;

/// How many contexts have a number; what belongs to others is not let go of with them.
pub(crate) const CONTEXTS: usize = 62;

/// The number of a context, which it gets if it has none. 0: there are too many.
pub(crate) fn number(private: &Private, context: u64) -> u8 {
    let mut others = false;
    for (number, place) in (1u8..).zip(&private.contexts) {
        let write = place.compare_exchange(0, context, Ordering::AcqRel, Ordering::Acquire);
        match write {
            Ok(_) => {
                if others {
                    private.several_contexts.store(1, Ordering::Release);
                }
                return number;
            }
            Err(found) if found == context => return number,
            Err(_) => others = true,
        }
    }
    private.several_contexts.store(1, Ordering::Release);
    0
}

/// The number is free again.
pub(crate) fn forget(private: &Private, number: u8) {
    let place = usize::from(number).checked_sub(1);
    if let Some(place) = place.and_then(|place| private.contexts.get(place)) {
        place.store(0, Ordering::Release);
    }
}

/// The number of the calling thread's current context. 0: it has none.
#[inline]
pub(crate) fn current(private: &Private, slot: Slot) -> u8 {
    if private.several_contexts.load(Ordering::Acquire) == 0 {
        let [first, ..] = &private.contexts;
        return u8::from(first.load(Ordering::Acquire) != 0);
    }
    ask(private, slot)
}

#[cold]
fn ask(private: &Private, slot: Slot) -> u8 {
    let mut context: *mut c_void = core::ptr::null_mut();
    let Some(ask) = table::cuCtxGetCurrent::real(slot) else {
        return 0;
    };
    // SAFETY: cuCtxGetCurrent's contract.
    let code = unsafe { ask(&raw mut context) };
    if code != SUCCESS || context.is_null() {
        return 0;
    }
    let known =
        |place: &core::sync::atomic::AtomicU64| place.load(Ordering::Acquire) == context as u64;
    let place = private.contexts.iter().position(known);
    place
        .and_then(|place| u8::try_from(place.saturating_add(1)).ok())
        .unwrap_or(0)
}
