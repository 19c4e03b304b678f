//! Queries about addresses: attributes and ranges of allocations.
//! Touches: this process's table of allocations.

use crate::abi::*;
use crate::driver::driver;
use crate::state::{Allocation, Paid, Sort};

fn attribute(out: Out<u64>, what: i32, base: u64, at: u64, it: &Allocation) -> Answer {
    let host = matches!(it.sort, Sort::PinnedHost | Sort::RegisteredHost);
    let managed = it.sort == Sort::Managed;
    match what {
        1 => out.set(it.context as u64),
        2 => out.cast::<u32>().set(if host { 1 } else { 2 }),
        3 => out.set(at),
        4 if host || managed => out.set(at),
        4 => Err(INVALID_VALUE),
        6 | 13 => out.cast::<u8>().set(1),
        7 => out.set(it.id),
        8 => out.cast::<u8>().set(u8::from(managed)),
        9 => out.cast::<i32>().set(it.device),
        10 => out.cast::<u8>().set(u8::from(it.sort == Sort::Device)),
        11 => out.set(base),
        12 => out.set(it.bytes),
        14 => out.set(0),
        15 => out.cast::<u8>().set(0),
        16 => out.cast::<i32>().set(3),
        17 => out.set(if let Paid::Pool(pool, _) = it.paid {
            pool as u64
        } else {
            0
        }),
        _ => Err(INVALID_VALUE),
    }
}

fn range(at: u64) -> Answer<(u64, u64)> {
    let driver = driver()?;
    let state = driver.state();
    if let Some((base, it)) = state.around(at) {
        return Ok((base, it.bytes));
    }
    state.vmm.mapping_around(at).ok_or(NOT_FOUND)
}

cuda! {
    fn cuPointerGetAttribute(out: Out<u64>, what: i32, at: CUdeviceptr) {
        let driver = driver()?;
        let state = driver.state();
        let (base, it) = state.around(at).ok_or(INVALID_VALUE)?;
        attribute(out, what, base, at, it)
    }

    fn cuPointerGetAttributes(count: u32, what: In<i32>, out: In<Out<u64>>, at: CUdeviceptr) {
        let driver = driver()?;
        let state = driver.state();
        let found = state.around(at);
        for i in 0..count as usize {
            let place = out.at(i).get()?;
            let kind = what.at(i).get()?;
            // For an address that the driver does not know, the call succeeds and returns zero.
            match found {
                Some((base, it)) => attribute(place, kind, base, at, it).unwrap_or(()),
                None if kind == 9 => place.cast::<i32>().set(-2)?,
                None if matches!(kind, 2 | 16) => place.cast::<i32>().set(0)?,
                None if matches!(kind, 6 | 8 | 10 | 13 | 15) => place.cast::<u8>().set(0)?,
                None => place.set(0)?,
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute(_value: Handle, _what: i32, at: CUdeviceptr) {
        driver()?.state().around(at).map(|_| ()).ok_or(INVALID_VALUE)
    }

    fn cuMemGetAddressRange_v2(out: Out<CUdeviceptr>, bytes: Out<usize>, at: CUdeviceptr) {
        let (base, len) = range(at)?;
        out.set_if_wanted(base);
        bytes.set_if_wanted(len as usize);
        Ok(())
    }
}
