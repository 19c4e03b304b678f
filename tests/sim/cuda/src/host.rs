//! Pinned host memory. On a discrete GPU it takes no device memory; on unified memory whole pages of
//! it lower the same free. Memory that the program registers is its own already.
//! Touches: the machine's charges.

use crate::abi::*;
use crate::context::{Context, current};
use crate::driver::{Driver, driver};
use crate::heap;
use crate::memory::{begin, release, remember, wanted};
use crate::state::{Paid, Sort};
use gpuslice_sim_machine::Kind;

const PAGE: u64 = 4096;
const ALREADY_REGISTERED: CUresult = 712;
const NOT_REGISTERED: CUresult = 713;

fn pay(driver: &Driver, context: &Context, bytes: u64) -> Answer<Paid> {
    if !driver.machine.gpu(context.domain).integrated {
        return Ok(Paid::Nothing);
    }
    let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(OUT_OF_MEMORY)?;
    driver
        .machine
        .charge(context.domain, Kind::Host, bytes)
        .map_err(|_| OUT_OF_MEMORY)?;
    Ok(Paid::Own {
        domain: context.domain,
        kind: Kind::Host,
        bytes,
    })
}

fn allocate(out: Out<u64>, bytes: u64) -> Answer {
    let driver = driver()?;
    let context = current()?;
    wanted(out)?;
    begin(driver, bytes)?;
    let paid = pay(driver, context, bytes)?;
    let at = heap::map(bytes, true)?;
    remember(
        &mut driver.state(),
        at,
        bytes,
        paid,
        context,
        Sort::PinnedHost,
    );
    out.set(at)
}

fn register(at: u64, bytes: u64) -> Answer {
    let driver = driver()?;
    let context = current()?;
    if at == 0 {
        return Err(INVALID_VALUE);
    }
    begin(driver, bytes)?;
    if driver.state().around(at).is_some() {
        return Err(ALREADY_REGISTERED);
    }
    remember(
        &mut driver.state(),
        at,
        bytes,
        Paid::Nothing,
        context,
        Sort::RegisteredHost,
    );
    Ok(())
}

cuda! {
    fn cuMemAllocHost(out: Out<u64>, bytes: u32) {
        allocate(out, u64::from(bytes))
    }

    fn cuMemAllocHost_v2(out: Out<u64>, bytes: usize) {
        allocate(out, bytes as u64)
    }

    fn cuMemHostAlloc(out: Out<u64>, bytes: usize, _flags: u32) {
        allocate(out, bytes as u64)
    }

    fn cuMemFreeHost(at: u64) {
        release(at, &[Sort::PinnedHost])
    }

    fn cuMemHostRegister(at: u64, bytes: usize, _flags: u32) {
        register(at, bytes as u64)
    }

    fn cuMemHostRegister_v2(at: u64, bytes: usize, _flags: u32) {
        register(at, bytes as u64)
    }

    fn cuMemHostUnregister(at: u64) {
        driver()?;
        if at == 0 {
            return Err(INVALID_VALUE);
        }
        release(at, &[Sort::RegisteredHost]).map_err(|_| NOT_REGISTERED)
    }

    fn cuMemHostGetDevicePointer_v2(out: Out<CUdeviceptr>, at: u64, _flags: u32) {
        let driver = driver()?;
        driver.state().around(at).ok_or(INVALID_VALUE)?;
        out.set(at)
    }

    fn cuMemHostGetFlags(out: Out<u32>, at: u64) {
        let driver = driver()?;
        driver.state().around(at).ok_or(INVALID_VALUE)?;
        out.set(0)
    }
}
