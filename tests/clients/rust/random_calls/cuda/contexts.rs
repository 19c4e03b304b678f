//! Contexts: made, pushed, popped, reset and destroyed.

use crate::Act;
use crate::world::{Call, Kind, World};

/// The usual start of a program.
pub fn begin(world: &mut World<'_>) {
    world.make(Call::of("cuInit").number(0));
    match world.rng.percent(75) {
        true => {
            world.make(
                Call::of("cuDevicePrimaryCtxRetain")
                    .out(Kind::Context)
                    .number(0),
            );
            if let Some(context) = world.one(Kind::Context) {
                let call = Call::of("cuCtxSetCurrent");
                world.make(call.thing((context.value, context.name)));
            }
        }
        false => create(world),
    }
    let usual = [
        ("cuStreamCreate", Kind::Stream),
        ("cuGraphCreate", Kind::Graph),
        ("cuEventCreate", Kind::Event),
    ];
    for (name, kind) in usual {
        if world.rng.percent(40) {
            world.make(Call::of(name).out(kind).number(0));
        }
    }
    if world.rng.percent(40) {
        super::pools::create(world);
    }
    if world.rng.percent(40) {
        super::physical::create(world);
        super::physical::reserve(world);
    }
}

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (1, init as Act),
        (3, retain),
        (2, release),
        (1, reset),
        (3, create),
        (2, create_newer),
        (3, destroy),
        (3, set_current),
        (2, push),
        (2, pop),
        (1, attach),
        (1, detach),
        (2, get),
        (1, synchronize),
        (1, green_resource),
        (1, green_description),
        (1, green_create),
        (1, green_context),
        (1, green_destroy),
        (1, flags),
    ]
}

fn init(world: &mut World<'_>) {
    let flags = world.rng.pick(&[0, 0, 0, 1, 0xffff_ffff]);
    world.make(Call::of("cuInit").number(flags));
}

fn retain(world: &mut World<'_>) {
    let call = Call::of("cuDevicePrimaryCtxRetain").out(Kind::Context);
    let call = world.or_null(call);
    let device = world.rng.device();
    world.make(call.number(device));
}

/// A primary context may end with any release or reset. The log then has a new name for its
/// handle where the driver gives a new one, and the same where it does not.
fn release(world: &mut World<'_>) {
    let name = world
        .rng
        .pick(&["cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2"]);
    let device = world.rng.device();
    if world.make(Call::of(name).number(device)) == 0 {
        world.context_ended();
    }
}

fn reset(world: &mut World<'_>) {
    let name = world
        .rng
        .pick(&["cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2"]);
    let device = world.rng.device();
    if world.make(Call::of(name).number(device)) == 0 {
        world.context_ended();
    }
}

fn create(world: &mut World<'_>) {
    let name = world
        .rng
        .pick(&["cuCtxCreate_v2", "cuCtxCreate_v2", "cuCtxCreate"]);
    let call = Call::of(name).out(Kind::Context);
    let call = world.or_null(call);
    let flags = world.rng.bits(&[0, 0, 0, 1, 2, 4, 8, 16]);
    let device = world.rng.device();
    world.make(call.number(flags).number(device));
}

fn create_newer(world: &mut World<'_>) {
    let flags = world.rng.bits(&[0, 0, 8]);
    let device = world.rng.device();
    let call = match world.rng.percent(50) {
        true => Call::of("cuCtxCreate_v3")
            .out(Kind::Context)
            .number(0)
            .number(0),
        false => Call::of("cuCtxCreate_v4").out(Kind::Context).number(0),
    };
    world.make(call.number(flags).number(device));
}

fn destroy(world: &mut World<'_>) {
    let (context, name) = world.any(Kind::Context);
    let call = world
        .rng
        .pick(&["cuCtxDestroy_v2", "cuCtxDestroy_v2", "cuCtxDestroy"]);
    if world.make(Call::of(call).thing((context, name.clone()))) == 0 {
        world.ended(Kind::Context, context);
        world.context_ended();
        world.twice(call, context, &name);
    }
}

fn set_current(world: &mut World<'_>) {
    let context = world.any(Kind::Context);
    world.make(Call::of("cuCtxSetCurrent").thing(context));
}

fn push(world: &mut World<'_>) {
    let context = world.any(Kind::Context);
    let name = world.rng.pick(&["cuCtxPushCurrent_v2", "cuCtxPushCurrent"]);
    world.make(Call::of(name).thing(context));
}

fn pop(world: &mut World<'_>) {
    let name = world.rng.pick(&["cuCtxPopCurrent_v2", "cuCtxPopCurrent"]);
    let call = Call::of(name).out(Kind::Context);
    let call = world.or_null(call);
    world.make(call);
}

fn attach(world: &mut World<'_>) {
    let call = Call::of("cuCtxAttach").out(Kind::Context);
    let call = world.or_null(call);
    let flags = world.rng.bits(&[0]);
    world.make(call.number(flags));
}

fn detach(world: &mut World<'_>) {
    let context = world.any(Kind::Context);
    if world.make(Call::of("cuCtxDetach").thing(context)) == 0 {
        world.context_ended();
    }
}

fn get(world: &mut World<'_>) {
    let call = Call::of("cuCtxGetCurrent").out(Kind::Context);
    let call = world.or_null(call);
    world.make(call);
}

fn synchronize(world: &mut World<'_>) {
    match world.rng.percent(50) {
        true => world.make(Call::of("cuCtxSynchronize")),
        false => {
            let context = world.any(Kind::Context);
            world.make(Call::of("cuCtxSynchronize_v2").thing(context))
        }
    };
}

fn green_resource(world: &mut World<'_>) {
    // CUdevResource has 144 bytes and more in later versions. Its first word is its type.
    let device = world.rng.device();
    let kind = world.rng.bits(&[0, 1, 1, 1, 2]);
    let call = Call::of("cuDeviceGetDevResource").number(device);
    let call = call.write(crate::arguments::Shown::Bytes, 256);
    world.make(call.number(kind));
}

fn green_description(world: &mut World<'_>) {
    let call = Call::of("cuDevResourceGenerateDesc").out(Kind::Descriptor);
    let call = world.or_null(call);
    let mut resource = vec![0; 256];
    resource[0] = 1;
    let count = world.rng.bits(&[1, 1, 1, 0]);
    world.make(
        call.read(resource, String::from("a resource"))
            .number(count),
    );
}

fn green_create(world: &mut World<'_>) {
    let call = Call::of("cuGreenCtxCreate").out(Kind::Green);
    let call = world.or_null(call);
    let description = world.any(Kind::Descriptor);
    let device = world.rng.device();
    let flags = world.rng.bits(&[1, 1, 0]);
    world.make(call.thing(description).number(device).number(flags));
}

fn green_context(world: &mut World<'_>) {
    let call = Call::of("cuCtxFromGreenCtx").out(Kind::Context);
    let call = world.or_null(call);
    let green = world.any(Kind::Green);
    world.make(call.thing(green));
}

fn green_destroy(world: &mut World<'_>) {
    let (green, name) = world.any(Kind::Green);
    let call = "cuGreenCtxDestroy";
    if world.make(Call::of(call).thing((green, name.clone()))) == 0 {
        world.ended(Kind::Green, green);
        world.context_ended();
        world.twice(call, green, &name);
    }
}

fn flags(world: &mut World<'_>) {
    let names = [
        "cuDevicePrimaryCtxSetFlags",
        "cuDevicePrimaryCtxSetFlags_v2",
    ];
    let name = world.rng.pick(&names);
    let device = world.rng.device();
    let flags = world.rng.bits(&[0, 1, 4, 8]);
    world.make(Call::of(name).number(device).number(flags));
}
