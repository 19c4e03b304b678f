//! Linear, managed and pinned memory, copies and fills.

use crate::Act;
use crate::arguments::Shown;
use crate::world::{Call, Kind, World};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (10, alloc as Act),
        (2, alloc_low),
        (2, pitch),
        (1, pitch_low),
        (4, managed),
        (9, free),
        (2, free_low),
        (2, host),
        (1, host_low),
        (2, host_free),
        (1, register),
        (1, unregister),
        (2, copy_from_host),
        (2, copy),
        (1, copy_batch),
        (2, fill),
        (2, prefetch),
        (1, advise),
    ]
}

fn alloc(world: &mut World<'_>) {
    let call = Call::of("cuMemAlloc_v2").out(Kind::Memory);
    let call = world.or_null(call);
    let size = world.rng.size();
    if world.make(call.number(size)) == 0 {
        world.sized(Kind::Memory, size);
    }
}

/// The function of CUDA 2, whose addresses and sizes have 32 bits.
fn alloc_low(world: &mut World<'_>) {
    let size = world.rng.size() & 0xffff_ffff;
    low(world, Call::of("cuMemAlloc"), &[size]);
}

fn pitch(world: &mut World<'_>) {
    let call = Call::of("cuMemAllocPitch_v2").out(Kind::Memory);
    let call = world.or_null(call).write(Shown::Bytes, 8);
    let call = world.or_null(call);
    let width = world.rng.pick(&[0, 1, 511, 512, 513, 70_000, 1 << 40]);
    let height = world.rng.pick(&[0, 1, 64, 1000, 1 << 40]);
    let element = world.rng.pick(&[4, 8, 16, 16, 0, 3, 1]);
    if world.make(call.number(width).number(height).number(element)) == 0 {
        world.sized(Kind::Memory, width);
    }
}

fn pitch_low(world: &mut World<'_>) {
    let width = world.rng.pick(&[0, 1, 511, 70_000]);
    let height = world.rng.pick(&[0, 1, 64, 1000]);
    let element = world.rng.pick(&[4, 8, 16, 3]);
    let call = Call::of("cuMemAllocPitch").write(Shown::Pointer, 4);
    let call = call.write(Shown::Bytes, 4);
    world.make(call.number(width).number(height).number(element));
}

/// A call that writes an address of 32 bits.
fn low(world: &mut World<'_>, call: Call, more: &[u64]) {
    let call = call.write(Shown::Pointer, 4);
    let mut call = world.or_null(call);
    for word in more {
        call = call.number(*word);
    }
    let address = world.libraries.find(call.name, &mut world.rng);
    world.make_at(address, call);
}

fn managed(world: &mut World<'_>) {
    let call = Call::of("cuMemAllocManaged").out(Kind::Memory);
    let call = world.or_null(call);
    let size = world.rng.size();
    let flags = world.rng.bits(&[1, 1, 1, 2, 0, 3, 4]);
    if world.make(call.number(size).number(flags)) == 0 {
        world.sized(Kind::Memory, size);
    }
}

fn free(world: &mut World<'_>) {
    let (at, name) = world.either(&[
        Kind::Memory,
        Kind::Memory,
        Kind::Memory,
        Kind::Ipc,
        Kind::Mapped,
    ]);
    let call = "cuMemFree_v2";
    if world.make(Call::of(call).thing((at, name.clone()))) == 0 {
        world.ended(Kind::Memory, at);
        world.twice(call, at, &name);
    }
}

fn free_low(world: &mut World<'_>) {
    let at = world.rng.pick(&[0, 0, 0x1000_0000, 0x1234]);
    world.make(Call::of("cuMemFree").number(at));
}

fn host(world: &mut World<'_>) {
    let size = world.rng.size().min(1 << 30);
    let call = match world.rng.percent(50) {
        true => Call::of("cuMemAllocHost_v2").out(Kind::Host).number(size),
        false => {
            let flags = world.rng.bits(&[0, 1, 2, 4]);
            let call = Call::of("cuMemHostAlloc").out(Kind::Host);
            world.or_null(call).number(size).number(flags)
        }
    };
    world.make(call);
}

fn host_low(world: &mut World<'_>) {
    let size = world.rng.size() & 0x00ff_ffff;
    world.make(Call::of("cuMemAllocHost").out(Kind::Host).number(size));
}

fn host_free(world: &mut World<'_>) {
    let (at, name) = world.either(&[Kind::Host, Kind::Host, Kind::Memory]);
    let call = "cuMemFreeHost";
    if world.make(Call::of(call).thing((at, name.clone()))) == 0 {
        world.ended(Kind::Host, at);
        world.twice(call, at, &name);
    }
}

fn register(world: &mut World<'_>) {
    // Memory of the program, which is never freed.
    let bytes = world.rng.pick(&[4096, 65_536, 0]);
    let memory = Box::leak(vec![0u8; 1 << 17].into_boxed_slice());
    let at = (memory.as_ptr() as u64).next_multiple_of(4096);
    let name = world
        .rng
        .pick(&["cuMemHostRegister_v2", "cuMemHostRegister"]);
    let flags = world.rng.bits(&[0, 1, 2]);
    let call = Call::of(name).thing((at, String::from("own memory")));
    if world.make(call.number(bytes).number(flags)) == 0 {
        world.made(Kind::Registered, at, bytes, Vec::new());
    }
}

fn unregister(world: &mut World<'_>) {
    let (at, name) = world.either(&[Kind::Registered, Kind::Registered, Kind::Host]);
    let call = "cuMemHostUnregister";
    if world.make(Call::of(call).thing((at, name.clone()))) == 0 {
        world.ended(Kind::Registered, at);
        world.twice(call, at, &name);
    }
}

const SOURCE: [u8; 4096] = [0x5a; 4096];

/// A length of at most 4096 bytes, within what it is copied to.
fn length(world: &mut World<'_>, bytes: u64) -> u64 {
    let wanted = world.rng.pick(&[0, 1, 16, 4096]);
    wanted.min(bytes)
}

fn copy_from_host(world: &mut World<'_>) {
    let Some(to) = world.one(Kind::Memory) else {
        return;
    };
    let names = [
        "cuMemcpyHtoD_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyHtoD_v2_ptds",
        "cuMemcpyHtoDAsync_v2_ptsz",
    ];
    let name = world.rng.pick(&names);
    let bytes = length(world, to.bytes);
    let call = Call::of(name).thing((to.value, to.name));
    let call = call
        .read(SOURCE.to_vec(), String::from("4096 bytes"))
        .number(bytes);
    let stream = world.any(Kind::Stream);
    let call = if name.contains("Async") {
        call.thing(stream)
    } else {
        call
    };
    world.make(call);
}

fn copy(world: &mut World<'_>) {
    let (Some(to), Some(from)) = (world.one(Kind::Memory), world.one(Kind::Memory)) else {
        return;
    };
    let bytes = length(world, to.bytes.min(from.bytes));
    let names = [
        "cuMemcpy",
        "cuMemcpyAsync",
        "cuMemcpy_ptds",
        "cuMemcpyAsync_ptsz",
        "cuMemcpyDtoD_v2",
    ];
    let name = world.rng.pick(&names);
    let call = Call::of(name)
        .thing((to.value, to.name))
        .thing((from.value, from.name));
    world.make(call.number(bytes).number(0));
}

fn copy_batch(world: &mut World<'_>) {
    let (Some(to), Some(from)) = (world.one(Kind::Memory), world.one(Kind::Memory)) else {
        return;
    };
    let bytes = length(world, to.bytes.min(from.bytes));
    let count = world.rng.pick(&[1, 1, 0]);
    let text = format!("{} {} {bytes}", to.name, from.name);
    let word = |word: u64| word.to_le_bytes().to_vec();
    let is_v2 = world.rng.percent(50);
    let call = Call::of(if is_v2 {
        "cuMemcpyBatchAsync_v2"
    } else {
        "cuMemcpyBatchAsync"
    });
    let call = call
        .read(word(to.value), text)
        .read(word(from.value), String::new());
    let call = call.read(word(bytes), String::new()).number(count);
    let call = call.number(0).number(0).number(0);
    let call = if is_v2 {
        call
    } else {
        call.write(Shown::Bytes, 8)
    };
    world.make(call.number(0));
}

fn fill(world: &mut World<'_>) {
    let Some(to) = world.one(Kind::Memory) else {
        return;
    };
    let bytes = length(world, to.bytes);
    let call = Call::of("cuMemsetD8_v2").thing((to.value, to.name));
    world.make(call.number(7).number(bytes));
}

fn prefetch(world: &mut World<'_>) {
    let (at, name) = world.any(Kind::Memory);
    let bytes = world.rng.pick(&[1, 4096, 1 << 20, 0]);
    let device = world.rng.pick(&[0, 1, 0xffff_ffff, 7]);
    let call = Call::of("cuMemPrefetchAsync").thing((at, name));
    world.make(call.number(bytes).number(device).number(0));
}

fn advise(world: &mut World<'_>) {
    let at = world.any(Kind::Memory);
    let advice = world.rng.pick(&[1, 3, 5, 9]);
    let call = Call::of("cuMemAdvise").thing(at).number(4096);
    world.make(call.number(advice).number(0));
}
