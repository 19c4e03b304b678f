//! Numbers the contexts of this process, so that memory can be released with its context.
//! Touches: the page of this process; the clock, while another thread makes a primary context.

use core::sync::atomic::{AtomicU64, Ordering};

use gpuslice_config::sys;

use crate::state::page::ProcessState;

/// The number of contexts that can have a number; memory of further contexts is not released when
/// they end.
pub(crate) const CONTEXTS: usize = 62;

/// The number of a context; assigns one if it has none. 0: there are too many contexts.
pub(crate) fn number(state: &ProcessState, context: u64) -> u8 {
    let mut others = false;
    for (number, place) in (1u8..).zip(&state.contexts) {
        let write = place.compare_exchange(0, context, Ordering::AcqRel, Ordering::Acquire);
        match write {
            Ok(_) => {
                if others {
                    state.several_contexts.store(1, Ordering::Release);
                }
                return number;
            }
            Err(found) if found == context => return number,
            Err(_) => others = true,
        }
    }
    state.several_contexts.store(1, Ordering::Release);
    0
}

/// Frees a number for reuse.
pub(crate) fn forget(state: &ProcessState, number: u8) {
    let place = usize::from(number).checked_sub(1);
    if let Some(place) = place.and_then(|place| state.contexts.get(place)) {
        place.store(0, Ordering::Release);
    }
}

/// The number of a context. 0: it has none.
pub(crate) fn find(state: &ProcessState, context: u64) -> u8 {
    let known = |place: &AtomicU64| place.load(Ordering::Acquire) == context;
    let place = state.contexts.iter().position(known);
    place
        .and_then(|place| u8::try_from(place.saturating_add(1)).ok())
        .unwrap_or(0)
}

/// The number of the process's only context, 0 if it has none. None: it has had several.
#[inline]
pub(crate) fn only(state: &ProcessState) -> Option<u8> {
    if state.several_contexts.load(Ordering::Acquire) != 0 {
        return None;
    }
    let [first, ..] = &state.contexts;
    Some(u8::from(first.load(Ordering::Acquire) != 0))
}

/// Waits until no other thread makes the primary context of an ordinal. Returns its mark, for
/// [`end_primary`].
///
/// A thread may be cancelled in the driver, and a signal handler may interrupt the thread that makes
/// the context. So a wait ends after five seconds, and the caller goes on as if it were alone.
pub(crate) fn begin_primary(state: &ProcessState, ordinal: u32) -> u64 {
    let mark = 1u64.checked_shl(ordinal).unwrap_or(0);
    for _ in 0..5000 {
        if state.making.fetch_or(mark, Ordering::AcqRel) & mark == 0 {
            break;
        }
        sys::sleep_us(1000);
    }
    mark
}

/// Lets the next thread make the primary context.
pub(crate) fn end_primary(state: &ProcessState, mark: u64) {
    state.making.fetch_and(!mark, Ordering::AcqRel);
}
