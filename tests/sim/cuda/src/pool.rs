//! Memory pools: a process is charged for the memory that a pool reserves, and not for the memory
//! used out of it.
//! Touches: the machine's charges. Law: after a synchronisation a pool keeps max(used, threshold)
//! of its reserved memory.

use crate::abi::*;
use crate::context::Context;
use crate::driver::{Driver, driver};
use crate::graph;
use crate::heap;
use crate::memory::{begin, remember};
use crate::state::{Paid, Sort, State};
use crate::stream;
use crate::vmm::{LOCALITY_DOMAIN, device_of};
use gpuslice_sim_machine::{Kind, STEP};

/// Pools grow by this much where there is room.
const GROWTH: u64 = 32 << 20;
const SMALLEST: u64 = 512;

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    device: CUdevice,
    place: Place,
    /// `None`: host memory, for which only unified memory is charged, or managed memory, which is
    /// not charged.
    domain: Option<usize>,
    is_default: bool,
    threshold: u64,
    reuse: [i32; 3],
    reserved: u64,
    reserved_high: u64,
    pub(crate) used: u64,
    used_high: u64,
    max: u64,
    /// The pool was destroyed while its memory was in use. It ends with the last of that memory.
    doomed: bool,
}

/// The place of a pool: the vendor's allocation type, and type and id of its CUmemLocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) kind: i32,
    pub(crate) location: i32,
    pub(crate) id: i32,
}

/// CU_MEM_ALLOCATION_TYPE_MANAGED.
const MANAGED: i32 = 2;

impl Place {
    /// The default place of a device.
    pub(crate) fn on(device: CUdevice) -> Place {
        Place {
            kind: 1,
            location: 1,
            id: device,
        }
    }

    /// The device, or -1.
    pub(crate) fn device(self) -> CUdevice {
        match self.location {
            1 | LOCALITY_DOMAIN => device_of(self.location, self.id),
            _ => -1,
        }
    }

    /// The memory that is charged, if any.
    fn domain(self, driver: &Driver) -> Answer<Option<usize>> {
        let on_device = matches!(self.location, 1 | LOCALITY_DOMAIN);
        let domain = on_device.then(|| driver.device(self.device()).map(|it| it.domain));
        let domain = domain.transpose()?;
        let integrated = || {
            let mut domains = driver.devices.iter().map(|it| it.domain);
            domains.find(|it| driver.machine.gpu(*it).integrated)
        };
        match (self.kind, self.location) {
            (MANAGED, 0..=3) => Ok(None),
            (1, 1 | LOCALITY_DOMAIN) => Ok(domain),
            (1, 2..=4) => Ok(integrated()),
            _ => Err(INVALID_VALUE),
        }
    }
}

/// The start of the vendor's CUmemPoolProps.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Props {
    kind: i32,
    handle_types: i32,
    location: i32,
    id: i32,
    security: usize,
    max: usize,
}

/// The default pool of a place.
pub(crate) fn default_pool(driver: &Driver, state: &mut State, place: Place) -> Answer<Handle> {
    let known = state
        .pools
        .iter()
        .find(|(_, pool)| pool.is_default && pool.place == place);
    match known {
        Some((handle, _)) => Ok(*handle),
        None => add(driver, state, place, true, 0),
    }
}

fn add(
    driver: &Driver,
    state: &mut State,
    place: Place,
    is_default: bool,
    max: u64,
) -> Answer<Handle> {
    let domain = place.domain(driver)?;
    let handle = state.fresh_handle();
    let pool = Pool {
        device: place.device(),
        place,
        domain,
        is_default,
        threshold: 0,
        reuse: [1; 3],
        reserved: 0,
        reserved_high: 0,
        used: 0,
        used_high: 0,
        max,
        doomed: false,
    };
    state.pools.insert(handle, pool);
    Ok(handle)
}

/// The pool of a device that serves allocations which name none.
pub(crate) fn current_pool(driver: &Driver, state: &mut State, device: CUdevice) -> Answer<Handle> {
    match state.current_pool.get(&device) {
        Some(pool) => Ok(*pool),
        None => default_pool(driver, state, Place::on(device)),
    }
}

/// Reserves memory until `used` fits: in whole growth steps, or in single steps where those do not
/// fit.
fn reserve(driver: &Driver, pool: &mut Pool, used: u64) -> Answer {
    let missing = used.saturating_sub(pool.reserved);
    if missing == 0 {
        return Ok(());
    }
    for step in [GROWTH, STEP] {
        let more = missing
            .checked_next_multiple_of(step)
            .ok_or(OUT_OF_MEMORY)?;
        if pool.max != 0 && pool.reserved + more > pool.max.next_multiple_of(STEP) {
            continue;
        }
        let granted = match pool.domain {
            Some(domain) => driver.machine.charge(domain, Kind::Pool, more).is_ok(),
            None => true,
        };
        if granted {
            pool.reserved += more;
            pool.reserved_high = pool.reserved_high.max(pool.reserved);
            return Ok(());
        }
    }
    Err(OUT_OF_MEMORY)
}

fn shrink(driver: &Driver, pool: &mut Pool, keep: u64) {
    let keep = pool
        .used
        .max(keep)
        .checked_next_multiple_of(STEP)
        .unwrap_or(u64::MAX);
    if pool.reserved > keep {
        if let Some(domain) = pool.domain {
            driver
                .machine
                .discharge(domain, Kind::Pool, pool.reserved - keep);
        }
        pool.reserved = keep;
    }
}

/// Applies a synchronisation to every pool.
pub(crate) fn settle_all(driver: &Driver, state: &mut State) {
    for pool in state.pools.values_mut().filter(|pool| !pool.doomed) {
        let keep = pool.threshold;
        shrink(driver, pool, keep);
    }
}

/// Called when the device has no context any more. If its last one was the primary context, its pools
/// are assumed to be destroyed, the default one included: the vendor calls that a reset.
pub(crate) fn forget_device(driver: &Driver, state: &mut State, last: &Context) {
    let device = last.device;
    let mut reset = Vec::new();
    for (handle, pool) in &mut state.pools {
        if pool.device == device {
            pool.used = 0;
            shrink(driver, pool, 0);
            if last.is_primary {
                reset.push(*handle);
            }
        }
    }
    for handle in reset {
        state.pools.remove(&handle);
        state.destroyed_pools.insert(handle);
        state.current_pool.retain(|_, current| *current != handle);
    }
    state.pools.retain(|_, pool| !pool.doomed || pool.used != 0);
}

/// Returns memory to a pool.
pub(crate) fn gave_back(driver: &Driver, state: &mut State, handle: Handle, bytes: u64) {
    let Some(pool) = state.pools.get_mut(&handle) else {
        return;
    };
    pool.used -= bytes.min(pool.used);
    if pool.doomed && pool.used == 0 {
        shrink(driver, pool, 0);
        state.pools.remove(&handle);
    }
}

/// A pool that has not been destroyed. Handles are pointers, so the behaviour of a real driver with
/// a destroyed pool depends on its memory. The simulator counts such calls.
fn pool(state: &mut State, handle: Handle) -> Answer<&mut Pool> {
    if state.destroyed_pools.contains(&handle) {
        crate::driver::driver()?.machine.misused();
    }
    let found = state.pools.get_mut(&handle);
    found.filter(|pool| !pool.doomed).ok_or(INVALID_VALUE)
}

fn allocate(out: Out<CUdeviceptr>, bytes: u64, pool: Option<Handle>, stream: Handle) -> Answer {
    let driver = driver()?;
    let context = stream::context(stream)?;
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    begin(driver, bytes)?;
    let mut state = driver.state();
    if let Some(graph) = state.graphs.capturing(stream) {
        // By the vendor's documentation, the pool's properties are those of the node.
        let place = match pool {
            Some(pool) => self::pool(&mut state, pool)?.place,
            None => Place::on(context.device),
        };
        return out.set(graph::capture_alloc(&mut state, graph, place, bytes)?);
    }
    let handle = match pool {
        Some(pool) => pool,
        None => current_pool(driver, &mut state, context.device)?,
    };
    let span = bytes
        .checked_next_multiple_of(SMALLEST)
        .ok_or(OUT_OF_MEMORY)?;
    let pool = self::pool(&mut state, handle)?;
    let used = pool.used.checked_add(span).ok_or(OUT_OF_MEMORY)?;
    reserve(driver, pool, used)?;
    let at = heap::map(bytes, true)?;
    pool.used = used;
    pool.used_high = pool.used_high.max(used);
    remember(
        &mut state,
        at,
        bytes,
        Paid::Pool(handle, span),
        context,
        Sort::Device,
    );
    out.set(at)
}

fn free(at: CUdeviceptr, stream: Handle) -> Answer {
    let driver = driver()?;
    if at == 0 {
        return Ok(());
    }
    let mut state = driver.state();
    if let Some(graph) = state.graphs.capturing(stream) {
        return graph::capture_free(&mut state, graph, at);
    }
    if !state.allocations.contains_key(&at) {
        return Err(INVALID_VALUE);
    }
    let it = state.allocations.remove(&at).ok_or(INVALID_VALUE)?;
    state.let_go(driver, at, &it)
}

fn get_attribute(pool: &Pool, attribute: i32, out: Out<u64>) -> Answer {
    match attribute {
        1..=3 => out.cast::<i32>().set(pool.reuse[(attribute - 1) as usize]),
        4 => out.set(pool.threshold),
        5 => out.set(pool.reserved),
        6 => out.set(pool.reserved_high),
        7 => out.set(pool.used),
        8 => out.set(pool.used_high),
        9 => out.cast::<i32>().set(pool.place.kind),
        10 => out.cast::<i32>().set(0),
        11 => out.cast::<i32>().set(pool.device),
        12 => out.cast::<i32>().set(pool.place.location),
        13 => out.set(pool.max),
        _ => Err(INVALID_VALUE),
    }
}

cuda! {
    fn cuMemAllocAsync(out: Out<CUdeviceptr>, bytes: usize, stream: Handle) {
        allocate(out, bytes as u64, None, stream)
    }

    fn cuMemAllocFromPoolAsync(out: Out<CUdeviceptr>, bytes: usize, pool: Handle, stream: Handle) {
        allocate(out, bytes as u64, Some(pool), stream)
    }

    fn cuMemFreeAsync(at: CUdeviceptr, stream: Handle) {
        free(at, stream)
    }

    fn cuMemAllocAsync_ptsz(out: Out<CUdeviceptr>, bytes: usize, stream: Handle) {
        allocate(out, bytes as u64, None, stream::of_twin(stream))
    }

    fn cuMemAllocFromPoolAsync_ptsz(out: Out<CUdeviceptr>, bytes: usize, pool: Handle, stream: Handle) {
        allocate(out, bytes as u64, Some(pool), stream::of_twin(stream))
    }

    fn cuMemFreeAsync_ptsz(at: CUdeviceptr, stream: Handle) {
        free(at, stream::of_twin(stream))
    }

    fn cuDeviceGetDefaultMemPool(out: Out<Handle>, device: CUdevice) {
        let driver = driver()?;
        driver.device(device)?;
        out.set(default_pool(driver, &mut driver.state(), Place::on(device))?)
    }

    fn cuDeviceGetMemPool(out: Out<Handle>, device: CUdevice) {
        let driver = driver()?;
        driver.device(device)?;
        out.set(current_pool(driver, &mut driver.state(), device)?)
    }

    fn cuDeviceSetMemPool(device: CUdevice, pool: Handle) {
        let driver = driver()?;
        driver.device(device)?;
        let mut state = driver.state();
        self::pool(&mut state, pool)?;
        state.current_pool.insert(device, pool);
        Ok(())
    }

    fn cuMemPoolCreate(out: Out<Handle>, props: In<Props>) {
        let driver = driver()?;
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        let props = props.get()?;
        let place = Place { kind: props.kind, location: props.location, id: props.id };
        out.set(add(driver, &mut driver.state(), place, false, props.max as u64)?)
    }

    fn cuMemPoolDestroy(pool: Handle) {
        let driver = driver()?;
        let mut state = driver.state();
        let it = self::pool(&mut state, pool)?;
        if it.is_default {
            return Err(INVALID_VALUE);
        }
        it.doomed = true;
        state.destroyed_pools.insert(pool);
        state.current_pool.retain(|_, current| *current != pool);
        gave_back(driver, &mut state, pool, 0);
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: Handle, keep: usize) {
        let driver = driver()?;
        let mut state = driver.state();
        stream::unsafe_call(&mut state)?;
        let pool = self::pool(&mut state, pool)?;
        shrink(driver, pool, keep as u64);
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: Handle, attribute: i32, out: Out<u64>) {
        let driver = driver()?;
        let mut state = driver.state();
        get_attribute(self::pool(&mut state, pool)?, attribute, out)
    }

    fn cuMemPoolSetAttribute(pool: Handle, attribute: i32, value: In<u64>) {
        let driver = driver()?;
        let mut state = driver.state();
        let pool = self::pool(&mut state, pool)?;
        match attribute {
            1..=3 => pool.reuse[(attribute - 1) as usize] = value.cast::<i32>().get()?,
            4 => pool.threshold = value.get()?,
            // High-water marks can only be reset.
            6 if value.get()? == 0 => pool.reserved_high = pool.reserved,
            8 if value.get()? == 0 => pool.used_high = pool.used,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }

    fn cuMemPoolSetAccess(pool: Handle, _descriptions: Handle, _count: usize) {
        self::pool(&mut driver()?.state(), pool).map(drop)
    }

    fn cuMemPoolGetAccess(out: Out<i32>, pool: Handle, _location: Handle) {
        self::pool(&mut driver()?.state(), pool)?;
        out.set(3)
    }
}
