//! Memory: total and free, and plain allocations.
//! Touches: the machine's charges, this process's table of allocations.

use crate::abi::*;
use crate::context::{Context, current};
use crate::driver::{Driver, driver};
use crate::heap;
use crate::state::{Allocation, Block, Paid, Sort, State};
use gpuslice_sim_machine::{Kind, STEP};
use std::cell::Cell;

/// Requests up to this size share a 2 MiB block.
pub(crate) const SMALL: u64 = 1 << 20;
pub(crate) const SMALL_STEP: u64 = 512;

thread_local! {
    static LOOKING_ITSELF_UP: Cell<bool> = const { Cell::new(false) };
}

#[inline]
fn info() -> Answer<(u64, u64)> {
    let driver = driver()?;
    let context = current()?;
    if driver.machine.faults.self_dlsym() && !LOOKING_ITSELF_UP.with(|it| it.replace(true)) {
        let answer = crate::resolve::ask_oneself();
        LOOKING_ITSELF_UP.with(|it| it.set(false));
        return answer;
    }
    let now = driver.machine.query_in_cgroup(context.domain);
    Ok((now.free, now.total))
}

/// A size as the 32-bit functions report it: at most the largest number of 32 bits.
fn saturated(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Rounds up to the driver's step, or returns out of memory for a size that no machine has.
pub(crate) fn stepped(bytes: u64) -> Answer<u64> {
    bytes.checked_next_multiple_of(STEP).ok_or(OUT_OF_MEMORY)
}

/// The checks that every allocating function makes first.
pub(crate) fn begin(driver: &Driver, bytes: u64) -> Answer {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    if driver.machine.faults.out_of_memory() {
        Err(OUT_OF_MEMORY)
    } else {
        Ok(())
    }
}

/// Returns INVALID_VALUE for a NULL out-pointer, before anything is allocated.
pub(crate) fn wanted<T>(out: Out<T>) -> Answer {
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    Ok(())
}

/// Allocates in a context and charges this process.
pub(crate) fn allocate(driver: &Driver, context: &Context, bytes: u64, kind: Kind) -> Answer<u64> {
    begin(driver, bytes)?;
    if bytes <= SMALL && kind == Kind::Alloc {
        return allocate_small(driver, context, bytes);
    }
    let charged = stepped(bytes)?;
    driver
        .machine
        .charge(context.domain, kind, charged)
        .map_err(|_| OUT_OF_MEMORY)?;
    let at = heap::map(bytes, true).inspect_err(|_| {
        driver.machine.discharge(context.domain, kind, charged);
    })?;
    let paid = Paid::Own {
        domain: context.domain,
        kind,
        bytes: charged,
    };
    let mut state = driver.state();
    remember(&mut state, at, bytes, paid, context, Sort::Device);
    Ok(at)
}

fn allocate_small(driver: &Driver, context: &Context, bytes: u64) -> Answer<u64> {
    let span = bytes.next_multiple_of(SMALL_STEP);
    let mut state = driver.state();
    let fits = |block: &Block| block.context == context.handle() && block.next + span <= STEP;
    let found = state
        .blocks
        .iter()
        .find(|(_, block)| fits(block))
        .map(|(at, _)| *at);
    let block_at = match found {
        Some(at) => at,
        None => {
            driver
                .machine
                .charge(context.domain, Kind::Alloc, STEP)
                .map_err(|_| OUT_OF_MEMORY)?;
            let at = heap::map(STEP, true).inspect_err(|_| {
                driver.machine.discharge(context.domain, Kind::Alloc, STEP);
            })?;
            let fresh = Block {
                context: context.handle(),
                domain: context.domain,
                next: 0,
                live: 0,
            };
            state.blocks.insert(at, fresh);
            at
        }
    };
    let block = state.blocks.get_mut(&block_at).ok_or(UNKNOWN)?;
    let at = block_at + block.next;
    block.next += span;
    block.live += 1;
    remember(
        &mut state,
        at,
        bytes,
        Paid::Block(block_at),
        context,
        Sort::Device,
    );
    Ok(at)
}

pub(crate) fn remember(
    state: &mut State,
    at: u64,
    bytes: u64,
    paid: Paid,
    context: &Context,
    sort: Sort,
) {
    let id = state.fresh();
    let it = Allocation {
        bytes,
        paid,
        context: context.handle(),
        device: context.device,
        sort,
        id,
    };
    state.allocations.insert(at, it);
}

/// Frees the allocation that starts at `at`, if it is of a sort that the caller may free.
pub(crate) fn release(at: u64, sorts: &[Sort]) -> Answer {
    let driver = driver()?;
    if at == 0 {
        return Ok(());
    }
    let mut state = driver.state();
    let known = state
        .allocations
        .get(&at)
        .is_some_and(|it| sorts.contains(&it.sort));
    if !known {
        return Err(INVALID_VALUE);
    }
    let it = state.allocations.remove(&at).ok_or(INVALID_VALUE)?;
    state.let_go(driver, at, &it)?;
    // Pool memory that is freed with the ordinary function is synchronised at once.
    if matches!(it.paid, Paid::Pool(..)) {
        crate::pool::settle_all(driver, &mut state);
    }
    Ok(())
}

/// Allocates for the 32-bit functions, whose addresses have 32 bits. It never uses a shared block.
fn allocate_low(bytes: u64) -> Answer<u32> {
    let driver = driver()?;
    let context = current()?;
    begin(driver, bytes)?;
    let at = heap::map_low(bytes)?;
    let charged = stepped(bytes)?;
    if driver
        .machine
        .charge(context.domain, Kind::Alloc, charged)
        .is_err()
    {
        heap::unmap(at, bytes);
        return Err(OUT_OF_MEMORY);
    }
    let paid = Paid::Own {
        domain: context.domain,
        kind: Kind::Alloc,
        bytes: charged,
    };
    remember(&mut driver.state(), at, bytes, paid, context, Sort::Device);
    u32::try_from(at).map_err(|_| OUT_OF_MEMORY)
}

fn pitched(bytes: u64) -> u64 {
    bytes.next_multiple_of(512)
}

fn allocate_pitch(width: u64, height: u64, element: u32) -> Answer<(u64, u64)> {
    if !matches!(element, 4 | 8 | 16) || width == 0 || width > u64::from(u32::MAX) {
        return Err(INVALID_VALUE);
    }
    let driver = driver()?;
    let pitch = pitched(width);
    let bytes = pitch.checked_mul(height).ok_or(OUT_OF_MEMORY)?;
    Ok((allocate(driver, current()?, bytes, Kind::Alloc)?, pitch))
}

const FREEABLE: &[Sort] = &[Sort::Device, Sort::Managed];

cuda! {
    fn cuMemGetInfo(free: Out<u32>, total: Out<u32>) {
        let (now_free, now_total) = info()?;
        free.set(saturated(now_free))?;
        total.set(saturated(now_total))
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let (now_free, now_total) = info()?;
        free.set(now_free as usize)?;
        total.set(now_total as usize)
    }

    fn cuDeviceTotalMem(total: Out<u32>, device: CUdevice) {
        let driver = driver()?;
        total.set(saturated(driver.machine.cuda_total(driver.device(device)?.domain)))
    }

    fn cuDeviceTotalMem_v2(total: Out<usize>, device: CUdevice) {
        let driver = driver()?;
        total.set(driver.machine.cuda_total(driver.device(device)?.domain) as usize)
    }

    fn cuMemAlloc(out: Out<u32>, bytes: u32) {
        wanted(out)?;
        out.set(allocate_low(u64::from(bytes))?)
    }

    fn cuMemAlloc_v2(out: Out<CUdeviceptr>, bytes: usize) {
        let driver = driver()?;
        let context = current()?;
        wanted(out)?;
        out.set(allocate(driver, context, bytes as u64, Kind::Alloc)?)
    }

    fn cuMemAllocPitch_v2(out: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        driver()?;
        current()?;
        wanted(out)?;
        wanted(pitch)?;
        let (at, real) = allocate_pitch(width as u64, height as u64, element)?;
        pitch.set(real as usize)?;
        out.set(at)
    }

    fn cuMemFree(at: u32) {
        release(u64::from(at), FREEABLE)
    }

    fn cuMemFree_v2(at: CUdeviceptr) {
        // PyTorch releases its cache with this call. In a capture the call fails and invalidates
        // the capture.
        let mut state = driver()?.state();
        if !state.capturing.is_empty() {
            state.capturing.values_mut().for_each(|invalid| *invalid = true);
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        drop(state);
        release(at, FREEABLE)
    }
}
