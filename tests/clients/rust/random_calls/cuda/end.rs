//! The end of a sequence: everything that it has made is freed, and the driver is asked what is
//! left. Memory that a slice still counts then shows in its numbers.

use super::sharing;
use crate::arguments::Shown;
use crate::world::{Call, Kind, World};

/// The functions that end each kind of thing, in an order that works.
const ENDS: [(Kind, &str); 11] = [
    (Kind::Exec, "cuGraphExecDestroy"),
    (Kind::Graph, "cuGraphDestroy"),
    (Kind::Ipc, "cuIpcCloseMemHandle"),
    (Kind::Memory, "cuMemFree_v2"),
    (Kind::Host, "cuMemFreeHost"),
    (Kind::Registered, "cuMemHostUnregister"),
    (Kind::Mipmap, "cuMipmappedArrayDestroy"),
    (Kind::Array, "cuArrayDestroy"),
    (Kind::Physical, "cuMemRelease"),
    (Kind::Pool, "cuMemPoolDestroy"),
    (Kind::Stream, "cuStreamDestroy_v2"),
];

pub fn release(world: &mut World<'_>) {
    for stream in world.all(Kind::Stream) {
        // A capture that is still open would forbid what follows.
        let call = Call::of("cuStreamEndCapture").thing((stream.value, stream.name));
        world.make(call.write(Shown::Pointer, 8));
    }
    sharing::close_descriptors(world);
    for mapped in world.all(Kind::Mapped) {
        let call = Call::of("cuMemUnmap").thing((mapped.value, mapped.name));
        world.make(call.number(mapped.bytes));
        world.ended(Kind::Mapped, mapped.value);
    }
    for (kind, name) in ENDS {
        for thing in world.all(kind) {
            world.make(Call::of(name).thing((thing.value, thing.name)));
            world.ended(kind, thing.value);
        }
    }
    world.make(Call::of("cuCtxSynchronize"));
    for device in [0, 1] {
        world.make(Call::of("cuDeviceGraphMemTrim").number(device));
    }
    let call = Call::of("cuMemGetInfo_v2").write(Shown::Memory("free"), 8);
    world.make(call.write(Shown::Memory("total"), 8));
    for context in world.all(Kind::Context) {
        // A primary context cannot be destroyed in this way, and says so.
        world.make(Call::of("cuCtxDestroy_v2").thing((context.value, context.name)));
    }
    for device in [0, 1] {
        world.make(Call::of("cuDevicePrimaryCtxReset_v2").number(device));
    }
    world.all_ended(Kind::Context);
    for device in [0, 1] {
        let call = Call::of("cuDevicePrimaryCtxRetain").out(Kind::Context);
        if world.make(call.number(device)) != 0 {
            continue;
        }
        let context = (world.last, String::from("it"));
        world.make(Call::of("cuCtxSetCurrent").thing(context));
        world.say(&format!("left on device {device}"));
        let call = Call::of("cuMemGetInfo_v2").write(Shown::Memory("free"), 8);
        world.make(call.write(Shown::Memory("total"), 8));
    }
}
