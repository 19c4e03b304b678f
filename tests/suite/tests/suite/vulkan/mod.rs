//! Vulkan on the simulated cards: through Khronos' loader, and by programs that open the driver
//! themselves.

mod heaps;
mod law;
mod layers;
mod layout;
mod memory;
pub(crate) mod others;
mod programs;
mod sharing;

use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use gpuslice_suite::worker::{Counted, Said, Worker};

const MIB: u64 = 1 << 20;
/// `VK_ERROR_OUT_OF_DEVICE_MEMORY`.
const NO_ROOM: i32 = -2;

/// How a program comes to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through libvulkan.so.1.
    Loader,
    /// By the functions that the driver exports for loaders.
    Direct,
}

const WAYS: [Way; 2] = [Way::Loader, Way::Direct];

/// A Vulkan client on the simulated driver.
fn client(run: Run, way: Way) -> Worker {
    let run = by_manifest(run);
    match way {
        Way::Loader => Worker::start(run),
        Way::Direct => Worker::start(run.arg(place::sim().join("libGLX_nvidia.so.0"))),
    }
}

/// The loader finds only the simulated driver.
fn by_manifest(run: Run) -> Run {
    let manifest = place::sim().join("nvidia_icd.json");
    run.env("VK_ICD_FILENAMES", &manifest)
        .env("VK_DRIVER_FILES", manifest)
}

/// A client in the slice, with a device on its first card.
fn opened(slice: &Counted, way: Way) -> Worker {
    let mut client = client(slice.run(env!("CARGO_BIN_EXE_client-vulkan")), way);
    client.must("open 0 0 1");
    client
}

/// Takes memory on the device under this number.
fn take(client: &mut Worker, number: u64, bytes: u64) -> i32 {
    client.code(&format!("take {number} {bytes} 0 0 1 0"))
}

/// One heap, as `VkPhysicalDeviceMemoryProperties2` and VK_EXT_memory_budget report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heap {
    size: u64,
    is_local: bool,
    budget: u64,
    usage: u64,
}

/// The heaps of a card. They keep the rules of VK_EXT_memory_budget.
fn heaps_of(client: &mut Worker, card: u64) -> Vec<Heap> {
    let said = client.ask(&format!("heaps {card}"));
    let [0, values @ ..] = &said[..] else {
        panic!("both functions report the same sizes: {said:?}");
    };
    let number = |at: &i64| at.cast_unsigned();
    let heaps: Vec<Heap> = values
        .chunks_exact(4)
        .map(|it| Heap {
            size: number(&it[0]),
            is_local: it[1] == 1,
            budget: number(&it[2]),
            usage: number(&it[3]),
        })
        .collect();
    assert!(!heaps.is_empty());
    for heap in &heaps {
        let holds = heap.usage <= heap.budget && heap.budget <= heap.size && heap.budget > 0;
        assert!(holds, "{heaps:?}");
    }
    heaps
}

/// What llama.cpp makes of the heaps: the sums of those on the device.
fn seen(client: &mut Worker) -> Said {
    let heaps = heaps_of(client, 0);
    let local = || heaps.iter().filter(|heap| heap.is_local);
    Said {
        total: local().map(|heap| heap.size).sum(),
        free: local().map(|heap| heap.budget - heap.usage).sum(),
    }
}
