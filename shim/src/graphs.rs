//! The memory of graphs: a slice is charged for what they reserve, which only the driver knows.
//! Touches: the driver's attribute of each device; the ledger.
//! Law: as of `pools`.

use core::ffi::c_void;

use gpuslice_config::device::CudaOrdinal;
use gpuslice_config::ledger::Kind;
use gpuslice_config::units::Bytes;

use crate::abi::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUgraph, GRAPH_MEM_RESERVED, GRAPH_MEM_USED,
    GRAPH_NODE_GRAPH, GRAPH_NODE_MEM_ALLOC, SUCCESS,
};
use crate::account::{self, Account, Asked, stepped};
use crate::held::{self, Space};
use crate::idle::{Given, Idle};
use crate::pools::Said;
use crate::real::Slot;
use crate::{pools, sys, table};

/// What the allocations of a graph come to, on the device of the first of them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Need {
    pub(crate) bytes: u64,
    pub(crate) device: Option<CUdevice>,
}

/// As deep as graphs in graphs are looked into.
const DEPTH: u32 = 8;

/// What a graph needs.
pub(crate) fn need(slot: Slot, graph: CUgraph) -> Need {
    let mut need = Need::default();
    add(slot, graph, DEPTH, &mut need);
    need
}

fn add(slot: Slot, graph: CUgraph, depth: u32, need: &mut Need) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let list = table::cuGraphGetNodes::real(slot)?;
    let mut count = 0usize;
    // SAFETY: cuGraphGetNodes's contract: without a place it counts.
    let code = unsafe { list(graph, core::ptr::null_mut(), &raw mut count) };
    if code != SUCCESS || count == 0 {
        return None;
    }
    let room = count;
    let length = room.checked_mul(size_of::<*mut c_void>())?;
    let place = sys::map(length).ok()?;
    let nodes = place.cast::<*mut c_void>();
    // SAFETY: cuGraphGetNodes's contract: there is room for `count`.
    let code = unsafe { list(graph, nodes, &raw mut count) };
    if code == SUCCESS {
        for at in 0..count.min(room) {
            // SAFETY: within the mapping, which the driver has filled so far.
            let node = unsafe { nodes.wrapping_add(at).read() };
            node_needs(slot, node, depth, need);
        }
    }
    // SAFETY: nothing points there any more.
    unsafe { sys::unmap(place, length) };
    Some(())
}

fn node_needs(slot: Slot, node: *mut c_void, depth: u32, need: &mut Need) -> Option<()> {
    let mut kind = -1;
    let ask = table::cuGraphNodeGetType::real(slot)?;
    // SAFETY: cuGraphNodeGetType's contract.
    let code = unsafe { ask(node, &raw mut kind) };
    match kind {
        GRAPH_NODE_MEM_ALLOC if code == SUCCESS => {
            let mut params = core::mem::MaybeUninit::<CUDA_MEM_ALLOC_NODE_PARAMS>::uninit();
            let ask = table::cuGraphMemAllocNodeGetParams::real(slot)?;
            // SAFETY: cuGraphMemAllocNodeGetParams's contract.
            let code = unsafe { ask(node, params.as_mut_ptr().cast()) };
            (code == SUCCESS).then_some(())?;
            // SAFETY: CUDA_SUCCESS, so the driver has written the struct.
            let params = unsafe { params.assume_init() };
            if *need.device.get_or_insert(params.id) == params.id {
                let bytes = account::rounded(params.bytesize as u64).get();
                need.bytes = need.bytes.saturating_add(bytes);
            }
        }
        GRAPH_NODE_GRAPH if code == SUCCESS => {
            let mut child = core::ptr::null_mut();
            let ask = table::cuGraphChildGraphNodeGetGraph::real(slot)?;
            // SAFETY: cuGraphChildGraphNodeGetGraph's contract.
            let code = unsafe { ask(node, &raw mut child) };
            (code == SUCCESS).then_some(())?;
            add(slot, child, depth, need);
        }
        _ => {}
    }
    Some(())
}

fn attribute(slot: Slot, ordinal: CudaOrdinal, attribute: i32) -> Option<u64> {
    let mut value = 0u64;
    let ask = table::cuDeviceGetGraphMemAttribute::real(slot)?;
    let dev = CUdevice::try_from(ordinal.0).ok()?;
    // SAFETY: cuDeviceGetGraphMemAttribute's contract: these attributes are 64 bits long.
    let code = unsafe { ask(dev, attribute, (&raw mut value).cast()) };
    (code == SUCCESS).then_some(value)
}

/// What of what graphs have reserved is in use by none.
fn unused(slot: Slot, ordinal: CudaOrdinal) -> u64 {
    let reserved = attribute(slot, ordinal, GRAPH_MEM_RESERVED).unwrap_or(0);
    let used = attribute(slot, ordinal, GRAPH_MEM_USED).unwrap_or(reserved);
    reserved.saturating_sub(used)
}

/// Claims what the driver may have to add before a graph can run.
pub(crate) fn claim(
    account: &Account,
    slot: Slot,
    ordinal: CudaOrdinal,
    need: Bytes,
) -> Result<Given, ()> {
    let device = Idle::of_graphs(account.private, ordinal);
    let ask = |ask: fn(&Account, Bytes, Bytes) -> Asked| {
        let idle = device.count_on(need.get(), || unused(slot, ordinal));
        let lacking = need.minus(idle);
        let claimed = stepped(lacking.get());
        let asked = match lacking == Bytes::ZERO {
            true => Asked::Uncounted,
            false => ask(account, lacking, claimed),
        };
        match asked {
            Asked::Granted => Ok(Given { claimed, idle }),
            Asked::Uncounted => Ok(Given {
                claimed: Bytes::ZERO,
                idle,
            }),
            Asked::Refused(_) => {
                device.let_go(idle);
                Err(())
            }
        }
    };
    let quietly = |account: &Account, request, bytes| account.ask_for(request, bytes, Kind::Pool);
    if let Ok(given) = ask(quietly) {
        return Ok(given);
    }
    trim(account, slot, ordinal);
    pools::trim(slot, account);
    let later = device.wait_for_others(|| ask(quietly).ok());
    let aloud = |account: &Account, request, bytes| account.claim_for(request, bytes, Kind::Pool);
    later.map_or_else(|| ask(aloud), Ok)
}

fn trim(account: &Account, slot: Slot, ordinal: CudaOrdinal) {
    let trim = table::cuDeviceGraphMemTrim::real(slot);
    if let (Some(trim), Ok(dev)) = (trim, CUdevice::try_from(ordinal.0)) {
        // SAFETY: cuDeviceGraphMemTrim's contract.
        unsafe { trim(dev) };
        settle(account, slot, ordinal, Bytes::ZERO);
    }
}

/// The driver has done with a launch.
pub(crate) fn launched(account: &Account, slot: Slot, ordinal: CudaOrdinal, given: Given) {
    Idle::of_graphs(account.private, ordinal).let_go(given.idle);
    settle(account, slot, ordinal, given.claimed);
}

/// Makes the ledger say what the driver says that graphs have reserved. A graph that runs cannot
/// be called back: what it has taken is recorded, whatever the limit.
pub(crate) fn settle(account: &Account, slot: Slot, ordinal: CudaOrdinal, claimed: Bytes) {
    let key = (Space::Graphs, u64::from(ordinal.0));
    if held::find(account.private, key.0, key.1).is_none() {
        let next = u8::try_from(ordinal.0.saturating_add(1)).unwrap_or(0);
        let held = account.held(Bytes::ZERO, Kind::Pool, next);
        held::put(account.private, key.0, key.1, held);
    }
    let said = Said {
        idle: Idle::of_graphs(account.private, ordinal),
        // Without a context a device has no graphs' memory, and cannot be asked.
        reserved: || Some(attribute(slot, ordinal, GRAPH_MEM_RESERVED).unwrap_or(0)),
        used: || attribute(slot, ordinal, GRAPH_MEM_USED).unwrap_or(0),
    };
    let grant = |lacking| account.record(lacking, Kind::Pool);
    pools::settle_as(account, key, &said, grant, claimed);
}

/// Does it for every device that graphs of this process have memory on.
pub(crate) fn settle_all(slot: Slot) {
    let Some(private) = account::page() else {
        return;
    };
    held::each(private, |space, number, _| {
        if space == Space::Graphs
            && let Ok(ordinal) = u32::try_from(number).map(CudaOrdinal)
            && let Some(account) = account::of(slot, ordinal)
        {
            settle(&account, slot, ordinal, Bytes::ZERO);
        }
    });
}
