//! Green contexts: parts of a device's multiprocessors. They have no memory of their own: each
//! keeps the primary context, in which everything is allocated.
//! Touches: the primary context.

use crate::abi::*;
use crate::context::{Context, release_primary, retain_primary};
use crate::driver::{Driver, driver};
use std::sync::atomic::Ordering::Relaxed;

/// One green context, and the context that `cuCtxFromGreenCtx` returns for it.
pub(crate) struct Green {
    handle: Handle,
    context: &'static Context,
    destroyed: bool,
}

/// The contexts that `cuCtxFromGreenCtx` returns.
pub(crate) fn contexts(driver: &Driver) -> Vec<&'static Context> {
    let state = driver.state();
    state.greens.iter().map(|green| green.context).collect()
}

/// Called when a primary context ends. Allocations in the green contexts of its device end, too.
pub(crate) fn primary_ended(driver: &Driver, device: CUdevice) {
    for context in contexts(driver) {
        if context.device == device {
            context.active.store(false, Relaxed);
            crate::state::free_all_of(driver, context);
        }
    }
    let mut state = driver.state();
    state.greens.retain(|green| green.context.device != device);
}

fn find(driver: &Driver, handle: Handle) -> Answer<&'static Context> {
    let state = driver.state();
    let mut alive = state.greens.iter().filter(|green| !green.destroyed);
    let found = alive.find(|green| green.handle == handle);
    found.map(|green| green.context).ok_or(INVALID_HANDLE)
}

cuda! {
    fn cuDeviceGetDevResource(device: CUdevice, out: Out<i32>, kind: i32) {
        driver()?.device(device)?;
        out.set(kind)
    }

    fn cuDevResourceGenerateDesc(out: Out<Handle>, _resources: In<i32>, count: u32) {
        let driver = driver()?;
        if count == 0 {
            return Err(INVALID_VALUE);
        }
        out.set(driver.state().fresh_handle())
    }

    fn cuGreenCtxCreate(out: Out<Handle>, description: Handle, device: CUdevice, _flags: u32) {
        let driver = driver()?;
        if description == 0 {
            return Err(INVALID_VALUE);
        }
        let primary = retain_primary(driver, device)?;
        let context = Context::leak(device, primary.domain, false, 0);
        let mut state = driver.state();
        let handle = state.fresh_handle();
        state.greens.push(Green { handle, context, destroyed: false });
        out.set(handle)
    }

    fn cuGreenCtxDestroy(green: Handle) {
        let driver = driver()?;
        let context = find(driver, green)?;
        context.active.store(false, Relaxed);
        for it in &mut driver.state().greens {
            it.destroyed |= it.handle == green;
        }
        release_primary(context.device)
    }

    fn cuCtxFromGreenCtx(out: Out<Handle>, green: Handle) {
        out.set(find(driver()?, green)?.handle())
    }
}
