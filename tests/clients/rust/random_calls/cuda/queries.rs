//! Queries: of devices, of memory, of pointers and of limits.

use crate::Act;
use crate::arguments::Shown;
use crate::world::{Call, Kind, World};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (5, memory as Act),
        (1, memory_low),
        (3, total),
        (1, total_low),
        (4, attribute),
        (1, device),
        (1, count),
        (1, uuid),
        (1, name),
        (1, capability),
        (1, state),
        (1, limit),
        (2, pointer),
        (2, range),
        (1, error),
        (1, version),
        (1, current_device),
    ]
}

pub fn memory(world: &mut World<'_>) {
    let call = Call::of("cuMemGetInfo_v2").write(Shown::Memory("free"), 8);
    let call = world.or_null(call).write(Shown::Memory("total"), 8);
    let call = world.or_null(call);
    world.make(call);
}

fn memory_low(world: &mut World<'_>) {
    let call = Call::of("cuMemGetInfo").write(Shown::Memory("free"), 4);
    world.make(call.write(Shown::Memory("total"), 4));
}

fn total(world: &mut World<'_>) {
    let call = Call::of("cuDeviceTotalMem_v2").write(Shown::Memory("total"), 8);
    let call = world.or_null(call);
    let device = world.rng.device();
    world.make(call.number(device));
}

fn total_low(world: &mut World<'_>) {
    let device = world.rng.device();
    let call = Call::of("cuDeviceTotalMem").write(Shown::Memory("total"), 4);
    world.make(call.number(device));
}

fn attribute(world: &mut World<'_>) {
    let attribute = match world.rng.percent(80) {
        true => 1 + world.rng.below(145) as u64,
        false => world
            .rng
            .bits(&[0, 18, 41, 83, 88, 89, 102, 115, 119, 1000]),
    };
    let call = Call::of("cuDeviceGetAttribute").write(Shown::Bytes, 4);
    let call = world.or_null(call).number(attribute);
    let device = world.rng.device();
    world.make(call.number(device));
}

fn device(world: &mut World<'_>) {
    let call = Call::of("cuDeviceGet").write(Shown::Bytes, 4);
    let call = world.or_null(call);
    let device = world.rng.device();
    world.make(call.number(device));
}

fn count(world: &mut World<'_>) {
    let call = Call::of("cuDeviceGetCount").write(Shown::Bytes, 4);
    let call = world.or_null(call);
    world.make(call);
}

fn uuid(world: &mut World<'_>) {
    let name = world.rng.pick(&["cuDeviceGetUuid", "cuDeviceGetUuid_v2"]);
    let device = world.rng.device();
    world.make(Call::of(name).write(Shown::Bytes, 16).number(device));
}

fn name(world: &mut World<'_>) {
    let name = world.rng.pick(&["cuDeviceGetName", "cuDeviceGetPCIBusId"]);
    let room = world.rng.pick(&[64, 64, 5, 1, 0]);
    let device = world.rng.device();
    let call = Call::of(name).write(Shown::Text, 64);
    let call = world.or_null(call);
    world.make(call.number(room).number(device));
}

fn capability(world: &mut World<'_>) {
    let call = Call::of("cuDeviceComputeCapability").write(Shown::Bytes, 4);
    let device = world.rng.device();
    world.make(call.write(Shown::Bytes, 4).number(device));
}

fn state(world: &mut World<'_>) {
    let device = world.rng.device();
    let call = Call::of("cuDevicePrimaryCtxGetState").number(device);
    world.make(call.write(Shown::Bytes, 4).write(Shown::Bytes, 4));
}

fn limit(world: &mut World<'_>) {
    let limit = world.rng.bits(&[0, 1, 2, 3, 4, 5, 6]);
    match world.rng.percent(50) {
        true => world.make(
            Call::of("cuCtxGetLimit")
                .write(Shown::Bytes, 8)
                .number(limit),
        ),
        false => {
            let value = world.rng.pick(&[1024, 1 << 20, 0]);
            world.make(Call::of("cuCtxSetLimit").number(limit).number(value))
        }
    };
}

fn pointer(world: &mut World<'_>) {
    // Attributes that are addresses or handles are only compared as pointers.
    const POINTERS: [u64; 4] = [1, 3, 4, 11];
    let attribute = world.rng.bits(&[1, 2, 3, 4, 7, 8, 9, 11, 12, 13]);
    let (at, name) = world.either(&[Kind::Memory, Kind::Host, Kind::Mapped]);
    let shown = match POINTERS.contains(&attribute) {
        true => Shown::Pointer,
        false => Shown::Bytes,
    };
    let call = Call::of("cuPointerGetAttribute").write_over(shown, 8, &[0; 8]);
    world.make(call.number(attribute).thing((at, name)));
}

fn range(world: &mut World<'_>) {
    let at = world.any(Kind::Memory);
    let call = Call::of("cuMemGetAddressRange_v2").write(Shown::Pointer, 8);
    world.make(call.write(Shown::Bytes, 8).thing(at));
}

fn error(world: &mut World<'_>) {
    let name = world.rng.pick(&["cuGetErrorName", "cuGetErrorString"]);
    let code = world.rng.bits(&[0, 1, 2, 100, 999, 12345]);
    world.make(Call::of(name).number(code).write(Shown::Pointer, 8));
}

fn version(world: &mut World<'_>) {
    let call = Call::of("cuDriverGetVersion").write(Shown::Bytes, 4);
    let call = world.or_null(call);
    world.make(call);
}

fn current_device(world: &mut World<'_>) {
    let call = Call::of("cuCtxGetDevice").write(Shown::Bytes, 4);
    let call = world.or_null(call);
    world.make(call);
}
