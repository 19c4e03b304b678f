//! Memory pools, and memory in the order of a stream.

use crate::Act;
use crate::arguments::Shown;
use crate::world::{Call, Kind, World, words};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (6, alloc as Act),
        (4, alloc_from),
        (6, free),
        (2, create),
        (1, destroy),
        (2, default_pool),
        (1, current_pool),
        (1, set_current),
        (2, trim),
        (3, attribute),
        (2, set_attribute),
        (1, access),
    ]
}

fn pool(world: &mut World<'_>) -> (u64, String) {
    world.either(&[Kind::Pool, Kind::DefaultPool])
}

fn stream(world: &mut World<'_>) -> (u64, String) {
    match world.rng.percent(60) {
        true => world.any(Kind::Stream),
        // The default stream, the legacy one and the thread's own.
        false => {
            let word = world.rng.pick(&[0, 1, 2]);
            (word, format!("stream {word}"))
        }
    }
}

fn alloc(world: &mut World<'_>) {
    let name = world.rng.pick(&["cuMemAllocAsync", "cuMemAllocAsync_ptsz"]);
    let call = Call::of(name).out(Kind::Memory);
    let call = world.or_null(call);
    let size = world.rng.size();
    let stream = stream(world);
    if world.make(call.number(size).thing(stream)) == 0 {
        world.sized(Kind::Memory, size);
    }
}

fn alloc_from(world: &mut World<'_>) {
    let name = world
        .rng
        .pick(&["cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz"]);
    let call = Call::of(name).out(Kind::Memory);
    let call = world.or_null(call);
    let size = world.rng.size();
    let pool = pool(world);
    let stream = stream(world);
    if world.make(call.number(size).thing(pool).thing(stream)) == 0 {
        world.sized(Kind::Memory, size);
    }
}

fn free(world: &mut World<'_>) {
    let name = world.rng.pick(&["cuMemFreeAsync", "cuMemFreeAsync_ptsz"]);
    let (at, text) = world.any(Kind::Memory);
    let stream = stream(world);
    if world.make(Call::of(name).thing((at, text)).thing(stream)) == 0 {
        world.ended(Kind::Memory, at);
    }
}

pub fn create(world: &mut World<'_>) {
    let call = Call::of("cuMemPoolCreate").out(Kind::Pool);
    let call = world.or_null(call);
    let kind = world.rng.pick(&[1, 1, 1, 1, 0, 2]);
    let handles = world.rng.pick(&[0, 0, 1, 8]);
    let place = world.rng.pick(&[1, 1, 1, 2, 0]);
    let device = world.rng.device() as u32;
    let most = world.rng.pick(&[0, 0, 0, 64]) << 20;
    let mut props = words(&[kind, handles, place, device, 0, 0, most, 0]);
    props.resize(88, 0);
    let text = format!("{{{kind}, {handles}, {place}:{device:#x}, {most}}}");
    let call = call.read(props, text);
    let call = world.or_null(call);
    world.make(call);
}

fn destroy(world: &mut World<'_>) {
    let (pool, name) = pool(world);
    let call = "cuMemPoolDestroy";
    if world.make(Call::of(call).thing((pool, name.clone()))) == 0 {
        world.ended(Kind::Pool, pool);
        world.twice(call, pool, &name);
    }
}

fn default_pool(world: &mut World<'_>) {
    let call = Call::of("cuDeviceGetDefaultMemPool").out(Kind::DefaultPool);
    let call = world.or_null(call);
    let device = world.rng.device();
    world.make(call.number(device));
}

fn current_pool(world: &mut World<'_>) {
    let call = Call::of("cuDeviceGetMemPool").out(Kind::DefaultPool);
    let device = world.rng.device();
    world.make(call.number(device));
}

fn set_current(world: &mut World<'_>) {
    let device = world.rng.device();
    let pool = pool(world);
    world.make(Call::of("cuDeviceSetMemPool").number(device).thing(pool));
}

fn trim(world: &mut World<'_>) {
    let pool = pool(world);
    let keep = world.rng.pick(&[0, 0, 1, 64 << 20, u64::MAX]);
    world.make(Call::of("cuMemPoolTrimTo").thing(pool).number(keep));
}

fn attribute(world: &mut World<'_>) {
    let pool = pool(world);
    let attribute = world.rng.bits(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let call = Call::of("cuMemPoolGetAttribute")
        .thing(pool)
        .number(attribute);
    let call = call.write(Shown::Bytes, 8);
    let call = world.or_null(call);
    world.make(call);
}

fn set_attribute(world: &mut World<'_>) {
    let pool = pool(world);
    let attribute = world.rng.bits(&[1, 4, 4, 4, 5, 6, 7, 8]);
    let value: u64 = world.rng.pick(&[0, 1, 64 << 20, u64::MAX]);
    let call = Call::of("cuMemPoolSetAttribute")
        .thing(pool)
        .number(attribute);
    let call = call.read(value.to_le_bytes().to_vec(), format!("[{value:#x}]"));
    let call = world.or_null(call);
    world.make(call);
}

fn access(world: &mut World<'_>) {
    let pool = pool(world);
    let location = words(&[1, 0]);
    let call = Call::of("cuMemPoolGetAccess")
        .write(Shown::Bytes, 4)
        .thing(pool);
    world.make(call.read(location, String::from("device 0")));
}
