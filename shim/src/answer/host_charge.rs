//! Measures the host memory that the slice's programs hold, and which part of it is charged.
//! Touches: the slice's own cgroup or its processes, this process's page.

use core::ffi::CStr;
use core::sync::atomic::Ordering;
use core::time::Duration;

use gpuslice_config::host::cgroup;
use gpuslice_config::ledger::{Kind, Ledger, Record};
use gpuslice_config::slice::host_reserve::HOST_ALLOWANCE;
use gpuslice_config::words::units::Bytes;

use crate::answer::device::Device;
use crate::log::counters;
use crate::slice::loaded_slice::LoadedSlice;
use crate::state::page::ProcessState;
use crate::sys::{self, Errno, File};

/// How long the host memory charged to the slice is reused. Programs touch mapped memory gradually,
/// and the kernel takes up to a millisecond for a cgroup's `memory.stat`.
const CHARGE_VALID: Duration = Duration::from_millis(5);

/// The part of the host's memory that is charged to the slice.
pub(super) fn charge(
    slice: &LoadedSlice,
    device: &Device<'_>,
    state: &ProcessState,
    clock: u64,
) -> Bytes {
    let kept = &state.host;
    let at = kept.charged_at.load(Ordering::Acquire);
    if at != 0 && clock.wrapping_sub(at) < const { sys::nanoseconds(CHARGE_VALID) } {
        return Bytes::new(kept.charged.load(Ordering::Relaxed));
    }
    // Without free descriptors nothing can be read, and what was charged stays charged.
    let before = || Bytes::new(kept.charged.load(Ordering::Relaxed));
    let charge = measure(slice, device).unwrap_or_else(before);
    kept.charged.store(charge.get(), Ordering::Relaxed);
    kept.charged_at.store(clock, Ordering::Release);
    charge
}

/// `None`: the slice's cgroup or its processes cannot be read.
fn measure(slice: &LoadedSlice, device: &Device<'_>) -> Option<Bytes> {
    let Some(ledger) = slice.ledger() else {
        return Some(Bytes::ZERO);
    };
    let allowance = slice.host_allowance().unwrap_or(HOST_ALLOWANCE);
    if let Some(cgroup) = slice.cgroup() {
        let Some(held) = of_cgroup(cgroup, allowance) else {
            counters::CGROUP.warn_text(
                "the slice's cgroup cannot be read: the charge for host memory stays as it is",
            );
            return None;
        };
        // The kernel charges managed and pinned memory to the cgroup, and the ledger counts it too.
        let in_both = match held > allowance {
            true => managed_and_pinned(ledger, device),
            false => Bytes::ZERO,
        };
        return Some(cgroup::charged(held, in_both, allowance));
    }
    let held = of_processes(ledger, device)?;
    Some(cgroup::charged(held, Bytes::ZERO, allowance))
}

/// The unreclaimable memory of a cgroup. Up to the allowance the exact amount does not matter, and
/// `memory.stat` is not read.
fn of_cgroup(folder: &CStr, allowance: Bytes) -> Option<Bytes> {
    let folder = File::open_folder(folder).ok()?;
    let current = folder.open_entry(c"memory.current");
    let current = current.or_else(|_| folder.open_entry(c"memory.usage_in_bytes"));
    let mut number = [0u8; 32];
    let current = current.ok()?.read(&mut number).ok()?;
    let all = cgroup::amount(current)?;
    if all <= allowance {
        return Some(all);
    }
    let mut stat = [0u8; cgroup::STAT];
    let file = folder.open_entry(c"memory.stat").ok()?;
    cgroup::of_cgroup(current, file.read(&mut stat).ok()?)
}

fn managed_and_pinned(ledger: &Ledger, device: &Device<'_>) -> Bytes {
    let records = ledger
        .slots()
        .filter(|record| is_of(ledger, record, device));
    let kinds = records.flat_map(|record| record.by_kind);
    let both = kinds.filter(|(kind, _)| matches!(kind, Kind::Managed | Kind::Pinned));
    both.fold(Bytes::ZERO, |sum, (_, bytes)| sum.plus(Bytes::new(bytes)))
}

/// The host memory of the processes that have memory on the device. Other processes of the slice
/// are not included. `None`: a process cannot be read for the moment.
fn of_processes(ledger: &Ledger, device: &Device<'_>) -> Option<Bytes> {
    let mut records = ledger
        .slots()
        .filter(|record| is_of(ledger, record, device));
    records.try_fold(Bytes::ZERO, |sum, record| {
        match of_process(record.pid) {
            Ok(held) => Some(sum.plus(held)),
            Err(why) if why.is_passing() => None,
            // It has ended, or this user may not see it.
            Err(_) => Some(sum),
        }
    })
}

fn is_of(ledger: &Ledger, record: &Record, device: &Device<'_>) -> bool {
    let listed = record.device.and_then(|uuid| ledger.device(&uuid));
    listed.is_some() && listed == device.listed
}

fn of_process(pid: u32) -> Result<Bytes, Errno> {
    let mut path = [0u8; 32];
    let path = sys::path_of_process(&mut path, pid, b"/statm").ok_or(sys::ENOENT)?;
    let mut statm = [0u8; 128];
    let statm = File::open(path)?.read(&mut statm)?;
    cgroup::of_process(statm, sys::page_size()).ok_or(sys::EINVAL)
}
