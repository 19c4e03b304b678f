//! Contexts: primary and created, current per thread, each costing device memory.
//! Touches: the machine's charges, this thread's stack of contexts.

use crate::abi::*;
use crate::driver::{Driver, driver};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// A context. Never freed, so that a stale handle is an error and not a crash.
pub(crate) struct Context {
    pub(crate) device: CUdevice,
    pub(crate) domain: usize,
    pub(crate) is_primary: bool,
    pub(crate) active: AtomicBool,
    flags: AtomicU32,
    retained: AtomicU32,
}

impl Context {
    pub(crate) fn leak(
        device: CUdevice,
        domain: usize,
        is_primary: bool,
        flags: u32,
    ) -> &'static Self {
        Box::leak(Box::new(Self {
            device,
            domain,
            is_primary,
            active: AtomicBool::new(!is_primary),
            flags: AtomicU32::new(flags),
            retained: AtomicU32::new(u32::from(!is_primary)),
        }))
    }

    pub(crate) fn primary(ordinal: usize, domain: usize) -> &'static Self {
        Self::leak(CUdevice::try_from(ordinal).unwrap_or(0), domain, true, 0)
    }

    pub(crate) fn handle(&self) -> Handle {
        std::ptr::from_ref(self) as Handle
    }

    pub(crate) fn alive(&'static self) -> Answer<&'static Self> {
        if self.active.load(Relaxed) {
            Ok(self)
        } else {
            Err(CONTEXT_IS_DESTROYED)
        }
    }
}

const DEPTH: usize = 64;

thread_local! {
    static STACK: [Cell<Option<&'static Context>>; DEPTH] = const { [const { Cell::new(None) }; DEPTH] };
    static TOP: Cell<usize> = const { Cell::new(0) };
    static CURRENT: Cell<Option<&'static Context>> = const { Cell::new(None) };
}

/// The current context of this thread, or INVALID_CONTEXT.
#[inline]
pub(crate) fn current() -> Answer<&'static Context> {
    CURRENT.with(Cell::get).ok_or(INVALID_CONTEXT)?.alive()
}

fn push(context: &'static Context) -> Answer {
    let top = TOP.with(Cell::get);
    STACK.with(|stack| {
        stack
            .get(top)
            .ok_or(INVALID_VALUE)
            .map(|cell| cell.set(Some(context)))
    })?;
    TOP.with(|cell| cell.set(top + 1));
    CURRENT.with(|cell| cell.set(Some(context)));
    Ok(())
}

fn pop() -> Answer<&'static Context> {
    let context = CURRENT.with(Cell::get).ok_or(INVALID_CONTEXT)?;
    let top = TOP.with(Cell::get).saturating_sub(1);
    TOP.with(|cell| cell.set(top));
    let below = top
        .checked_sub(1)
        .and_then(|i| STACK.with(|stack| stack.get(i).and_then(Cell::get)));
    CURRENT.with(|cell| cell.set(below));
    Ok(context)
}

pub(crate) fn find(driver: &Driver, handle: Handle) -> Answer<&'static Context> {
    let greens = crate::green::contexts(driver);
    driver
        .devices
        .iter()
        .map(|device| device.primary)
        .chain(driver.state().contexts.iter().copied())
        .chain(greens)
        .find(|context| context.handle() == handle)
        .ok_or(INVALID_CONTEXT)
}

pub(crate) fn create(out: Out<Handle>, flags: u32, device: CUdevice) -> Answer {
    let driver = driver()?;
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    let domain = driver.device(device)?.domain;
    driver
        .machine
        .context_created(domain)
        .map_err(|_| OUT_OF_MEMORY)?;
    let context = Context::leak(device, domain, false, flags);
    driver.state().contexts.push(context);
    push(context)?;
    out.set(context.handle())
}

/// Ends a context, and frees everything that was allocated in it.
fn end(driver: &Driver, context: &'static Context) {
    if context.active.swap(false, Relaxed) {
        context.retained.store(0, Relaxed);
        crate::state::free_all_of(driver, context);
        if context.is_primary {
            crate::green::primary_ended(driver, context.device);
        }
        driver.machine.context_destroyed(context.domain);
    }
}

/// Creates the device's primary context if it does not exist.
pub(crate) fn retain_primary(driver: &Driver, device: CUdevice) -> Answer<&'static Context> {
    let device = driver.device(device)?;
    let context = device.primary;
    let _one_at_a_time = driver.state();
    if !context.active.load(Relaxed) {
        driver
            .machine
            .context_created(device.domain)
            .map_err(|_| OUT_OF_MEMORY)?;
        context.active.store(true, Relaxed);
    }
    context.retained.fetch_add(1, Relaxed);
    Ok(context)
}

cuda! {
    fn cuDevicePrimaryCtxRetain(out: Out<Handle>, device: CUdevice) {
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        out.set(retain_primary(driver()?, device)?.handle())
    }

    fn cuDevicePrimaryCtxRelease(device: CUdevice) {
        release_primary(device)
    }

    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        release_primary(device)
    }

    fn cuDevicePrimaryCtxReset(device: CUdevice) {
        let driver = driver()?;
        end(driver, driver.device(device)?.primary);
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) {
        let driver = driver()?;
        end(driver, driver.device(device)?.primary);
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: Out<u32>, active: Out<i32>) {
        let primary = driver()?.device(device)?.primary;
        flags.set(primary.flags.load(Relaxed))?;
        active.set(i32::from(primary.active.load(Relaxed)))
    }

    fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: u32) {
        driver()?.device(device)?.primary.flags.store(flags, Relaxed);
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: u32) {
        driver()?.device(device)?.primary.flags.store(flags, Relaxed);
        Ok(())
    }

    fn cuCtxCreate(out: Out<Handle>, flags: u32, device: CUdevice) {
        create(out, flags, device)
    }

    fn cuCtxCreate_v2(out: Out<Handle>, flags: u32, device: CUdevice) {
        create(out, flags, device)
    }

    fn cuCtxCreate_v3(out: Out<Handle>, _affinity: Handle, _count: i32, flags: u32, device: CUdevice) {
        create(out, flags, device)
    }

    fn cuCtxCreate_v4(out: Out<Handle>, _parameters: Handle, flags: u32, device: CUdevice) {
        create(out, flags, device)
    }

    fn cuCtxDestroy(context: Handle) {
        destroy(context)
    }

    fn cuCtxDestroy_v2(context: Handle) {
        destroy(context)
    }

    fn cuCtxSetCurrent(context: Handle) {
        let driver = driver()?;
        if context == 0 {
            if CURRENT.with(Cell::get).is_some() {
                pop()?;
            }
            return Ok(());
        }
        let context = find(driver, context)?.alive()?;
        if CURRENT.with(Cell::get).is_some() {
            pop()?;
        }
        push(context)
    }

    fn cuCtxGetCurrent(out: Out<Handle>) {
        driver()?;
        out.set(CURRENT.with(Cell::get).map_or(0, Context::handle))
    }

    fn cuCtxPushCurrent(context: Handle) {
        push(find(driver()?, context)?.alive()?)
    }

    fn cuCtxPushCurrent_v2(context: Handle) {
        push(find(driver()?, context)?.alive()?)
    }

    fn cuCtxPopCurrent(out: Out<Handle>) {
        driver()?;
        out.set_if_wanted(pop()?.handle());
        Ok(())
    }

    fn cuCtxPopCurrent_v2(out: Out<Handle>) {
        driver()?;
        out.set_if_wanted(pop()?.handle());
        Ok(())
    }

    fn cuCtxGetDevice(out: Out<CUdevice>) {
        driver()?;
        out.set(current()?.device)
    }

    fn cuCtxGetDevice_v2(out: Out<CUdevice>, context: Handle) {
        let driver = driver()?;
        out.set(if context == 0 { current()? } else { find(driver, context)?.alive()? }.device)
    }

    fn cuCtxGetFlags(out: Out<u32>) {
        driver()?;
        out.set(current()?.flags.load(Relaxed))
    }

    fn cuCtxGetId(context: Handle, out: Out<u64>) {
        let driver = driver()?;
        let context = if context == 0 { current()? } else { find(driver, context)?.alive()? };
        out.set(context.handle() as u64)
    }

    fn cuCtxGetApiVersion(context: Handle, out: Out<u32>) {
        let driver = driver()?;
        if context == 0 { current()? } else { find(driver, context)?.alive()? };
        out.set(3020)
    }

    fn cuCtxSynchronize() {
        driver()?;
        current()?;
        crate::stream::synchronize(None)
    }

    fn cuCtxSynchronize_v2(context: Handle) {
        let driver = driver()?;
        if context == 0 { current()? } else { find(driver, context)?.alive()? };
        crate::stream::synchronize(None)
    }

    fn cuCtxGetLimit(out: Out<usize>, limit: i32) {
        driver()?;
        current()?;
        out.set(match limit {
            0 => 1024,
            1 => 1 << 20,
            2 => 8 << 20,
            3 => 2,
            4 => 2048,
            5 => 128,
            6 => 0,
            _ => return Err(NOT_SUPPORTED),
        })
    }

    fn cuCtxSetLimit(_limit: i32, _value: usize) {
        driver()?;
        current().map(|_| ())
    }

    fn cuCtxGetCacheConfig(out: Out<i32>) {
        driver()?;
        current()?;
        out.set(0)
    }

    fn cuCtxSetCacheConfig(_config: i32) {
        driver()?;
        current().map(|_| ())
    }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        driver()?;
        current()?;
        least.set_if_wanted(0);
        greatest.set_if_wanted(-5);
        Ok(())
    }

    fn cuCtxAttach(out: Out<Handle>, _flags: u32) {
        driver()?;
        let context = current()?;
        context.retained.fetch_add(1, Relaxed);
        out.set(context.handle())
    }

    fn cuCtxDetach(context: Handle) {
        let driver = driver()?;
        let of = find(driver, context)?.alive()?;
        if of.retained.load(Relaxed) > 1 {
            of.retained.fetch_sub(1, Relaxed);
            return Ok(());
        }
        destroy(context)
    }
}

pub(crate) fn release_primary(device: CUdevice) -> Answer {
    let driver = driver()?;
    let primary = driver.device(device)?.primary;
    let last = {
        let _one_at_a_time = driver.state();
        let retained = primary.retained.load(Relaxed);
        if retained == 0 {
            return Err(INVALID_CONTEXT);
        }
        primary.retained.store(retained - 1, Relaxed);
        retained == 1
    };
    if last {
        end(driver, primary);
    }
    Ok(())
}

fn destroy(handle: Handle) -> Answer {
    let driver = driver()?;
    let context = find(driver, handle)?.alive()?;
    if context.is_primary {
        return Err(INVALID_CONTEXT);
    }
    end(driver, context);
    driver
        .state()
        .contexts
        .retain(|other| other.handle() != handle);
    if CURRENT
        .with(Cell::get)
        .is_some_and(|now| now.handle() == handle)
    {
        pop()?;
    }
    Ok(())
}
