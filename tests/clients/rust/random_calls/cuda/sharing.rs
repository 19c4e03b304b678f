//! Memory that processes share: IPC handles, and file descriptors of physical memory.

use crate::Act;
use crate::arguments::Place;
use crate::libraries;
use crate::world::{Call, Kind, World};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (1, get as Act),
        (1, open),
        (1, close),
        (2, export),
        (2, import),
    ]
}

fn get(world: &mut World<'_>) {
    let (at, name) = world.any(Kind::Memory);
    let address = world.libraries.find("cuIpcGetMemHandle", &mut world.rng);
    let mut place = Place::new(64, &[]);
    if address == 0 {
        return;
    }
    world.say(&format!("cuIpcGetMemHandle(&[64], {name})"));
    let mut words = [0; 11];
    words[..2].copy_from_slice(&[place.address(), at]);
    // SAFETY: the place has room for a CUipcMemHandle.
    let rc = unsafe { libraries::call(address, words) };
    let is_changed = !place.is_unchanged();
    let name = match rc {
        0 => world.made(Kind::IpcHandle, place.word(), 0, place.inside().to_vec()),
        _ => String::new(),
    };
    world.say(&format!(" = {rc} {name} {is_changed}"));
}

/// CUipcMemHandle, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle([u8; 64]);

fn open(world: &mut World<'_>) {
    type Open = extern "C" fn(*mut u64, Handle, u32) -> i32;
    let handle = world.one(Kind::IpcHandle);
    let mut bytes = [7; 64];
    if let Some(known) = &handle {
        bytes.copy_from_slice(&known.more);
    }
    let name = world
        .rng
        .pick(&["cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle"]);
    let flags = world.rng.bits(&[1, 1, 0]);
    let address = world.libraries.find(name, &mut world.rng);
    if address == 0 {
        return;
    }
    let shown = handle.map_or(String::from("no handle"), |handle| handle.name);
    world.say(&format!("{name}(&Ipc, {shown}, {flags:#x})"));
    // SAFETY: the driver's function of that name.
    let open = unsafe { std::mem::transmute::<u64, Open>(address) };
    let mut at = 0u64;
    let rc = open(&raw mut at, Handle(bytes), flags as u32);
    let made = match rc {
        0 => world.made(Kind::Ipc, at, 0, Vec::new()),
        _ => String::from(if at == 0 { "-" } else { "something, written" }),
    };
    world.say(&format!(" = {rc} {made}"));
}

fn close(world: &mut World<'_>) {
    let (at, name) = world.either(&[Kind::Ipc, Kind::Ipc, Kind::Memory]);
    if world.make(Call::of("cuIpcCloseMemHandle").thing((at, name))) == 0 {
        world.ended(Kind::Ipc, at);
    }
}

fn export(world: &mut World<'_>) {
    let (handle, name) = world.any(Kind::Physical);
    let kind = world.rng.bits(&[1, 1, 1, 2, 0]);
    let flags = world.rng.bits(&[0, 0, 0, 1]);
    let address = world
        .libraries
        .find("cuMemExportToShareableHandle", &mut world.rng);
    if address == 0 {
        return;
    }
    world.say(&format!(
        "cuMemExportToShareableHandle(&fd, {name}, {kind:#x}, {flags:#x})"
    ));
    let mut descriptor = Place::new(8, &[255; 8]);
    let mut words = [0; 11];
    words[..4].copy_from_slice(&[descriptor.address(), handle, kind, flags]);
    // SAFETY: the place has room for a descriptor.
    let rc = unsafe { libraries::call(address, words) };
    // The number itself depends on the descriptors that a process has.
    let text = match rc {
        0 => world.made(Kind::File, descriptor.word() & 0xffff_ffff, 0, Vec::new()),
        _ => format!("{}", descriptor.is_unchanged()),
    };
    world.say(&format!(" = {rc} {text}"));
}

fn import(world: &mut World<'_>) {
    let descriptor = match world.rng.percent(90) {
        true => world.one(Kind::File),
        false => None,
    };
    let (number, name) = match descriptor {
        Some(thing) => (thing.value, thing.name),
        None => (0xffff, String::from("no descriptor")),
    };
    let kind = world.rng.bits(&[1, 1, 1, 2]);
    let call = Call::of("cuMemImportFromShareableHandle").out(Kind::Physical);
    let call = world.or_null(call).thing((number, name)).number(kind);
    if world.make(call) == 0 {
        world.sized(Kind::Physical, 2 << 20);
    }
}

/// The descriptors are this process's own: they are closed at the end.
pub fn close_descriptors(world: &mut World<'_>) {
    for thing in world.all(Kind::File) {
        if let Ok(number) = i32::try_from(thing.value)
            && number > 2
        {
            // SAFETY: a descriptor that the driver has made for us.
            unsafe { libc::close(number) };
        }
    }
}
