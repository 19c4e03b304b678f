//! Random calls of NVIDIA's OpenCL driver, which are reached as the loader reaches them: by its
//! dispatch table.

use crate::Act;
use crate::arguments::{Argument, Place, Shown};
use crate::libraries;
use crate::world::{Call, Kind, World};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (4, context as Act),
        (5, info),
        (8, buffer),
        (2, image),
        (1, pipe),
        (1, with_properties),
        (6, release),
        (1, retain),
        (1, sub_buffer),
        (3, shared),
        (2, shared_free),
        (1, context_release),
    ]
}

/// The only platform.
fn platform(world: &World<'_>) -> u64 {
    type Extension = extern "C" fn(*const libc::c_char) -> u64;
    type Platforms = extern "C" fn(u32, *mut u64, *mut u32) -> i32;
    let address = libraries::lookup(world.libraries.opencl, c"clGetExtensionFunctionAddress");
    if address == 0 {
        return 0;
    }
    // SAFETY: the driver's function of that name.
    let extension = unsafe { std::mem::transmute::<u64, Extension>(address) };
    let address = extension(c"clIcdGetPlatformIDsKHR".as_ptr());
    if address == 0 {
        return 0;
    }
    // SAFETY: the driver's function of that name.
    let platforms = unsafe { std::mem::transmute::<u64, Platforms>(address) };
    let (mut platform, mut count) = (0, 0);
    let rc = platforms(1, &raw mut platform, &raw mut count);
    if rc == 0 { platform } else { 0 }
}

/// The function at a place of the dispatch table.
fn at(world: &World<'_>, index: usize) -> u64 {
    let platform = platform(world) as *const *const u64;
    if platform.is_null() {
        return 0;
    }
    // SAFETY: a platform begins with the address of the table.
    let table = unsafe { *platform };
    // SAFETY: the table of OpenCL 3.0 has 149 places.
    unsafe { *table.add(index) }
}

fn devices(world: &World<'_>) -> Vec<u64> {
    let (mut devices, mut count) = ([0_u64; 4], 0_u32);
    let mut arguments = [0; 11];
    let address = at(world, 2);
    if address == 0 {
        return Vec::new();
    }
    arguments[..5].copy_from_slice(&[
        platform(world),
        0xffff_ffff,
        4,
        &raw mut devices as u64,
        &raw mut count as u64,
    ]);
    // SAFETY: the places are four handles and an int.
    unsafe { libraries::call(address, arguments) };
    devices.into_iter().filter(|device| *device != 0).collect()
}

/// Makes a call that returns a handle, and has its code in its last argument.
fn create(world: &mut World<'_>, index: usize, kind: Kind, mut call: Call) {
    type Any = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64) -> u64;
    let address = at(world, index);
    let texts: Vec<String> = call.arguments.iter().map(Argument::text).collect();
    world.say(&format!("{}({})", call.name, texts.join(", ")));
    if address == 0 {
        return;
    }
    let mut code = Place::new(4, &[]);
    let mut w = [0; 9];
    let count = call.arguments.len();
    for (word, argument) in w.iter_mut().zip(&mut call.arguments) {
        *word = argument.word();
    }
    if kind != Kind::Svm {
        w[count] = code.address();
    }
    // SAFETY: the table has this function there.
    let function = unsafe { std::mem::transmute::<u64, Any>(address) };
    let made = function(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8]);
    let rc = code.word() as u32 as i32;
    let name = match made {
        0 => String::from("null"),
        made => world.made(kind, made, 0, Vec::new()),
    };
    world.say(&format!(" = {name} {rc}"));
}

fn context(world: &mut World<'_>) {
    let devices = devices(world);
    if devices.is_empty() {
        return;
    }
    let count = 1 + world.rng.below(devices.len());
    let bytes = devices
        .iter()
        .flat_map(|device| device.to_le_bytes())
        .collect();
    let call = Call::of("clCreateContext").number(0).number(count as u64);
    let call = call
        .read(bytes, String::from("devices"))
        .number(0)
        .number(0);
    create(world, 4, Kind::ClContext, call);
}

fn info(world: &mut World<'_>) {
    let devices = devices(world);
    if devices.is_empty() {
        return;
    }
    let device = devices[world.rng.below(devices.len())];
    let name = match world.rng.percent(50) {
        true => world.rng.pick(&[0x101F, 0x1010, 0x101F]),
        false => 0x1000 + world.rng.below(0x70) as u64,
    };
    let room = world.rng.pick(&[256, 8, 8, 4, 0]);
    let shown = match name {
        0x101F | 0x1010 => Shown::Memory("total"),
        // Handles.
        0x1031 => Shown::Pointer,
        _ => Shown::Bytes,
    };
    let call = Call::of("clGetDeviceInfo").thing((device, String::from("device")));
    let call = call.number(name).number(room).write(shown, 256);
    let call = world.or_null(call).write(Shown::Bytes, 8);
    let call = world.or_null(call);
    let address = at(world, 3);
    world.make_at(address, call);
}

fn buffer(world: &mut World<'_>) {
    let Some(context) = world.one(Kind::ClContext) else {
        return;
    };
    let flags = world.rng.bits(&[1, 1, 2, 4]) & 7;
    let size = world.rng.size();
    let call = Call::of("clCreateBuffer").thing((context.value, context.name));
    create(
        world,
        14,
        Kind::ClMemory,
        call.number(flags).number(size).number(0),
    );
}

fn image(world: &mut World<'_>) {
    let Some(context) = world.one(Kind::ClContext) else {
        return;
    };
    let side = |world: &mut World<'_>| world.rng.pick(&[1, 64, 1000, 0, 1 << 16]);
    let (width, height) = (side(world), side(world));
    let format = world
        .rng
        .pick(&[[0x10B5_u32, 0x10D2], [0x10B0, 0x10DE], [0, 0]]);
    let bytes = crate::world::words(&format);
    let call = Call::of("clCreateImage2D").thing((context.value, context.name));
    let call = call.number(1).read(bytes, format!("{format:x?}"));
    let call = call.number(width).number(height).number(0).number(0);
    create(world, 15, Kind::ClMemory, call);
}

fn pipe(world: &mut World<'_>) {
    let Some(context) = world.one(Kind::ClContext) else {
        return;
    };
    let (packet, packets) = (
        world.rng.pick(&[0, 4, 1 << 20]),
        world.rng.pick(&[0, 1, 300]),
    );
    let call = Call::of("clCreatePipe").thing((context.value, context.name));
    let call = call.number(0).number(packet).number(packets).number(0);
    create(world, 124, Kind::ClMemory, call);
}

fn with_properties(world: &mut World<'_>) {
    let Some(context) = world.one(Kind::ClContext) else {
        return;
    };
    let size = world.rng.size();
    let call = Call::of("clCreateBufferWithProperties").thing((context.value, context.name));
    let call = call.number(0).number(1).number(size).number(0);
    create(world, 146, Kind::ClMemory, call);
}

fn release(world: &mut World<'_>) {
    let Some(memory) = world.one(Kind::ClMemory) else {
        return;
    };
    let address = at(world, 18);
    let call = Call::of("clReleaseMemObject").thing((memory.value, memory.name));
    world.make_at(address, call);
    // It may live on, by a reference. It is not used again.
    world.ended(Kind::ClMemory, memory.value);
}

fn retain(world: &mut World<'_>) {
    let Some(memory) = world.one(Kind::ClMemory) else {
        return;
    };
    let address = at(world, 17);
    let call = Call::of("clRetainMemObject").thing((memory.value, memory.name));
    world.make_at(address, call);
}

fn sub_buffer(world: &mut World<'_>) {
    let Some(memory) = world.one(Kind::ClMemory) else {
        return;
    };
    let mut region = 0_u64.to_le_bytes().to_vec();
    region.extend(4096_u64.to_le_bytes());
    let call = Call::of("clCreateSubBuffer").thing((memory.value, memory.name));
    let call = call
        .number(1)
        .number(0x1220)
        .read(region, String::from("4096 bytes"));
    create(world, 82, Kind::ClMemory, call);
}

fn shared(world: &mut World<'_>) {
    let Some(context) = world.one(Kind::ClContext) else {
        return;
    };
    let size = world.rng.size();
    let call = Call::of("clSVMAlloc").thing((context.value, context.name));
    create(world, 126, Kind::Svm, call.number(1).number(size).number(0));
}

fn shared_free(world: &mut World<'_>) {
    let (Some(context), Some(memory)) = (world.one(Kind::ClContext), world.one(Kind::Svm)) else {
        return;
    };
    let address = at(world, 127);
    let mut arguments = [0; 11];
    arguments[..2].copy_from_slice(&[context.value, memory.value]);
    if address != 0 {
        // SAFETY: the context and the memory live.
        unsafe { libraries::call(address, arguments) };
        world.say(&format!("clSVMFree({})", memory.name));
    }
    world.ended(Kind::Svm, memory.value);
}

fn context_release(world: &mut World<'_>) {
    let Some(context) = world.one(Kind::ClContext) else {
        return;
    };
    if !world.all(Kind::Svm).is_empty() {
        return;
    }
    let address = at(world, 7);
    let call = Call::of("clReleaseContext").thing((context.value, context.name));
    world.make_at(address, call);
    world.ended(Kind::ClContext, context.value);
}

/// Frees what OpenCL still holds.
pub fn end(world: &mut World<'_>) {
    while !world.all(Kind::Svm).is_empty() && !world.all(Kind::ClContext).is_empty() {
        shared_free(world);
    }
    while !world.all(Kind::ClMemory).is_empty() {
        release(world);
    }
}
