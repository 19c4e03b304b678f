//! Managed memory: it costs nothing until it is moved to a device, and memory that does not fit
//! stays on the host.
//! Touches: the machine's charges.

use crate::abi::*;
use crate::context::current;
use crate::driver::driver;
use crate::heap;
use crate::memory::{SMALL, SMALL_STEP, begin, remember, stepped, wanted};
use crate::state::{Paid, Sort, State};
use gpuslice_sim_machine::{Kind, STEP};

/// The vendor's CUmemLocation.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

const ON_DEVICE: i32 = 1;

/// Moves the allocation around `at` to a device, or (`None`) to the host.
fn prefetch(at: CUdeviceptr, bytes: u64, device: Option<CUdevice>) -> Answer {
    let driver = driver()?;
    let mut state = driver.state();
    let (base, it) = state.around(at).ok_or(INVALID_VALUE)?;
    if it.sort != Sort::Managed || at.saturating_add(bytes) > base + it.bytes {
        return Err(INVALID_VALUE);
    }
    let resident = match it.paid {
        Paid::Own { domain, bytes, .. } => Some((domain, bytes)),
        _ => None,
    };
    let whole = stepped(it.bytes)?;
    let wanted = match device {
        Some(device) => Some(driver.device(device)?.domain),
        None => None,
    };
    let paid = match (resident, wanted) {
        (Some((domain, held)), Some(to)) if domain == to => {
            let more = stepped(bytes)?.min(whole - held);
            let granted = driver.machine.charge_up_to(to, Kind::Managed, more);
            Paid::Own {
                domain,
                kind: Kind::Managed,
                bytes: held + granted,
            }
        }
        (resident, Some(to)) => {
            if let Some((domain, held)) = resident {
                driver.machine.discharge(domain, Kind::Managed, held);
            }
            let granted =
                driver
                    .machine
                    .charge_up_to(to, Kind::Managed, stepped(bytes)?.min(whole));
            Paid::Own {
                domain: to,
                kind: Kind::Managed,
                bytes: granted,
            }
        }
        (Some((domain, held)), None) => {
            let back = stepped(bytes)?.min(held);
            driver.machine.discharge(domain, Kind::Managed, back);
            Paid::Own {
                domain,
                kind: Kind::Managed,
                bytes: held - back,
            }
        }
        (None, None) => Paid::Nothing,
    };
    if let Some(it) = state.allocations.get_mut(&base) {
        it.paid = paid;
    }
    Ok(())
}

/// A place for managed memory. Small requests lie together in steps of their own.
fn place(state: &mut State, bytes: u64) -> Answer<u64> {
    if bytes > SMALL {
        return heap::map(bytes, true);
    }
    let span = bytes.next_multiple_of(SMALL_STEP);
    if state.small_managed.start + span > state.small_managed.end {
        let start = heap::map(STEP, true)?;
        state.small_managed = start..start + STEP;
    }
    let at = state.small_managed.start;
    state.small_managed.start += span;
    Ok(at)
}

cuda! {
    fn cuMemAllocManaged(out: Out<CUdeviceptr>, bytes: usize, flags: u32) {
        let driver = driver()?;
        let context = current()?;
        wanted(out)?;
        begin(driver, bytes as u64)?;
        if !matches!(flags, 1 | 2) {
            return Err(INVALID_VALUE);
        }
        let mut state = driver.state();
        let at = place(&mut state, bytes as u64)?;
        remember(&mut state, at, bytes as u64, Paid::Nothing, context, Sort::Managed);
        out.set(at)
    }

    fn cuMemPrefetchAsync(at: CUdeviceptr, bytes: usize, device: CUdevice, _stream: Handle) {
        prefetch(at, bytes as u64, (device >= 0).then_some(device))
    }

    fn cuMemPrefetchAsync_v2(at: CUdeviceptr, bytes: usize, to: Location, _flags: u32, _stream: Handle) {
        prefetch(at, bytes as u64, (to.kind == ON_DEVICE).then_some(to.id))
    }

    fn cuMemAdvise(_at: CUdeviceptr, _bytes: usize, _advice: i32, _device: CUdevice) {
        driver().map(|_| ())
    }

    fn cuMemAdvise_v2(_at: CUdeviceptr, _bytes: usize, _advice: i32, _to: Location) {
        driver().map(|_| ())
    }
}
