//! The memory of a device that graphs have reserved. It stays reserved, and mapped by the graphs that
//! used it, until it is trimmed.
//! Touches: the machine's charges. Law: a graph runs from its launch until the program waits for its
//! stream. The graphs of a stream share their memory with each other, those of several streams do
//! not, and memory that has not been freed is shared with none.

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
    /// The memory that at least one graph maps.
    pub(crate) mapped: u64,
    pub(crate) mapped_high: u64,
    /// The memory of allocations that have not been freed.
    pub(crate) allocated: u64,
    /// The memory that the graphs on each stream use and free again.
    running: BTreeMap<Handle, u64>,
}

/// The memory that a graph needs on a device.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Need {
    now: u64,
    /// The largest use while it runs.
    most: u64,
}

impl Need {
    /// The memory that the graph uses and frees again.
    fn freed(self) -> u64 {
        self.most - self.now
    }
}

impl Reserved {
    fn in_use(&self) -> u64 {
        self.allocated + self.running.values().sum::<u64>()
    }

    /// Maps memory for a graph on a stream.
    fn map(&mut self, stream: Handle, need: Need) {
        self.mapped = self.mapped.max(self.with(stream, need));
        self.mapped_high = self.mapped_high.max(self.mapped);
    }

    /// The memory in use if the graph runs on the stream too.
    fn with(&self, stream: Handle, need: Need) -> u64 {
        let before = self.running.get(&stream).copied().unwrap_or(0);
        self.in_use() - before + before.max(need.freed()) + need.now
    }

    /// Records that a graph runs on a stream.
    pub(crate) fn run(&mut self, stream: Handle, need: Need) {
        let running = self.running.entry(stream).or_default();
        *running = need.freed().max(*running);
    }

    /// Records that the graphs on a stream, or on every stream, have ended.
    pub(crate) fn end(&mut self, stream: Option<Handle>) {
        self.running
            .retain(|its, _| stream.is_some_and(|stream| *its != stream));
    }
}

pub(crate) fn span(bytes: u64) -> u64 {
    bytes.next_multiple_of(SMALLEST)
}

/// Reserves and maps the memory of a device that a graph needs beside those that run already.
pub(crate) fn reserve(
    driver: &Driver,
    state: &mut State,
    device: CUdevice,
    stream: Handle,
    need: Need,
) -> Answer {
    let domain = driver.device(device)?.domain;
    let memory = state.graphs.memory.entry(device).or_default();
    let missing = memory.with(stream, need).saturating_sub(memory.reserved);
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
    memory.map(stream, need);
    Ok(())
}

/// The memory that a graph needs on each device.
pub(crate) fn needs(steps: &[Node]) -> BTreeMap<CUdevice, Need> {
    let mut sizes = BTreeMap::new();
    let mut needs: BTreeMap<CUdevice, Need> = BTreeMap::new();
    for step in steps {
        let (device, change) = match step {
            Node::Alloc { at, bytes, place } => {
                sizes.insert(*at, (place.device(), span(*bytes)));
                (place.device(), span(*bytes).cast_signed())
            }
            Node::Free(at) => match sizes.remove(at) {
                Some((device, bytes)) => (device, -bytes.cast_signed()),
                None => continue,
            },
            _ => continue,
        };
        let need = needs.entry(device).or_default();
        need.now = need.now.saturating_add_signed(change);
        need.most = need.most.max(need.now);
    }
    needs
}

pub(crate) fn trim(driver: &Driver, state: &mut State, device: CUdevice) -> Answer {
    let domain = driver.device(device)?.domain;
    let memory = state.graphs.memory.entry(device).or_default();
    memory.mapped = memory.in_use();
    let keep = memory.mapped.next_multiple_of(STEP);
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
        memory.allocated = 0;
        memory.end(None);
        trim(driver, state, device).unwrap_or(());
    }
}
