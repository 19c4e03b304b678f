//! The memory of a device that graphs have reserved. It stays reserved until it is trimmed.
//! Touches: the machine's charges.

use crate::abi::*;
use crate::driver::Driver;
use crate::graph::Node;
use crate::state::State;
use gpuslice_sim_machine::{Kind, STEP};
use std::collections::BTreeMap;

const SMALLEST: u64 = 512;

/// The memory of one device that graphs have reserved and use.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
}

pub(crate) fn span(bytes: u64) -> u64 {
    bytes.next_multiple_of(SMALLEST)
}

/// Reserves memory of a device until the present use and `more` bytes fit.
pub(crate) fn reserve(driver: &Driver, state: &mut State, device: CUdevice, more: u64) -> Answer {
    let domain = driver.device(device)?.domain;
    let memory = state.graphs.memory.entry(device).or_default();
    let missing = (memory.used + more).saturating_sub(memory.reserved);
    let grows = missing
        .checked_next_multiple_of(STEP)
        .ok_or(OUT_OF_MEMORY)?;
    if grows != 0 {
        (driver.machine)
            .charge(domain, Kind::Pool, grows)
            .map_err(|_| OUT_OF_MEMORY)?;
        memory.reserved += grows;
        memory.reserved_high = memory.reserved_high.max(memory.reserved);
    }
    Ok(())
}

/// The largest use on each device while the graph runs, beyond the present use.
pub(crate) fn peaks(steps: &[Node]) -> BTreeMap<CUdevice, u64> {
    let mut sizes = BTreeMap::new();
    let mut running: BTreeMap<CUdevice, (i64, i64)> = BTreeMap::new();
    for step in steps {
        let (device, change) = match step {
            Node::Alloc { at, bytes, device } => {
                sizes.insert(*at, (*device, span(*bytes)));
                (*device, span(*bytes) as i64)
            }
            Node::Free(at) => match sizes.get(at) {
                Some((device, bytes)) => (*device, -(*bytes as i64)),
                None => continue,
            },
            _ => continue,
        };
        let (now, most) = running.entry(device).or_default();
        *now += change;
        *most = (*most).max(*now);
    }
    let most = |(device, (_, most))| (device, u64::try_from(most).unwrap_or(0));
    running.into_iter().map(most).collect()
}

pub(crate) fn trim(driver: &Driver, state: &mut State, device: CUdevice) -> Answer {
    let domain = driver.device(device)?.domain;
    let memory = state.graphs.memory.entry(device).or_default();
    let keep = memory.used.next_multiple_of(STEP);
    if memory.reserved > keep {
        driver
            .machine
            .discharge(domain, Kind::Pool, memory.reserved - keep);
        memory.reserved = keep;
    }
    Ok(())
}

/// Called when the device has no context any more.
pub(crate) fn forget_device(driver: &Driver, state: &mut State, device: CUdevice) {
    if let Some(memory) = state.graphs.memory.get_mut(&device) {
        memory.used = 0;
        trim(driver, state, device).unwrap_or(());
    }
}
