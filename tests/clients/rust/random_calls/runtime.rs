//! Random calls of the CUDA runtime, of all its major versions.

use crate::Act;
use crate::arguments::Shown;
use crate::libraries;
use crate::world::{Call, Kind, World};
use std::ffi::CString;

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (4, malloc as Act),
        (2, managed),
        (3, malloc_async),
        (4, free),
        (3, memory),
        (2, properties),
        (1, set_device),
        (1, reset),
        (1, synchronize),
        (1, host),
        (1, host_free),
        (1, count),
        (2, entry_point),
        (1, last_error),
    ]
}

/// Makes a call of one of the runtimes. A sequence keeps to one of them mostly.
fn make(world: &mut World<'_>, call: Call) -> i32 {
    let which = match world.rng.percent(90) {
        true => 1,
        false => world.rng.below(3),
    };
    let library = world.libraries.runtimes[which];
    let Ok(name) = CString::new(call.name) else {
        return -1;
    };
    let address = match library.is_null() {
        true => 0,
        false => libraries::lookup(library, &name),
    };
    world.make_at(address, call)
}

fn malloc(world: &mut World<'_>) {
    let size = world.rng.size();
    make(world, Call::of("cudaMalloc").out(Kind::Memory).number(size));
}

fn managed(world: &mut World<'_>) {
    let size = world.rng.size();
    let flags = world.rng.bits(&[1, 1, 2]);
    let call = Call::of("cudaMallocManaged").out(Kind::Memory);
    make(world, call.number(size).number(flags));
}

fn malloc_async(world: &mut World<'_>) {
    let size = world.rng.size();
    let stream = world.any(Kind::Stream);
    let call = Call::of("cudaMallocAsync").out(Kind::Memory);
    make(world, call.number(size).thing(stream));
}

fn free(world: &mut World<'_>) {
    let (at, name) = world.any(Kind::Memory);
    let call = match world.rng.percent(70) {
        true => Call::of("cudaFree").thing((at, name)),
        false => Call::of("cudaFreeAsync").thing((at, name)).number(0),
    };
    if make(world, call) == 0 {
        world.ended(Kind::Memory, at);
    }
}

fn memory(world: &mut World<'_>) {
    let call = Call::of("cudaMemGetInfo").write(Shown::Memory("free"), 8);
    let call = world.or_null(call).write(Shown::Memory("total"), 8);
    make(world, call);
}

fn properties(world: &mut World<'_>) {
    let names = ["cudaGetDeviceProperties_v2", "cudaGetDeviceProperties"];
    let name = world.rng.pick(&names);
    let device = world.rng.device();
    const TOTAL: Shown = Shown::Fields(&[(288, 8, "total")]);
    let call = Call::of(name).write(TOTAL, 2048).number(device);
    make(world, call);
}

fn set_device(world: &mut World<'_>) {
    let device = world.rng.device();
    make(world, Call::of("cudaSetDevice").number(device));
}

fn reset(world: &mut World<'_>) {
    if make(world, Call::of("cudaDeviceReset")) == 0 {
        world.context_ended();
    }
}

fn synchronize(world: &mut World<'_>) {
    make(world, Call::of("cudaDeviceSynchronize"));
}

fn host(world: &mut World<'_>) {
    let size = world.rng.size().min(1 << 28);
    make(
        world,
        Call::of("cudaMallocHost").out(Kind::Host).number(size),
    );
}

fn host_free(world: &mut World<'_>) {
    let (at, name) = world.any(Kind::Host);
    if make(world, Call::of("cudaFreeHost").thing((at, name))) == 0 {
        world.ended(Kind::Host, at);
    }
}

fn count(world: &mut World<'_>) {
    make(world, Call::of("cudaGetDeviceCount").write(Shown::Bytes, 4));
}

fn entry_point(world: &mut World<'_>) {
    let name = world.rng.pick(&[
        "cuMemGetInfo",
        "cuMemAlloc",
        "cuMemAllocAsync",
        "cuNone",
        "cuInit",
    ]);
    let flags = world.rng.bits(&[0, 1, 2]);
    let version = world.rng.pick(&[12_000, 11_020, 3020, 2000]);
    let text = [name.as_bytes(), &[0]].concat();
    let call = match world.rng.percent(50) {
        true => {
            let call = Call::of("cudaGetDriverEntryPoint").read(text, name.to_owned());
            call.write(Shown::Pointer, 8).number(flags)
        }
        false => {
            let call = Call::of("cudaGetDriverEntryPointByVersion").read(text, name.to_owned());
            call.write(Shown::Pointer, 8).number(version).number(flags)
        }
    };
    make(world, call.write(Shown::Bytes, 4));
}

fn last_error(world: &mut World<'_>) {
    make(world, Call::of("cudaGetLastError"));
}
