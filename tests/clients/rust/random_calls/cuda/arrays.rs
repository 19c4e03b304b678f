//! Arrays and mipmapped arrays.

use crate::Act;
use crate::arguments::Shown;
use crate::world::{Call, Kind, World, words};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (2, create as Act),
        (2, create_3d),
        (2, mipmap),
        (3, destroy),
        (1, requirements),
        (1, describe),
        (1, level),
    ]
}

fn format(world: &mut World<'_>) -> [u32; 2] {
    let format = world.rng.pick(&[1, 8, 0x10, 0x20, 3, 0x77]);
    [format, world.rng.pick(&[1, 2, 4, 4, 3, 0])]
}

fn side(world: &mut World<'_>) -> u64 {
    world.rng.pick(&[1, 16, 63, 64, 500, 2048, 0, 1 << 20])
}

fn create(world: &mut World<'_>) {
    let (width, height) = (side(world), side(world));
    let [format, channels] = format(world);
    let mut bytes = width.to_le_bytes().to_vec();
    bytes.extend(height.to_le_bytes());
    bytes.extend(words(&[format, channels]));
    let text = format!("{{{width}, {height}, {format:#x}x{channels}}}");
    let call = Call::of("cuArrayCreate_v2").out(Kind::Array);
    let call = world.or_null(call).read(bytes, text);
    let call = world.or_null(call);
    world.make(call);
}

/// A descriptor of three dimensions.
fn deep(world: &mut World<'_>) -> (Vec<u8>, String) {
    let (width, height) = (side(world), side(world));
    let depth = world.rng.pick(&[0, 0, 1, 6, 64]);
    let [format, channels] = format(world);
    let flags = world.rng.bits(&[0, 0, 1, 2, 4]) as u32;
    let mut bytes = Vec::new();
    for word in [width, height, depth] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(words(&[format, channels, flags, 0]));
    let text = format!("{{{width}, {height}, {depth}, {format:#x}x{channels}, {flags:#x}}}");
    (bytes, text)
}

fn create_3d(world: &mut World<'_>) {
    let (bytes, text) = deep(world);
    let call = Call::of("cuArray3DCreate_v2").out(Kind::Array);
    let call = world.or_null(call).read(bytes, text);
    let call = world.or_null(call);
    world.make(call);
}

fn mipmap(world: &mut World<'_>) {
    let (bytes, text) = deep(world);
    let call = Call::of("cuMipmappedArrayCreate").out(Kind::Mipmap);
    let call = world.or_null(call).read(bytes, text);
    let levels = world.rng.pick(&[1, 2, 4, 0, 40]);
    world.make(call.number(levels));
}

fn destroy(world: &mut World<'_>) {
    let (name, kind) = match world.rng.percent(50) {
        true => ("cuArrayDestroy", Kind::Array),
        false => ("cuMipmappedArrayDestroy", Kind::Mipmap),
    };
    let (array, text) = world.any(kind);
    if world.make(Call::of(name).thing((array, text.clone()))) == 0 {
        world.ended(kind, array);
        world.twice(name, array, &text);
    }
}

fn requirements(world: &mut World<'_>) {
    let (name, kind) = match world.rng.percent(50) {
        true => ("cuArrayGetMemoryRequirements", Kind::Array),
        false => ("cuMipmappedArrayGetMemoryRequirements", Kind::Mipmap),
    };
    let call = Call::of(name).write(Shown::Bytes, 32);
    let array = world.any(kind);
    world.make(call.thing(array).number(0));
}

const DEEP: Shown = Shown::Fields(&[(36, 4, "padding")]);

fn describe(world: &mut World<'_>) {
    let array = world.any(Kind::Array);
    let call = match world.rng.percent(50) {
        true => Call::of("cuArrayGetDescriptor_v2").write(Shown::Bytes, 24),
        // The structure ends with padding.
        false => Call::of("cuArray3DGetDescriptor_v2").write(DEEP, 40),
    };
    world.make(call.thing(array));
}

fn level(world: &mut World<'_>) {
    let call = Call::of("cuMipmappedArrayGetLevel").out(Kind::Array);
    let array = world.any(Kind::Mipmap);
    let level = world.rng.pick(&[0, 1, 9]);
    world.make(call.thing(array).number(level));
}
