//! The state of this process: allocations, pools and handles, and the payer of each.
//! Touches: the machine's charges, when something is freed.

use crate::abi::{Answer, CUdevice, Handle};
use crate::context::Context;
use crate::driver::Driver;
use crate::heap;
use gpuslice_sim_machine::{Kind, SegmentId};
use std::collections::{BTreeMap, BTreeSet};
use std::thread::ThreadId;

/// The payer of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paid {
    /// No payer: imports, reservations, host memory on a discrete machine.
    Nothing,
    /// This process.
    Own {
        domain: usize,
        kind: Kind,
        bytes: u64,
    },
    /// The shared 2 MiB block of small allocations in which it lies.
    Block(u64),
    /// A pool, which pays for what it reserves.
    Pool(Handle, u64),
    /// The memory of graphs, which is charged for what it reserves.
    Graph(CUdevice, u64),
    /// A segment that several processes hold.
    Segment(SegmentId),
}

/// One allocation, by its address.
#[derive(Debug, Clone)]
pub(crate) struct Allocation {
    pub(crate) bytes: u64,
    pub(crate) paid: Paid,
    pub(crate) context: Handle,
    pub(crate) device: CUdevice,
    pub(crate) sort: Sort,
    pub(crate) id: u64,
}

/// The sort of memory at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Device,
    Managed,
    PinnedHost,
    RegisteredHost,
    Imported,
}

/// A 2 MiB block that small allocations of one context share.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) context: Handle,
    pub(crate) domain: usize,
    pub(crate) next: u64,
    pub(crate) live: u32,
}

/// All state of the process, behind the driver's one lock.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) contexts: Vec<&'static Context>,
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// The rest of the step in which small managed memory is placed.
    pub(crate) small_managed: std::ops::Range<u64>,
    pub(crate) pools: BTreeMap<Handle, crate::pool::Pool>,
    pub(crate) destroyed_pools: BTreeSet<Handle>,
    pub(crate) current_pool: BTreeMap<CUdevice, Handle>,
    pub(crate) vmm: crate::vmm::Vmm,
    pub(crate) arrays: BTreeMap<Handle, crate::array::Array>,
    pub(crate) streams: BTreeMap<Handle, Handle>,
    /// Streams that are being captured, and whether the capture has been invalidated.
    pub(crate) capturing: BTreeMap<Handle, bool>,
    /// The streams among them whose capture ends at an unsafe call of any thread.
    pub(crate) global_captures: BTreeSet<Handle>,
    /// The streams among them whose capture only the thread that began it can end.
    pub(crate) capture_threads: BTreeMap<Handle, ThreadId>,
    pub(crate) events: BTreeMap<Handle, std::time::Instant>,
    pub(crate) graphs: crate::graph::Graphs,
    pub(crate) greens: Vec<crate::green::Green>,
    pub(crate) next_id: u64,
}

impl State {
    /// A number that nothing else in this process has.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A handle: an odd-looking address that no allocation can have.
    pub(crate) fn fresh_handle(&mut self) -> Handle {
        0x5100_0000 + (self.fresh() as Handle) * 16
    }

    /// The allocation in which an address lies.
    pub(crate) fn around(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (base, it) = self.allocations.range(..=address).next_back()?;
        (address < base.saturating_add(it.bytes)).then_some((*base, it))
    }

    /// Releases the address of an allocation, and its charge.
    pub(crate) fn let_go(&mut self, driver: &Driver, base: u64, it: &Allocation) -> Answer {
        // A graph keeps its addresses, with or without memory behind them. Small managed memory
        // lies beside other.
        let is_small = it.sort == Sort::Managed && it.bytes <= crate::memory::SMALL;
        let stays = is_small || matches!(it.paid, Paid::Block(_) | Paid::Graph(..));
        if it.sort != Sort::RegisteredHost && !stays {
            heap::unmap(base, it.bytes);
        }
        match it.paid {
            Paid::Nothing => {}
            Paid::Own {
                domain,
                kind,
                bytes,
            } => driver.machine.discharge(domain, kind, bytes),
            Paid::Segment(id) => driver.machine.drop_segment(id),
            Paid::Graph(device, bytes) => self.graphs.freed(device, bytes),
            Paid::Pool(pool, bytes) => {
                crate::pool::gave_back(driver, self, pool, bytes);
            }
            Paid::Block(at) => {
                if let Some(block) = self.blocks.get_mut(&at) {
                    block.live -= 1;
                    if block.live == 0 {
                        let domain = block.domain;
                        self.blocks.remove(&at);
                        heap::unmap(at, gpuslice_sim_machine::STEP);
                        driver
                            .machine
                            .discharge(domain, Kind::Alloc, gpuslice_sim_machine::STEP);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Frees everything that a context owns, and the device's pools if the context was the last one
/// there. The vendor documents that memory from pools does not belong to a context. It is assumed to
/// end with the last one.
pub(crate) fn free_all_of(driver: &Driver, context: &'static Context) {
    let mut state = driver.state();
    let handle = context.handle();
    let is_last = is_last(driver, &state, context);
    let ends = |it: &Allocation| match it.paid {
        Paid::Pool(..) => is_last && it.device == context.device,
        _ => it.context == handle,
    };
    let gone: Vec<u64> = state
        .allocations
        .iter()
        .filter(|(_, it)| ends(it))
        .map(|(base, _)| *base)
        .collect();
    for base in gone {
        if let Some(it) = state.allocations.remove(&base) {
            state.let_go(driver, base, &it).unwrap_or(());
        }
    }
    let arrays: Vec<Handle> = state
        .arrays
        .iter()
        .filter(|(_, it)| it.context == handle)
        .map(|(array, _)| *array)
        .collect();
    for array in arrays {
        crate::array::destroy(driver, &mut state, array).unwrap_or(());
    }
    state.streams.retain(|_, owner| *owner != handle);
    if is_last {
        crate::pool::forget_device(driver, &mut state, context);
        crate::graph_memory::forget_device(driver, &mut state, context.device);
    }
}

/// Whether no other context of this process is on the context's device.
fn is_last(driver: &Driver, state: &State, context: &Context) -> bool {
    let handle = context.handle();
    let is_other = |it: &'static Context| {
        it.device == context.device && it.handle() != handle && it.alive().is_ok()
    };
    let primary = driver.device(context.device).map(|device| device.primary);
    !state.contexts.iter().copied().any(is_other) && !primary.is_ok_and(is_other)
}
