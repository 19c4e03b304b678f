//! Random calls of NVIDIA's Vulkan driver, which are reached as the loader reaches them. Vulkan
//! checks no handle, so all of these are valid.

use crate::Act;
use crate::arguments::Shown;
use crate::libraries;
use crate::world::{Call, Kind, World, words};
use std::ffi::{CStr, CString};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (4, instance as Act),
        (3, physical),
        (4, heaps),
        (3, device),
        (10, allocate),
        (6, free),
        (1, destroy),
        (2, export),
        (2, lookup),
    ]
}

fn find(world: &World<'_>, instance: u64, name: &CStr) -> u64 {
    type Get = extern "C" fn(u64, *const libc::c_char) -> u64;
    let address = libraries::lookup(world.libraries.vulkan, c"vk_icdGetInstanceProcAddr");
    if address == 0 {
        return 0;
    }
    // SAFETY: the driver's function of that name.
    let get = unsafe { std::mem::transmute::<u64, Get>(address) };
    get(instance, name.as_ptr())
}

fn make(world: &mut World<'_>, call: Call) -> i32 {
    let instance = world.all(Kind::Instance).first().map_or(0, |it| it.value);
    let Ok(name) = CString::new(call.name) else {
        return -1;
    };
    let address = find(world, instance, &name);
    world.make_at(address, call)
}

fn instance(world: &mut World<'_>) {
    if !world.all(Kind::Instance).is_empty() {
        return;
    }
    // VkInstanceCreateInfo: VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, and nothing else.
    let mut info = words(&[1, 0]);
    info.resize(64, 0);
    let call = Call::of("vkCreateInstance").read(info, String::from("info"));
    make(world, call.number(0).out(Kind::Instance));
    physical(world);
}

fn physical(world: &mut World<'_>) {
    let Some(instance) = world.one(Kind::Instance) else {
        return;
    };
    let name = c"vkEnumeratePhysicalDevices";
    let address = find(world, instance.value, name);
    let (mut count, mut devices) = (4_u32, [0_u64; 4]);
    let mut arguments = [0; 11];
    arguments[..3].copy_from_slice(&[
        instance.value,
        &raw mut count as u64,
        &raw mut devices as u64,
    ]);
    if address == 0 {
        return;
    }
    // SAFETY: the places are an int and four handles.
    let rc = unsafe { libraries::call(address, arguments) };
    world.say(&format!("vkEnumeratePhysicalDevices = {rc} {count}"));
    for device in devices.into_iter().filter(|device| *device != 0) {
        world.made(Kind::PhysicalDevice, device, 0, Vec::new());
    }
}

/// The size and the budget of each heap are numbers of the slice: 16 heaps from byte 264 on.
fn heaps(world: &mut World<'_>) {
    let Some(device) = world.one(Kind::PhysicalDevice) else {
        return;
    };
    const HEAPS: Shown = Shown::Fields(&[(264, 8, "size"), (280, 8, "size"), (296, 8, "size")]);
    let call = Call::of("vkGetPhysicalDeviceMemoryProperties");
    let call = call
        .thing((device.value, device.name))
        .write_over(HEAPS, 520, &[0; 520]);
    // The function returns nothing: its answer is what it has written.
    let call_name = CString::new(call.name).unwrap_or_default();
    let instance = world.all(Kind::Instance).first().map_or(0, |it| it.value);
    let address = find(world, instance, &call_name);
    make_void(world, address, call);
}

/// A call whose function returns nothing.
fn make_void(world: &mut World<'_>, address: u64, mut call: Call) {
    let texts: Vec<String> = call.arguments.iter().map(|it| it.text()).collect();
    world.say(&format!("{}({})", call.name, texts.join(", ")));
    if address == 0 {
        return;
    }
    let mut words = [0; 11];
    for (word, argument) in words.iter_mut().zip(&mut call.arguments) {
        *word = argument.word();
    }
    // SAFETY: the arguments are those of the function.
    unsafe { libraries::call(address, words) };
    world.finish(0, &call);
}

fn device(world: &mut World<'_>) {
    let Some(card) = world.one(Kind::PhysicalDevice) else {
        return;
    };
    // VkDeviceCreateInfo with one queue.
    let priority = Box::leak(Box::new(1.0_f32));
    let mut queue = words(&[2, 0, 0, 0, 0, 0, 1, 0]);
    queue.extend((std::ptr::from_ref(priority) as u64).to_le_bytes());
    let queue = Box::leak(queue.into_boxed_slice());
    let mut info = words(&[3, 0, 0, 0, 0, 1]);
    info.extend((queue.as_ptr() as u64).to_le_bytes());
    info.resize(72, 0);
    let call = Call::of("vkCreateDevice").thing((card.value, card.name));
    let call = call.read(info, String::from("info")).number(0);
    make(world, call.out(Kind::Device));
}

fn allocate(world: &mut World<'_>) {
    let Some(device) = world.one(Kind::Device) else {
        return;
    };
    let size = world.rng.size();
    let kind = world.rng.pick(&[0, 0, 0, 1, 2, 3]);
    // VkMemoryAllocateInfo.
    let mut info = words(&[5, 0, 0, 0]);
    info.extend(size.to_le_bytes());
    info.extend(words(&[kind, 0]));
    let call = Call::of("vkAllocateMemory").thing((device.value, device.name));
    let call = call
        .read(info, format!("{{{size:#x}, type {kind}}}"))
        .number(0);
    if make(world, call.out(Kind::DeviceMemory)) == 0 {
        world.sized(Kind::DeviceMemory, device.value);
    }
}

fn free(world: &mut World<'_>) {
    let Some(memory) = world.one(Kind::DeviceMemory) else {
        return;
    };
    let call = Call::of("vkFreeMemory").number(0);
    let mut call = call.thing((memory.value, memory.name)).number(0);
    call.arguments[0] = crate::arguments::Argument::Named(memory.bytes, String::from("its device"));
    let instance = world.all(Kind::Instance).first().map_or(0, |it| it.value);
    let address = find(world, instance, c"vkFreeMemory");
    make_void(world, address, call);
    world.ended(Kind::DeviceMemory, memory.value);
}

fn destroy(world: &mut World<'_>) {
    let Some(device) = world.one(Kind::Device) else {
        return;
    };
    let instance = world.all(Kind::Instance).first().map_or(0, |it| it.value);
    let address = find(world, instance, c"vkDestroyDevice");
    let call = Call::of("vkDestroyDevice")
        .thing((device.value, device.name))
        .number(0);
    make_void(world, address, call);
    world.ended(Kind::Device, device.value);
    // Its memory has ended with it.
    for memory in world.all(Kind::DeviceMemory) {
        if memory.bytes == device.value {
            world.ended(Kind::DeviceMemory, memory.value);
        }
    }
}

fn export(world: &mut World<'_>) {
    let Some(memory) = world.one(Kind::DeviceMemory) else {
        return;
    };
    let instance = world.all(Kind::Instance).first().map_or(0, |it| it.value);
    let address = find(world, instance, c"vkGetMemoryFdKHR");
    if address == 0 {
        return;
    }
    // VkMemoryGetFdInfoKHR.
    let mut info = words(&[1_000_074_002, 0, 0, 0]);
    info.extend(memory.value.to_le_bytes());
    info.extend(words(&[1, 0]));
    let mut descriptor = -1_i32;
    let mut arguments = [0; 11];
    arguments[..3].copy_from_slice(&[
        memory.bytes,
        info.as_ptr() as u64,
        &raw mut descriptor as u64,
    ]);
    // SAFETY: the structure and the place are those of the function.
    let rc = unsafe { libraries::call(address, arguments) };
    world.say(&format!(
        "vkGetMemoryFdKHR({}) = {rc} {}",
        memory.name,
        descriptor > 2
    ));
    if descriptor > 2 {
        world.made(Kind::File, descriptor as u64, 0, Vec::new());
    }
}

/// Names that the driver knows, and names that it does not know.
fn lookup(world: &mut World<'_>) {
    let instance = world.all(Kind::Instance).first().map_or(0, |it| it.value);
    let name = world.rng.pick(&[
        c"vkGetPhysicalDeviceMemoryProperties2",
        c"vkGetPhysicalDeviceMemoryProperties2KHR",
        c"vkAllocateMemory",
        c"vkGetDeviceProcAddr",
        c"vkGetInstanceProcAddr",
        c"vkNone",
        c"",
        c"vkCreateInstance",
    ]);
    let instance = if world.rng.percent(30) { 0 } else { instance };
    let found = find(world, instance, name) != 0;
    world.say(&format!(
        "look up {name:?}, with an instance: {}: {found}",
        instance != 0
    ));
}

/// Destroys the devices, and with them their memory.
pub fn end(world: &mut World<'_>) {
    while !world.all(Kind::Device).is_empty() {
        destroy(world);
    }
}
