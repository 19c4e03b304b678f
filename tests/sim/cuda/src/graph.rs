//! Graphs, as far as they take memory: allocation nodes, free nodes, child graphs.
//! Touches: the machine's charges. Law: a node gets its address when it is added, and its memory
//! when the graph is launched or uploaded.

use crate::abi::*;
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::graph_edges::{Edges, copy_edges, list, named};
use crate::graph_memory::{Reserved, needs, reserve, span, trim};
use crate::heap;
use crate::pool::Place;
use crate::state::{Allocation, Paid, Sort, State};
use crate::stream::of_twin;
use std::collections::BTreeMap;

/// The operation of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    Empty,
    Child(Handle),
    Alloc { at: u64, bytes: u64, place: Place },
    Free(u64),
}

/// An executable graph.
#[derive(Debug, Clone)]
struct Exec {
    steps: Vec<Node>,
    /// A launch frees what an earlier one has left allocated.
    frees_at_launch: bool,
}

/// All graphs of a process.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    graphs: BTreeMap<Handle, Vec<Handle>>,
    nodes: BTreeMap<Handle, Node>,
    pub(crate) edges: Edges,
    execs: BTreeMap<Handle, Exec>,
    pub(crate) memory: BTreeMap<CUdevice, Reserved>,
    /// Streams that are being captured, and the graph of each.
    captures: BTreeMap<Handle, Handle>,
}

/// The vendor's CUDA_MEM_ALLOC_NODE_PARAMS.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct AllocParams {
    kind: i32,
    handle_types: i32,
    location: i32,
    id: i32,
    rest: [u64; 9],
    accesses: usize,
    access_count: usize,
    bytes: usize,
    at: u64,
}

const _: () = assert!(size_of::<AllocParams>() == 120);

/// The values of the vendor's CUgraphNodeType that are used here.
const CHILD: i32 = 4;
const EMPTY: i32 = 5;
const MEM_ALLOC: i32 = 10;
const MEM_FREE: i32 = 11;

/// The offset of a node's parameters in CUgraphNodeParams. A free node has its address there.
const PARAMS_AT: usize = 16;

pub(crate) fn graph(state: &mut State, graph: Handle) -> Answer<&mut Vec<Handle>> {
    state.graphs.graphs.get_mut(&graph).ok_or(INVALID_VALUE)
}

fn create(state: &mut State) -> Handle {
    let handle = state.fresh_handle();
    state.graphs.graphs.insert(handle, Vec::new());
    handle
}

/// Adds a node that runs after the nodes `after`.
fn add(state: &mut State, to: Handle, after: &[Handle], node: Node) -> Answer<Handle> {
    let nodes = graph(state, to)?;
    if after.iter().any(|before| !nodes.contains(before)) {
        return Err(INVALID_VALUE);
    }
    let handle = state.fresh_handle();
    graph(state, to)?.push(handle);
    state.graphs.nodes.insert(handle, node);
    state.graphs.edges.insert(handle, Vec::new());
    for before in after {
        state.graphs.edges.entry(*before).or_default().push(handle);
    }
    Ok(handle)
}

fn add_alloc(
    state: &mut State,
    to: Handle,
    after: &[Handle],
    place: Place,
    bytes: u64,
) -> Answer<(Handle, u64)> {
    if bytes == 0 {
        return Err(INVALID_VALUE);
    }
    let at = heap::map(bytes, true)?;
    let node = add(state, to, after, Node::Alloc { at, bytes, place })?;
    Ok((node, at))
}

fn allocs(
    driver: &Driver,
    to: Handle,
    after: &[Handle],
    params: In<AllocParams>,
) -> Answer<(Handle, u64)> {
    let wanted = params.get()?;
    let place = Place {
        kind: wanted.kind,
        location: wanted.location,
        id: wanted.id,
    };
    // The vendor's documentation allows devices alone.
    driver.device(place.device())?;
    add_alloc(&mut driver.state(), to, after, place, wanted.bytes as u64)
}

/// The nodes of a graph from beginning to end, including those of its child graphs.
fn steps(state: &State, of: Handle) -> Answer<Vec<Node>> {
    let nodes = state.graphs.graphs.get(&of).ok_or(INVALID_VALUE)?;
    let mut steps = Vec::new();
    for node in nodes {
        match state.graphs.nodes.get(node) {
            Some(Node::Child(child)) => steps.extend(self::steps(state, *child)?),
            Some(node) => steps.push(*node),
            None => {}
        }
    }
    Ok(steps)
}

/// The values of the vendor's CUgraphInstantiate_flags that are used here.
const AUTO_FREE_ON_LAUNCH: u64 = 1;
const UPLOAD: u64 = 2;

fn instantiate(out: Out<Handle>, of: Handle, flags: u64) -> Answer {
    let driver = driver()?;
    let mut state = driver.state();
    let exec = Exec {
        steps: steps(&state, of)?,
        frees_at_launch: flags & AUTO_FREE_ON_LAUNCH != 0,
    };
    let handle = state.fresh_handle();
    state.graphs.execs.insert(handle, exec);
    out.set(handle)
}

fn upload(driver: &Driver, state: &mut State, exec: Handle, stream: Handle) -> Answer<Vec<Node>> {
    let exec = state.graphs.execs.get(&exec).cloned();
    let steps = exec.ok_or(INVALID_VALUE)?.steps;
    for (device, need) in needs(&steps) {
        reserve(driver, state, device, stream, need)?;
    }
    Ok(steps)
}

fn launch(exec: Handle, stream: Handle) -> Answer {
    let driver = driver()?;
    let context = current()?;
    let mut state = driver.state();
    let known = state.graphs.execs.get(&exec).ok_or(INVALID_VALUE)?;
    let frees = known.frees_at_launch;
    let left = known.steps.iter().filter_map(|step| match step {
        Node::Alloc { at, .. } => state.allocations.contains_key(at).then_some(*at),
        _ => None,
    });
    let left: Vec<u64> = left.collect();
    if !left.is_empty() && !frees {
        return Err(INVALID_VALUE);
    }
    for at in left {
        if let Some(it) = state.allocations.remove(&at) {
            state.let_go(driver, at, &it)?;
        }
    }
    let steps = upload(driver, &mut state, exec, stream)?;
    for (device, need) in needs(&steps) {
        let memory = state.graphs.memory.entry(device).or_default();
        memory.run(stream, need);
    }
    for step in steps {
        match step {
            Node::Alloc { at, bytes, place } => {
                let device = place.device();
                let id = state.fresh();
                let it = Allocation {
                    bytes,
                    paid: Paid::Graph(device, span(bytes)),
                    context: context.handle(),
                    device,
                    sort: Sort::Device,
                    id,
                };
                state.allocations.insert(at, it);
                let memory = state.graphs.memory.entry(device).or_default();
                memory.allocated += span(bytes);
            }
            Node::Free(at) => {
                if let Some(it) = state.allocations.remove(&at) {
                    state.let_go(driver, at, &it)?;
                }
            }
            Node::Empty | Node::Child(_) => {}
        }
    }
    Ok(())
}

impl Graphs {
    /// Marks memory that a graph allocated as free. It stays reserved and mapped.
    pub(crate) fn freed(&mut self, device: CUdevice, bytes: u64) {
        let memory = self.memory.entry(device).or_default();
        memory.allocated = memory.allocated.saturating_sub(bytes);
    }

    /// Records that the graphs on a stream, or on every stream, have ended.
    pub(crate) fn end(&mut self, stream: Option<Handle>) {
        for memory in self.memory.values_mut() {
            memory.end(stream);
        }
    }

    /// Ends the capture of a stream, and returns the captured graph.
    pub(crate) fn captured(&mut self, stream: Handle) -> Option<Handle> {
        self.captures.remove(&stream)
    }

    /// The graph into which a stream is being captured.
    pub(crate) fn capturing(&self, stream: Handle) -> Option<Handle> {
        self.captures.get(&stream).copied()
    }
}

/// The node after which the next one of a stream that is being captured runs.
fn last(state: &mut State, of: Handle) -> Answer<Vec<Handle>> {
    Ok(graph(state, of)?.last().copied().into_iter().collect())
}

/// Makes a node of an allocation in a stream that is being captured.
pub(crate) fn capture_alloc(
    state: &mut State,
    to: Handle,
    place: Place,
    bytes: u64,
) -> Answer<u64> {
    let after = last(state, to)?;
    add_alloc(state, to, &after, place, bytes).map(|(_, at)| at)
}

/// Makes a node of a free in such a stream. By the vendor's documentation, only memory that a graph
/// has allocated can be freed there.
pub(crate) fn capture_free(state: &mut State, to: Handle, at: u64) -> Answer {
    let after = last(state, to)?;
    add_free(state, to, &after, at).map(drop)
}

fn add_free(state: &mut State, to: Handle, after: &[Handle], at: u64) -> Answer<Handle> {
    let mut nodes = state.graphs.nodes.values();
    let is_a_graphs = nodes.any(|node| matches!(node, Node::Alloc { at: its, .. } if *its == at));
    if !is_a_graphs {
        return Err(INVALID_VALUE);
    }
    add(state, to, after, Node::Free(at))
}

/// Starts to capture a stream into a graph of its own.
pub(crate) fn begin_capture(state: &mut State, stream: Handle) {
    let graph = create(state);
    state.graphs.captures.insert(stream, graph);
}

fn add_node(out: Out<Handle>, to: Handle, after: Answer<Vec<Handle>>, params: In<i32>) -> Answer {
    let driver = driver()?;
    let after = after?;
    let place = params.cast::<u8>().at(PARAMS_AT);
    let node = match params.get()? {
        MEM_ALLOC => {
            let params = place.cast::<AllocParams>();
            let (node, at) = allocs(driver, to, &after, params)?;
            let given = AllocParams {
                at,
                ..params.get()?
            };
            Out::from_address(params.address()).set(given)?;
            node
        }
        MEM_FREE => add_free(&mut driver.state(), to, &after, place.cast::<u64>().get()?)?,
        _ => add(&mut driver.state(), to, &after, Node::Empty)?,
    };
    out.set(node)
}

cuda! {
    fn cuGraphCreate(out: Out<Handle>, _flags: u32) {
        out.set(create(&mut driver()?.state()))
    }

    fn cuGraphDestroy(of: Handle) {
        let driver = driver()?;
        let mut state = driver.state();
        let nodes = state.graphs.graphs.remove(&of).ok_or(INVALID_VALUE)?;
        for node in nodes {
            state.graphs.nodes.remove(&node);
            state.graphs.edges.remove(&node);
        }
        Ok(())
    }

    fn cuGraphClone(out: Out<Handle>, of: Handle) {
        let driver = driver()?;
        let mut state = driver.state();
        let steps = steps(&state, of)?;
        let nodes = graph(&mut state, of)?.clone();
        let clone = create(&mut state);
        let copies: Answer<Vec<Handle>> = steps.into_iter().map(|step| add(&mut state, clone, &[], step)).collect();
        copy_edges(&mut state.graphs.edges, &nodes, &copies?);
        out.set(clone)
    }

    fn cuGraphAddEmptyNode(out: Out<Handle>, to: Handle, after: In<Handle>, count: usize) {
        out.set(add(&mut driver()?.state(), to, &named(after, count)?, Node::Empty)?)
    }

    fn cuGraphAddChildGraphNode(out: Out<Handle>, to: Handle, after: In<Handle>, count: usize, child: Handle) {
        let driver = driver()?;
        let mut state = driver.state();
        graph(&mut state, child)?;
        out.set(add(&mut state, to, &named(after, count)?, Node::Child(child))?)
    }

    fn cuGraphAddMemAllocNode(out: Out<Handle>, to: Handle, after: In<Handle>, count: usize, params: In<AllocParams>) {
        let (node, at) = allocs(driver()?, to, &named(after, count)?, params)?;
        let given = AllocParams { at, ..params.get()? };
        Out::from_address(params.address()).set(given)?;
        out.set(node)
    }

    fn cuGraphAddMemFreeNode(out: Out<Handle>, to: Handle, after: In<Handle>, count: usize, at: CUdeviceptr) {
        out.set(add_free(&mut driver()?.state(), to, &named(after, count)?, at)?)
    }

    fn cuGraphAddNode(out: Out<Handle>, to: Handle, after: In<Handle>, count: usize, params: In<i32>) {
        add_node(out, to, named(after, count), params)
    }

    fn cuGraphAddNode_v2(out: Out<Handle>, to: Handle, after: In<Handle>, _edges: Handle, count: usize, params: In<i32>) {
        add_node(out, to, named(after, count), params)
    }

    fn cuGraphGetNodes(of: Handle, out: Out<Handle>, count: Out<usize>) {
        let driver = driver()?;
        let mut state = driver.state();
        let nodes = graph(&mut state, of)?.clone();
        list(&nodes, out, count)
    }

    fn cuGraphNodeGetType(node: Handle, out: Out<i32>) {
        let driver = driver()?;
        let state = driver.state();
        out.set(match state.graphs.nodes.get(&node).ok_or(INVALID_VALUE)? {
            Node::Empty => EMPTY,
            Node::Child(_) => CHILD,
            Node::Alloc { .. } => MEM_ALLOC,
            Node::Free(_) => MEM_FREE,
        })
    }

    fn cuGraphChildGraphNodeGetGraph(node: Handle, out: Out<Handle>) {
        let driver = driver()?;
        let state = driver.state();
        match state.graphs.nodes.get(&node) {
            Some(Node::Child(child)) => out.set(*child),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuGraphMemAllocNodeGetParams(node: Handle, out: Out<AllocParams>) {
        let driver = driver()?;
        let state = driver.state();
        match state.graphs.nodes.get(&node) {
            Some(Node::Alloc { at, bytes, place }) => out.set(AllocParams {
                kind: place.kind,
                handle_types: 0,
                location: place.location,
                id: place.id,
                rest: [0; 9],
                accesses: 0,
                access_count: 0,
                bytes: *bytes as usize,
                at: *at,
            }),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuGraphMemFreeNodeGetParams(node: Handle, out: Out<u64>) {
        let driver = driver()?;
        let state = driver.state();
        match state.graphs.nodes.get(&node) {
            Some(Node::Free(at)) => out.set(*at),
            _ => Err(INVALID_VALUE),
        }
    }

    fn cuGraphInstantiate(out: Out<Handle>, of: Handle, _node: Handle, _log: Handle, _room: usize) {
        instantiate(out, of, 0)
    }

    fn cuGraphInstantiate_v2(out: Out<Handle>, of: Handle, _node: Handle, _log: Handle, _room: usize) {
        instantiate(out, of, 0)
    }

    fn cuGraphInstantiateWithFlags(out: Out<Handle>, of: Handle, flags: u64) {
        instantiate(out, of, flags)
    }

    fn cuGraphInstantiateWithParams(out: Out<Handle>, of: Handle, params: In<u64>) {
        let flags = params.get()?;
        instantiate(out, of, flags)?;
        if flags & UPLOAD != 0 {
            // The stream of the upload follows the flags.
            let stream = params.at(1).cast::<Handle>().get()?;
            let driver = driver()?;
            upload(driver, &mut driver.state(), out.get()?, stream)?;
        }
        Ok(())
    }

    fn cuGraphExecDestroy(exec: Handle) {
        driver()?.state().graphs.execs.remove(&exec).map(drop).ok_or(INVALID_VALUE)
    }

    fn cuGraphUpload(exec: Handle, stream: Handle) {
        let driver = driver()?;
        upload(driver, &mut driver.state(), exec, stream).map(drop)
    }

    fn cuGraphUpload_ptsz(exec: Handle, stream: Handle) {
        let driver = driver()?;
        upload(driver, &mut driver.state(), exec, of_twin(stream)).map(drop)
    }

    fn cuGraphLaunch(exec: Handle, stream: Handle) {
        launch(exec, stream)
    }

    fn cuGraphLaunch_ptsz(exec: Handle, stream: Handle) {
        launch(exec, of_twin(stream))
    }

    fn cuDeviceGraphMemTrim(device: CUdevice) {
        let driver = driver()?;
        trim(driver, &mut driver.state(), device)
    }

    fn cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: i32, out: Out<u64>) {
        let driver = driver()?;
        driver.device(device)?;
        let mut state = driver.state();
        let memory = state.graphs.memory.entry(device).or_default();
        out.set(match attribute {
            0 => memory.mapped,
            1 => memory.mapped_high,
            2 => memory.reserved,
            3 => memory.reserved_high,
            _ => return Err(INVALID_VALUE),
        })
    }

    fn cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: i32, value: In<u64>) {
        let driver = driver()?;
        driver.device(device)?;
        let mut state = driver.state();
        let memory = state.graphs.memory.entry(device).or_default();
        match (attribute, value.get()?) {
            (1, 0) => memory.mapped_high = memory.mapped,
            (3, 0) => memory.reserved_high = memory.reserved,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
}
