//! The memory that a graph needs on each device, as its nodes say.
//! Touches: the driver's queries of graphs and nodes.

use core::ffi::c_void;

use gpuslice_config::ledger::{DEVICES, rounded};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use crate::answer::device;
use crate::real::abi::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUgraph, CUgraphNode, GRAPH_NODE_GRAPH, GRAPH_NODE_MEM_ALLOC,
    LOCATION_DEVICE, SUCCESS,
};
use crate::real::copies::CopyId;
use crate::real::functions;
use crate::sys;

/// The total size of a graph's allocations on each device.
pub(crate) struct Needs {
    /// By the device's ordinal. None: the graph does not use the device.
    devices: [Option<u64>; DEVICES],
}

/// The maximum depth of nested graphs that is examined.
const DEPTH: u32 = 8;

impl Needs {
    /// Sums the allocations of a graph.
    pub(crate) fn of(copy: CopyId, graph: CUgraph) -> Needs {
        let mut needs = Needs {
            devices: [None; DEVICES],
        };
        // Memory of nodes that could not be examined is known only after the graph has run. It is
        // looked for on the current device.
        if add(copy, graph, DEPTH, &mut needs).is_none()
            && let Some(current) = device::current(copy)
        {
            needs.allocate(current, 0);
        }
        needs
    }

    /// The devices that the graph uses, each with the bytes that it needs there.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (CudaOrdinal, Bytes)> {
        let ordinals = (0..).map(CudaOrdinal);
        let devices = ordinals.zip(&self.devices);
        devices.filter_map(|(ordinal, bytes)| Some((ordinal, Bytes::new((*bytes)?))))
    }

    fn allocate(&mut self, ordinal: CudaOrdinal, bytes: u64) -> Option<()> {
        let device = self.devices.get_mut(usize::try_from(ordinal.0).ok()?)?;
        *device = Some(device.unwrap_or(0).saturating_add(bytes));
        Some(())
    }
}

/// Adds a graph's allocations. None: some could not be examined.
fn add(copy: CopyId, graph: CUgraph, depth: u32, needs: &mut Needs) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    let list = functions::cuGraphGetNodes::real(copy)?;
    let mut count = 0usize;
    // SAFETY: cuGraphGetNodes's contract: with a null pointer it returns the count.
    let code = unsafe { list(graph, core::ptr::null_mut(), &raw mut count) };
    if code == SUCCESS && count == 0 {
        return Some(());
    }
    (code == SUCCESS).then_some(())?;
    let room = count;
    let length = room.checked_mul(size_of::<CUgraphNode>())?;
    let place = sys::map(length).ok()?;
    let nodes = place.cast::<CUgraphNode>();
    // SAFETY: cuGraphGetNodes's contract: the buffer has room for `count` nodes.
    let code = unsafe { list(graph, nodes, &raw mut count) };
    let mut all = (code == SUCCESS).then_some(());
    if code == SUCCESS {
        for at in 0..count.min(room) {
            // SAFETY: within the mapping; the driver has filled the first `count` entries.
            let node = unsafe { nodes.wrapping_add(at).read() };
            all = add_node(copy, node, depth, needs).and(all);
        }
    }
    // SAFETY: no pointer into the mapping is left.
    unsafe { sys::unmap(place, length) };
    all
}

fn add_node(copy: CopyId, node: CUgraphNode, depth: u32, needs: &mut Needs) -> Option<()> {
    match kind(copy, node)? {
        GRAPH_NODE_MEM_ALLOC => match allocation(copy, node)? {
            params if params.start[2] == LOCATION_DEVICE => {
                let bytes = rounded(params.bytesize as u64).get();
                needs.allocate(device::ordinal(params.id)?, bytes)
            }
            _ => Some(()),
        },
        GRAPH_NODE_GRAPH => add(copy, child(copy, node)?, depth, needs),
        _ => Some(()),
    }
}

/// The type of a node.
fn kind(copy: CopyId, node: CUgraphNode) -> Option<i32> {
    let mut kind = -1;
    let ask = functions::cuGraphNodeGetType::real(copy)?;
    // SAFETY: cuGraphNodeGetType's contract: it writes to locals of its types.
    let code = unsafe { ask(node, &raw mut kind) };
    (code == SUCCESS).then_some(kind)
}

/// The parameters of a node that allocates.
fn allocation(copy: CopyId, node: CUgraphNode) -> Option<CUDA_MEM_ALLOC_NODE_PARAMS> {
    let mut params = core::mem::MaybeUninit::<CUDA_MEM_ALLOC_NODE_PARAMS>::uninit();
    let ask = functions::cuGraphMemAllocNodeGetParams::real(copy)?;
    // SAFETY: cuGraphMemAllocNodeGetParams's contract.
    let code = unsafe { ask(node, params.as_mut_ptr().cast::<c_void>()) };
    // SAFETY: CUDA_SUCCESS, so the driver has written the struct.
    (code == SUCCESS).then(|| unsafe { params.assume_init() })
}

/// The graph of a node that runs another graph.
fn child(copy: CopyId, node: CUgraphNode) -> Option<CUgraph> {
    let mut child = core::ptr::null_mut();
    let ask = functions::cuGraphChildGraphNodeGetGraph::real(copy)?;
    // SAFETY: cuGraphChildGraphNodeGetGraph's contract: it writes to locals of its types.
    let code = unsafe { ask(node, &raw mut child) };
    (code == SUCCESS).then_some(child)
}
