//! The memory that a graph needs on each device, as its nodes say.
//! Touches: the driver's queries of graphs and nodes.

use core::ffi::c_void;

use gpuslice_config::ledger::{DEVICES, Kind, rounded};
use gpuslice_config::words::device::CudaOrdinal;
use gpuslice_config::words::units::Bytes;

use crate::account;
use crate::account::charged::{self, PoolPlace};
use crate::answer::device;
use crate::real::abi::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdeviceptr, CUgraph, CUgraphNode, CUresult, GRAPH_NODE_GRAPH,
    GRAPH_NODE_MEM_ALLOC, GRAPH_NODE_MEM_FREE, SUCCESS,
};
use crate::real::copies::CopyId;
use crate::real::functions;
use crate::sys;

/// The memory that a graph needs on each device: the largest amount that it uses at one time where
/// its nodes run one after the other, or else the sum of its allocations.
pub(crate) struct Needs {
    /// By the device's ordinal. None: the graph does not use the device.
    devices: [Option<Use>; DEVICES],
    /// Whether the kernel has refused memory to read the nodes.
    is_unread: bool,
}

/// The memory that the nodes read so far use on a device.
#[derive(Clone, Copy, Default)]
struct Use {
    now: u64,
    most: u64,
}

/// An allocation of a graph, by the address of its memory. All zeros: none.
#[derive(Clone, Copy)]
struct Allocation {
    address: CUdeviceptr,
    bytes: u64,
    ordinal: CudaOrdinal,
}

/// The maximum depth of nested graphs that is examined.
const DEPTH: u32 = 8;

impl Needs {
    /// Reads the nodes of a graph.
    pub(crate) fn of(copy: CopyId, graph: CUgraph) -> Needs {
        let mut needs = Needs {
            devices: [None; DEVICES],
            is_unread: false,
        };
        // Memory of nodes that could not be examined is known only after the graph has run. It is
        // looked for on the current device.
        if needs.add(copy, graph, DEPTH, true).is_none()
            && let Some(current) = device::current(copy)
        {
            needs.allocate(current, 0);
        }
        needs
    }

    /// Whether the graph must be refused: its nodes could not be read, and the slice enforces its limit
    /// on the current device.
    pub(crate) fn are_refused(&self, copy: CopyId) -> bool {
        let current = || account::by_ordinal(copy, device::current(copy)?);
        self.is_unread && current().is_some_and(|account| account.refuses_unrecorded(Kind::Pool))
    }

    /// The devices that the graph uses, each with the bytes that it needs there.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (CudaOrdinal, Bytes)> {
        let ordinals = (0..).map(CudaOrdinal);
        let devices = ordinals.zip(&self.devices);
        devices.filter_map(|(ordinal, device)| Some((ordinal, Bytes::new(device.as_ref()?.most))))
    }

    /// The use of a device. None: no such device can be charged.
    fn device(&mut self, ordinal: CudaOrdinal) -> Option<&mut Use> {
        let device = self.devices.get_mut(usize::try_from(ordinal.0).ok()?)?;
        Some(device.get_or_insert_default())
    }

    fn allocate(&mut self, ordinal: CudaOrdinal, bytes: u64) -> Option<()> {
        let device = self.device(ordinal)?;
        device.now = device.now.saturating_add(bytes);
        device.most = device.most.max(device.now);
        Some(())
    }

    /// Adds a graph's nodes. None: some could not be examined.
    fn add(&mut self, copy: CopyId, graph: CUgraph, depth: u32, in_order: bool) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let list = functions::cuGraphGetNodes::real(copy)?;
        let mut count = 0usize;
        // SAFETY: cuGraphGetNodes's contract: with a null pointer it returns the count.
        let code = unsafe { list(graph, core::ptr::null_mut(), &raw mut count) };
        (code == SUCCESS).then_some(())?;
        if count == 0 {
            return Some(());
        }
        let each = size_of::<CUgraphNode>().saturating_add(size_of::<Allocation>());
        let length = count.checked_mul(each)?;
        let Ok(place) = sys::map(length) else {
            self.is_unread = true;
            return None;
        };
        let nodes = place.cast::<CUgraphNode>();
        let behind = nodes.wrapping_add(count).cast::<Allocation>();
        // SAFETY: the mapping has room for `count` pointers, is all zeros, and belongs to this call.
        let nodes = unsafe { core::slice::from_raw_parts_mut(nodes, count) };
        // SAFETY: as many of these follow, as aligned as pointers are. All zeros is a valid value.
        let allocations = unsafe { core::slice::from_raw_parts_mut(behind, count) };
        let all = self.add_nodes(copy, graph, depth, in_order, nodes, allocations);
        // SAFETY: no pointer into the mapping is left.
        unsafe { sys::unmap(place, length) };
        all
    }

    fn add_nodes(
        &mut self,
        copy: CopyId,
        graph: CUgraph,
        depth: u32,
        in_order: bool,
        nodes: &mut [CUgraphNode],
        allocations: &mut [Allocation],
    ) -> Option<()> {
        let count = listed(copy, graph, nodes)?;
        let nodes = nodes.get_mut(..count)?;
        let (mut allocates, mut frees, mut has_children) = (false, false, false);
        for node in &*nodes {
            match kind(copy, *node) {
                Some(GRAPH_NODE_MEM_ALLOC) => allocates = true,
                Some(GRAPH_NODE_MEM_FREE) => frees = true,
                Some(GRAPH_NODE_GRAPH) | None => has_children = true,
                Some(_) => {}
            }
        }
        if !allocates && !has_children {
            return Some(());
        }
        // Without a node that frees, the order changes nothing.
        let matters = in_order && (frees || has_children);
        let in_order = matters && chain(copy, graph, nodes).is_some();
        if matters && !in_order {
            listed(copy, graph, nodes)?;
        }
        let mut all = Some(());
        for (at, node) in nodes.iter().enumerate() {
            let (earlier, here) = allocations.split_at_mut_checked(at)?;
            let added = match kind(copy, *node) {
                Some(GRAPH_NODE_MEM_ALLOC) => self.add_allocation(copy, *node, here.first_mut()),
                Some(GRAPH_NODE_MEM_FREE) if in_order => self.add_free(copy, *node, earlier),
                Some(GRAPH_NODE_GRAPH) => {
                    child(copy, *node).and_then(|child| self.add(copy, child, depth, in_order))
                }
                kind => kind.map(drop),
            };
            all = added.and(all);
        }
        all
    }

    fn add_allocation(
        &mut self,
        copy: CopyId,
        node: CUgraphNode,
        here: Option<&mut Allocation>,
    ) -> Option<()> {
        let params = allocation(copy, node)?;
        let [kind, _, location] = params.start;
        let place = PoolPlace {
            kind,
            location,
            id: params.id,
        };
        let (_, payer) = charged::payer(copy, 0, place, device::current(copy))?;
        let Some(ordinal) = payer else {
            return Some(());
        };
        let bytes = rounded(params.bytesize as u64).get();
        *here? = Allocation {
            address: params.dptr,
            bytes,
            ordinal,
        };
        self.allocate(ordinal, bytes)
    }

    /// Adds a node that frees. Memory that this graph has not allocated itself stays in use.
    fn add_free(
        &mut self,
        copy: CopyId,
        node: CUgraphNode,
        earlier: &mut [Allocation],
    ) -> Option<()> {
        let address = freed(copy, node)?;
        let is_it = |allocation: &&mut Allocation| allocation.address == address;
        // The driver may give an address twice: it is the last allocation there that is freed.
        if let Some(found) = earlier.iter_mut().rev().find(is_it) {
            let device = self.device(found.ordinal)?;
            device.now = device.now.saturating_sub(found.bytes);
            found.address = 0;
        }
        Some(())
    }
}

/// Writes the nodes of a graph, and returns their number.
fn listed(copy: CopyId, graph: CUgraph, nodes: &mut [CUgraphNode]) -> Option<usize> {
    let mut count = nodes.len();
    let list = functions::cuGraphGetNodes::real(copy)?;
    // SAFETY: cuGraphGetNodes's contract: the buffer has room for `count` nodes.
    let code = unsafe { list(graph, nodes.as_mut_ptr(), &raw mut count) };
    (code == SUCCESS).then_some(count.min(nodes.len()))
}

/// Writes the nodes of a graph in the order in which they run. None: some of them may run at once.
fn chain(copy: CopyId, graph: CUgraph, nodes: &mut [CUgraphNode]) -> Option<()> {
    let roots = functions::cuGraphGetRootNodes::real(copy)?;
    let dependents = functions::cuGraphNodeGetDependentNodes::real(copy)?;
    // SAFETY: cuGraphGetRootNodes's contract: there is room for `count` nodes.
    let mut next = only(|nodes, count| unsafe { roots(graph, nodes, count) })?;
    for place in nodes {
        let node = next?;
        *place = node;
        // SAFETY: cuGraphNodeGetDependentNodes's contract: there is room for `count` nodes.
        next = only(|nodes, count| unsafe { dependents(node, nodes, count) })?;
    }
    next.is_none().then_some(())
}

/// The only node of a list that the driver writes, or none. None: the list is longer.
#[expect(clippy::option_option, reason = "no list, or a list without a node")]
fn only(
    list: impl FnOnce(*mut CUgraphNode, *mut usize) -> CUresult,
) -> Option<Option<CUgraphNode>> {
    let mut nodes = [core::ptr::null_mut(); 2];
    let mut count = nodes.len();
    let code = list(nodes.as_mut_ptr(), &raw mut count);
    let [node, _] = nodes;
    match count {
        _ if code != SUCCESS => None,
        0 => Some(None),
        1 => Some(Some(node)),
        _ => None,
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

/// The address of the memory that a node frees.
fn freed(copy: CopyId, node: CUgraphNode) -> Option<CUdeviceptr> {
    let mut address: CUdeviceptr = 0;
    let ask = functions::cuGraphMemFreeNodeGetParams::real(copy)?;
    // SAFETY: cuGraphMemFreeNodeGetParams's contract: it writes to locals of its types.
    let code = unsafe { ask(node, &raw mut address) };
    (code == SUCCESS).then_some(address)
}

/// The graph of a node that runs another graph.
fn child(copy: CopyId, node: CUgraphNode) -> Option<CUgraph> {
    let mut child = core::ptr::null_mut();
    let ask = functions::cuGraphChildGraphNodeGetGraph::real(copy)?;
    // SAFETY: cuGraphChildGraphNodeGetGraph's contract: it writes to locals of its types.
    let code = unsafe { ask(node, &raw mut child) };
    (code == SUCCESS).then_some(child)
}
