//! Graphs, and the memory that their nodes allocate.

use crate::Act;
use crate::arguments::Shown;
use crate::world::{Call, Kind, World, words};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (2, create as Act),
        (1, destroy),
        (2, alloc_node),
        (1, free_node),
        (1, child),
        (2, instantiate),
        (2, launch),
        (1, exec_destroy),
        (1, trim),
        (1, attribute),
        (1, clone),
        (1, nodes),
    ]
}

fn create(world: &mut World<'_>) {
    let call = Call::of("cuGraphCreate").out(Kind::Graph);
    let call = world.or_null(call);
    world.make(call.number(0));
}

fn destroy(world: &mut World<'_>) {
    let (graph, name) = world.any(Kind::Graph);
    if world.make(Call::of("cuGraphDestroy").thing((graph, name.clone()))) == 0 {
        world.ended(Kind::Graph, graph);
        world.twice("cuGraphDestroy", graph, &name);
    }
}

fn alloc_node(world: &mut World<'_>) {
    let Some(graph) = world.one(Kind::Graph) else {
        return;
    };
    let size = world.rng.size();
    let place = world.rng.pick(&[1, 1, 1, 0]);
    // CUDA_MEM_ALLOC_NODE_PARAMS: the properties of a pool, the accesses, the size; the driver
    // writes the address behind them.
    let mut params = words(&[1, 0, place, 0]);
    params.resize(104, 0);
    params.extend(size.to_le_bytes());
    let call = Call::of("cuGraphAddMemAllocNode").out(Kind::Node);
    let call = world.or_null(call).thing((graph.value, graph.name));
    let mut call = call.number(0).number(0);
    // The address that the driver writes.
    call = call.write_over(Shown::PointerAt(112), 120, &params);
    world.make(call.number(size));
}

fn free_node(world: &mut World<'_>) {
    let Some(graph) = world.one(Kind::Graph) else {
        return;
    };
    let at = world.any(Kind::Memory);
    let call = Call::of("cuGraphAddMemFreeNode").out(Kind::Node);
    let call = call.thing((graph.value, graph.name)).number(0).number(0);
    world.make(call.thing(at));
}

fn child(world: &mut World<'_>) {
    let (Some(graph), Some(child)) = (world.one(Kind::Graph), world.one(Kind::Graph)) else {
        return;
    };
    if graph.value == child.value {
        return;
    }
    let call = Call::of("cuGraphAddChildGraphNode").out(Kind::Node);
    let call = call.thing((graph.value, graph.name)).number(0).number(0);
    world.make(call.thing((child.value, child.name)));
}

fn instantiate(world: &mut World<'_>) {
    let graph = world.any(Kind::Graph);
    let call = match world.rng.below(3) {
        0 => {
            let call = Call::of("cuGraphInstantiateWithFlags").out(Kind::Exec);
            let call = world.or_null(call);
            let flags = world.rng.bits(&[0, 1, 2]);
            call.thing(graph).number(flags)
        }
        1 => {
            let call = Call::of("cuGraphInstantiate_v2")
                .out(Kind::Exec)
                .thing(graph);
            call.number(0).number(0).number(0)
        }
        _ => {
            let name = world.rng.pick(&[
                "cuGraphInstantiateWithParams",
                "cuGraphInstantiateWithParams_ptsz",
            ]);
            let call = Call::of(name).out(Kind::Exec).thing(graph);
            let call = call.write_over(Shown::Bytes, 32, &[0; 32]);
            world.or_null(call)
        }
    };
    world.make(call);
}

fn launch(world: &mut World<'_>) {
    let names = ["cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload"];
    let name = world.rng.pick(&names);
    let exec = world.any(Kind::Exec);
    let stream = world.any(Kind::Stream);
    world.make(Call::of(name).thing(exec).thing(stream));
}

fn exec_destroy(world: &mut World<'_>) {
    let (exec, name) = world.any(Kind::Exec);
    if world.make(Call::of("cuGraphExecDestroy").thing((exec, name.clone()))) == 0 {
        world.ended(Kind::Exec, exec);
        world.twice("cuGraphExecDestroy", exec, &name);
    }
}

fn trim(world: &mut World<'_>) {
    let device = world.rng.device();
    world.make(Call::of("cuDeviceGraphMemTrim").number(device));
}

fn attribute(world: &mut World<'_>) {
    let device = world.rng.device();
    let attribute = world.rng.bits(&[0, 1, 2, 3]);
    let call = Call::of("cuDeviceGetGraphMemAttribute").number(device);
    world.make(call.number(attribute).write(Shown::Bytes, 8));
}

fn clone(world: &mut World<'_>) {
    let call = Call::of("cuGraphClone").out(Kind::Graph);
    let graph = world.any(Kind::Graph);
    world.make(call.thing(graph));
}

fn nodes(world: &mut World<'_>) {
    let graph = world.any(Kind::Graph);
    let call = Call::of("cuGraphGetNodes").thing(graph).number(0);
    world.make(call.write(Shown::Bytes, 8));
}
