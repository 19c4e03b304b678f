//! The edges of graphs: which nodes of a graph run after which.
//! Touches: nothing but its own tables.

use crate::abi::*;
use crate::driver::driver;
use crate::graph::graph;
use std::collections::BTreeMap;

/// The nodes that run after each node.
pub(crate) type Edges = BTreeMap<Handle, Vec<Handle>>;

/// The nodes that a program names as those to run before a new one.
pub(crate) fn named(after: In<Handle>, count: usize) -> Answer<Vec<Handle>> {
    (0..count).map(|place| after.at(place).get()).collect()
}

/// Gives the nodes of a clone the edges of the nodes that they are copies of. The edges are left out
/// where a child graph has become several nodes, or none.
pub(crate) fn copy_edges(edges: &mut Edges, nodes: &[Handle], copies: &[Handle]) {
    if nodes.len() != copies.len() {
        return;
    }
    let copy_of: BTreeMap<Handle, Handle> =
        nodes.iter().copied().zip(copies.iter().copied()).collect();
    for (node, copy) in &copy_of {
        let after = edges.get(node).cloned().unwrap_or_default();
        let after = after.iter().filter_map(|node| copy_of.get(node).copied());
        edges.insert(*copy, after.collect());
    }
}

/// Writes handles as the vendor's functions do: their number alone without a place for them, else
/// as many as there is room for, and zeros behind them.
pub(crate) fn list(handles: &[Handle], out: Out<Handle>, count: Out<usize>) -> Answer {
    if out.is_null() {
        return count.set(handles.len());
    }
    let room = count.get()?;
    for place in 0..room {
        let handle = handles.get(place).copied().unwrap_or(0);
        out.at(place).set(handle)?;
    }
    count.set(room.min(handles.len()))
}

cuda! {
    fn cuGraphGetRootNodes(of: Handle, out: Out<Handle>, count: Out<usize>) {
        let driver = driver()?;
        let mut state = driver.state();
        let nodes = graph(&mut state, of)?.clone();
        let has_edge_to = |node: &Handle| state.graphs.edges.values().any(|after| after.contains(node));
        let roots: Vec<Handle> = nodes.into_iter().filter(|node| !has_edge_to(node)).collect();
        list(&roots, out, count)
    }

    fn cuGraphNodeGetDependentNodes(node: Handle, out: Out<Handle>, count: Out<usize>) {
        let driver = driver()?;
        let state = driver.state();
        list(state.graphs.edges.get(&node).ok_or(INVALID_VALUE)?, out, count)
    }
}
