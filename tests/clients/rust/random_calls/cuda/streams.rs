//! Streams, events and captures.

use crate::Act;
use crate::arguments::Shown;
use crate::world::{Call, Kind, World};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (3, create as Act),
        (2, destroy),
        (3, synchronize),
        (1, query),
        (1, event),
        (1, event_destroy),
        (1, record),
        (1, event_synchronize),
        (1, begin_capture),
        (2, end_capture),
        (1, is_capturing),
        (1, context),
    ]
}

fn create(world: &mut World<'_>) {
    let call = Call::of("cuStreamCreate").out(Kind::Stream);
    let call = world.or_null(call);
    let flags = world.rng.bits(&[0, 1]);
    world.make(call.number(flags));
}

fn destroy(world: &mut World<'_>) {
    let name = world.rng.pick(&["cuStreamDestroy_v2", "cuStreamDestroy"]);
    let (stream, text) = world.any(Kind::Stream);
    if world.make(Call::of(name).thing((stream, text.clone()))) == 0 {
        world.ended(Kind::Stream, stream);
        world.twice(name, stream, &text);
    }
}

fn synchronize(world: &mut World<'_>) {
    let name = world
        .rng
        .pick(&["cuStreamSynchronize", "cuStreamSynchronize_ptsz"]);
    let stream = world.any(Kind::Stream);
    world.make(Call::of(name).thing(stream));
}

fn query(world: &mut World<'_>) {
    let stream = world.any(Kind::Stream);
    world.make(Call::of("cuStreamQuery").thing(stream));
}

fn event(world: &mut World<'_>) {
    let call = Call::of("cuEventCreate").out(Kind::Event);
    let call = world.or_null(call);
    world.make(call.number(0));
}

fn event_destroy(world: &mut World<'_>) {
    let (event, name) = world.any(Kind::Event);
    if world.make(Call::of("cuEventDestroy_v2").thing((event, name))) == 0 {
        world.ended(Kind::Event, event);
    }
}

fn record(world: &mut World<'_>) {
    let event = world.any(Kind::Event);
    let stream = world.any(Kind::Stream);
    world.make(Call::of("cuEventRecord").thing(event).thing(stream));
}

fn event_synchronize(world: &mut World<'_>) {
    let event = world.any(Kind::Event);
    world.make(Call::of("cuEventSynchronize").thing(event));
}

fn begin_capture(world: &mut World<'_>) {
    let stream = world.any(Kind::Stream);
    let mode = world.rng.bits(&[0, 1, 2]);
    let name = world
        .rng
        .pick(&["cuStreamBeginCapture_v2", "cuStreamBeginCapture_v2_ptsz"]);
    world.make(Call::of(name).thing(stream).number(mode));
}

fn end_capture(world: &mut World<'_>) {
    let name = world
        .rng
        .pick(&["cuStreamEndCapture", "cuStreamEndCapture_ptsz"]);
    let stream = world.any(Kind::Stream);
    let call = Call::of(name).thing(stream).out(Kind::Graph);
    world.make(call);
}

fn is_capturing(world: &mut World<'_>) {
    let stream = world.any(Kind::Stream);
    let call = Call::of("cuStreamIsCapturing").thing(stream);
    world.make(call.write(Shown::Bytes, 4));
}

fn context(world: &mut World<'_>) {
    let stream = world.any(Kind::Stream);
    world.make(Call::of("cuStreamGetCtx").thing(stream).out(Kind::Context));
}
