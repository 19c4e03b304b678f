//! Random calls of NVML.

use crate::Act;
use crate::arguments::Shown;
use crate::world::{Call, Kind, World};

pub fn acts() -> Vec<(usize, Act)> {
    vec![
        (2, init as Act),
        (1, shutdown),
        (1, count),
        (3, by_index),
        (1, by_uuid),
        (1, mig),
        (4, memory),
        (3, memory_v2),
        (1, windows),
        (2, attributes),
        (3, processes),
        (2, details),
        (3, number),
        (2, text),
        (1, system),
    ]
}

/// The usual start of a program that asks NVML, in most sequences.
pub fn begin(world: &mut World<'_>) {
    if world.rng.percent(60) {
        init(world);
    }
}

fn init(world: &mut World<'_>) {
    let name = world.rng.pick(&[
        "nvmlInit_v2",
        "nvmlInit_v2",
        "nvmlInit",
        "nvmlInitWithFlags",
    ]);
    world.make(Call::of(name).number(0));
    by_index(world);
}

fn shutdown(world: &mut World<'_>) {
    world.make(Call::of("nvmlShutdown"));
}

fn count(world: &mut World<'_>) {
    let name = world
        .rng
        .pick(&["nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"]);
    let call = Call::of(name).write(Shown::Bytes, 4);
    let call = world.or_null(call);
    world.make(call);
}

fn by_index(world: &mut World<'_>) {
    let name = world.rng.pick(&[
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetHandleByIndex",
    ]);
    let device = world.rng.device();
    let call = Call::of(name).number(device).out(Kind::Nvml);
    let call = world.or_null(call);
    world.make(call);
}

fn by_uuid(world: &mut World<'_>) {
    let uuid = world.rng.pick(&[
        "GPU-3090aaaa-1111-4222-8333-444455550000",
        "MIG-a1111111-3333-5444-8555-666677770000",
        "GPU-none",
        "",
    ]);
    let call = Call::of("nvmlDeviceGetHandleByUUID");
    let call = call.read([uuid.as_bytes(), &[0]].concat(), uuid.to_owned());
    world.make(call.out(Kind::Nvml));
}

fn mig(world: &mut World<'_>) {
    let device = world.any(Kind::Nvml);
    let index = world.rng.pick(&[0, 1, 2, 9]);
    let call = Call::of("nvmlDeviceGetMigDeviceHandleByIndex").thing(device);
    world.make(call.number(index).out(Kind::Nvml));
}

const V1: &[(usize, usize, &str)] = &[(0, 8, "total"), (8, 8, "free"), (16, 8, "used")];
const V2: &[(usize, usize, &str)] = &[
    (4, 4, "padding"),
    (8, 8, "total"),
    (16, 8, "reserved"),
    (24, 8, "free"),
    (32, 8, "used"),
];

fn memory(world: &mut World<'_>) {
    let device = world.any(Kind::Nvml);
    let names = [
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetConfComputeProtectedMemoryUsage",
    ];
    let name = world.rng.pick(&names);
    let call = Call::of(name).thing(device).write(Shown::Fields(V1), 24);
    let call = world.or_null(call);
    world.make(call);
}

fn memory_v2(world: &mut World<'_>) {
    let device = world.any(Kind::Nvml);
    let version = world
        .rng
        .pick(&[0x0200_0028_u32, 0x0200_0028, 0x0100_0018, 0, 2]);
    let call = Call::of("nvmlDeviceGetMemoryInfo_v2").thing(device);
    let call = call.write_over(Shown::Fields(V2), 40, &version.to_le_bytes());
    let call = world.or_null(call);
    world.make(call);
}

fn windows(world: &mut World<'_>) {
    let device = world.any(Kind::Nvml);
    let call = Call::of("nvmlDeviceGetBAR1MemoryInfo").thing(device);
    world.make(call.write(Shown::Fields(V1), 24));
}

fn attributes(world: &mut World<'_>) {
    let device = world.any(Kind::Nvml);
    let names = ["nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes"];
    let name = world.rng.pick(&names);
    const MEMORY: Shown = Shown::Fields(&[(32, 8, "total")]);
    let call = Call::of(name).thing(device).write(MEMORY, 40);
    let call = world.or_null(call);
    world.make(call);
}

fn processes(world: &mut World<'_>) {
    let device = world.any(Kind::Nvml);
    let name = world.rng.pick(&[
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    ]);
    let room = world.rng.pick(&[4_u32, 4, 1, 0]);
    // The process's number, padding, and its memory; the first version ends there.
    const FIRST: Shown = Shown::Fields(&[(0, 4, "pid"), (4, 4, "padding"), (8, 8, "held")]);
    let call = Call::of(name).thing(device);
    let call = call.write_over(Shown::Bytes, 4, &room.to_le_bytes());
    let call = world.or_null(call).write(FIRST, 96);
    let call = world.or_null(call);
    world.make(call);
}

fn details(world: &mut World<'_>) {
    let device = world.any(Kind::Nvml);
    let version = world
        .rng
        .pick(&[0x0100_0018_u32, 0x0100_0018, 0, 0x0200_0018]);
    let mode = world.rng.pick(&[0_u32, 0, 1, 7]);
    let room = world.rng.pick(&[4_u32, 4, 1, 0]);
    // The array is a place of its own, which the list points to.
    let array = Box::leak(Box::new([0xa5_u8; 160]));
    let mut list = Vec::new();
    for word in [version, mode, room, 0] {
        list.extend(word.to_le_bytes());
    }
    list.extend((array.as_mut_ptr() as u64).to_le_bytes());
    const LIST: Shown = Shown::Fields(&[(16, 8, "address")]);
    let call = Call::of("nvmlDeviceGetRunningProcessDetailList").thing(device);
    let call = call.write_over(LIST, 24, &list);
    let text = format!("{{{version:#x}, {mode}, {room}}}");
    world.say(&text);
    world.make(call);
    // The process's number, padding and its memory are in the first element.
    array[..16].fill(0);
    let text: String = array[..64]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    world.say(&format!("listed {text}"));
}

fn number(world: &mut World<'_>) {
    let device = world.any(Kind::Nvml);
    let name = world.rng.pick(&[
        "nvmlDeviceGetIndex",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetBrand",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceIsMigDeviceHandle",
        "nvmlDeviceGetMemoryBusWidth",
        "nvmlDeviceGetNumGpuCores",
        "nvmlDeviceGetComputeMode",
        "nvmlDeviceGetPersistenceMode",
    ]);
    let call = Call::of(name).thing(device).write(Shown::Bytes, 4);
    let call = world.or_null(call);
    world.make(call);
}

fn text(world: &mut World<'_>) {
    let device = world.any(Kind::Nvml);
    let name = world.rng.pick(&[
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetSerial",
    ]);
    let room = world.rng.pick(&[96, 96, 4, 0]);
    let call = Call::of(name).thing(device).write(Shown::Text, 96);
    let call = world.or_null(call);
    world.make(call.number(room));
}

fn system(world: &mut World<'_>) {
    let name = world
        .rng
        .pick(&["nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion"]);
    let room = world.rng.pick(&[80, 80, 3]);
    world.make(Call::of(name).write(Shown::Text, 80).number(room));
}
