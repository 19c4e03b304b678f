//! Virtual memory management: physical memory, address ranges, and the mappings between them.

use crate::Act;
use crate::arguments::Shown;
use crate::world::{Call, Kind, World, words};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (6, create as Act),
        (5, release),
        (4, reserve),
        (2, free),
        (6, map),
        (4, unmap),
        (2, access),
        (2, retain),
        (1, granularity),
        (1, properties),
    ]
}

fn prop(world: &mut World<'_>) -> (Vec<u8>, String) {
    let kind = world.rng.pick(&[1, 1, 1, 1, 1, 0]);
    let handles = world.rng.pick(&[1, 1, 0, 2]);
    let place = world.rng.pick(&[1, 1, 1, 1, 2, 3, 0]);
    let device = world.rng.device() as u32;
    let bytes = words(&[kind, handles, place, device, 0, 0, 0, 0]);
    (bytes, format!("{{{kind}, {handles}, {place}:{device:#x}}}"))
}

pub fn create(world: &mut World<'_>) {
    let call = Call::of("cuMemCreate").out(Kind::Physical);
    let call = world.or_null(call);
    let size = world.rng.granules();
    let (prop, text) = prop(world);
    let call = call.number(size).read(prop, text);
    let call = world.or_null(call);
    let flags = world.rng.bits(&[0, 0, 0, 0, 1]);
    if world.make(call.number(flags)) == 0 {
        world.sized(Kind::Physical, size);
    }
}

fn release(world: &mut World<'_>) {
    let (handle, name) = world.any(Kind::Physical);
    let call = "cuMemRelease";
    if world.make(Call::of(call).thing((handle, name.clone()))) == 0 {
        world.ended(Kind::Physical, handle);
        world.twice(call, handle, &name);
    }
}

pub fn reserve(world: &mut World<'_>) {
    let call = Call::of("cuMemAddressReserve").out(Kind::Range);
    let call = world.or_null(call);
    let size = world.rng.granules();
    let flags = world.rng.bits(&[0, 0, 0, 0, 1]);
    if world.make(call.number(size).number(0).number(0).number(flags)) == 0 {
        world.sized(Kind::Range, size);
    }
}

fn free(world: &mut World<'_>) {
    let Some(range) = world.one(Kind::Range) else {
        return;
    };
    let bytes = match world.rng.percent(85) {
        true => range.bytes,
        false => world.rng.granules(),
    };
    let call = Call::of("cuMemAddressFree").thing((range.value, range.name));
    if world.make(call.number(bytes)) == 0 {
        world.ended(Kind::Range, range.value);
    }
}

fn map(world: &mut World<'_>) {
    let (handle, name, size) = match world.one(Kind::Physical) {
        Some(handle) if world.rng.percent(90) => (handle.value, handle.name, handle.bytes),
        _ => {
            let (handle, name) = world.any(Kind::Physical);
            (handle, name, 2 << 20)
        }
    };
    let Some(range) = world.one(Kind::Range) else {
        return;
    };
    // At one of the places of the range, which may be taken.
    let at =
        range.value + (world.rng.below(4) as u64) * (2 << 20) * u64::from(world.rng.percent(40));
    let place = format!("{}+{:#x}", range.name, at - range.value);
    let bytes = match world.rng.percent(90) {
        true => size,
        false => world.rng.granules(),
    };
    let offset = world.rng.pick(&[0, 0, 0, 0, 0, 2 << 20]);
    let flags = world.rng.bits(&[0, 0, 0, 0, 0, 1]);
    let call = Call::of("cuMemMap")
        .thing((at, place))
        .number(bytes)
        .number(offset);
    if world.make(call.thing((handle, name)).number(flags)) == 0 {
        world.made(Kind::Mapped, at, bytes, Vec::new());
    }
}

fn unmap(world: &mut World<'_>) {
    let Some(mapped) = world.one(Kind::Mapped) else {
        return;
    };
    let bytes = match world.rng.percent(85) {
        true => mapped.bytes,
        false => world.rng.granules(),
    };
    let call = Call::of("cuMemUnmap").thing((mapped.value, mapped.name));
    if world.make(call.number(bytes)) == 0 {
        world.ended(Kind::Mapped, mapped.value);
    }
}

fn access(world: &mut World<'_>) {
    let Some(mapped) = world.one(Kind::Mapped) else {
        return;
    };
    let flags = world.rng.pick(&[3, 3, 1, 0, 7]);
    let description = words(&[1, 0, flags]);
    let call = Call::of("cuMemSetAccess").thing((mapped.value, mapped.name));
    let call = call.number(mapped.bytes);
    world.make(
        call.read(description, format!("device 0: {flags}"))
            .number(1),
    );
}

fn retain(world: &mut World<'_>) {
    let call = Call::of("cuMemRetainAllocationHandle").out(Kind::Physical);
    let call = world.or_null(call);
    let (at, name) = world.either(&[Kind::Mapped, Kind::Mapped, Kind::Memory, Kind::Range]);
    world.make(call.thing((at, name)));
}

fn granularity(world: &mut World<'_>) {
    let (prop, text) = prop(world);
    let option = world.rng.bits(&[0, 1]);
    let call = Call::of("cuMemGetAllocationGranularity").write(Shown::Bytes, 8);
    world.make(call.read(prop, text).number(option));
}

fn properties(world: &mut World<'_>) {
    let handle = world.any(Kind::Physical);
    let call = Call::of("cuMemGetAllocationPropertiesFromHandle").write(Shown::Bytes, 32);
    world.make(call.thing(handle));
}
