//! Memory that one process exports and another imports. It is charged to the exporter while the
//! exporter holds it, and then to a process that has imported it, once for each object.

use gpuslice_suite::compile;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};

const MIB: u64 = 1 << 20;
const EACH: u64 = 512 * MIB;
const LIMIT: u64 = 3 * GIB;
/// A discrete device, and one that shares the host's memory.
const MACHINES: [&str; 2] = ["rtx3090", "gb10"];

/// How memory goes from one process to another.
#[derive(Clone, Copy)]
enum Way {
    /// `cuMemCreate`, and a descriptor.
    Descriptor,
    /// `cuMemAlloc`, and an IPC handle.
    Ipc,
}

/// An exported allocation, by the name that another worker imports it by.
struct Exported(String);

/// Allocates under this number, and exports it.
fn export(worker: &mut Worker, way: Way, number: usize) -> Exported {
    match way {
        Way::Descriptor => {
            worker.must(&format!("create {number} {EACH}"));
            let said = worker.ask(&format!("export-descriptor {} {number}", number + 1000));
            let [0, descriptor] = said[..] else {
                panic!("not exported: {said:?}");
            };
            Exported(format!(
                "import-descriptor {{}} {} {descriptor}",
                worker.pid()
            ))
        }
        Way::Ipc => {
            worker.must(&format!("alloc {number} {EACH}"));
            let said = worker.words(&format!("export {number}"));
            Exported(format!("import {{}} {}", said[3]))
        }
    }
}

/// Imports it under this number.
fn import(worker: &mut Worker, exported: &Exported, number: usize) -> i32 {
    worker.code(&exported.0.replace("{}", &number.to_string()))
}

/// The slice holds what it is said to hold, and no more than it may.
fn agrees(slice: &Counted, worker: &mut Worker) {
    let (held, counted) = (slice.held(), slice.counted());
    assert!(
        held.abs_diff(counted) <= 4 * MIB,
        "{held} held, {counted} counted"
    );
    assert!(held <= LIMIT + 4 * MIB, "{held} of {LIMIT}");
    let free = worker.free();
    assert!(
        free.abs_diff(LIMIT - counted) <= 4 * MIB,
        "{free} free, {counted} counted"
    );
}

/// How many of twelve objects an importer gets whose exporters do not stay.
fn handed_over(scenario: &str, way: Way, stays: bool) -> usize {
    let slice = Counted::new(scenario, LIMIT);
    let mut importer = slice.worker();
    let mut exporter = slice.worker();
    for number in 0..12 {
        if exporter.code(&format!("alloc 99 {EACH}")) == OUT_OF_MEMORY {
            agrees(&slice, &mut importer);
            return number;
        }
        exporter.must("free 99");
        let exported = export(&mut exporter, way, number);
        assert_eq!(import(&mut importer, &exported, number), 0);
        agrees(&slice, &mut importer);
        if stays {
            exporter.must(&format!("free {}", number + 1000));
            exporter.must(&format!("free {number}"));
        } else {
            exporter.kill();
            agrees(&slice, &mut importer);
            exporter = slice.worker();
        }
        agrees(&slice, &mut importer);
    }
    12
}

#[test]
fn an_importer_pays_for_memory_whose_exporter_has_ended() {
    for scenario in MACHINES {
        assert_eq!(
            handed_over(scenario, Way::Descriptor, false),
            5,
            "{scenario}"
        );
    }
}

#[test]
fn an_importer_pays_for_memory_that_its_exporter_has_released() {
    for scenario in MACHINES {
        assert_eq!(
            handed_over(scenario, Way::Descriptor, true),
            5,
            "{scenario}"
        );
    }
}

#[test]
fn an_importer_pays_for_ipc_memory_whose_exporter_has_ended() {
    for scenario in MACHINES {
        assert_eq!(handed_over(scenario, Way::Ipc, false), 5, "{scenario}");
    }
}

#[test]
fn many_importers_of_one_object_pay_once() {
    for (scenario, way) in MACHINES
        .into_iter()
        .flat_map(|it| [(it, Way::Descriptor), (it, Way::Ipc)])
    {
        let slice = Counted::new(scenario, LIMIT);
        let mut exporter = slice.worker();
        let mut importers: Vec<Worker> = (0..3).map(|_| slice.worker()).collect();
        for number in 0..3 {
            let exported = export(&mut exporter, way, number);
            for importer in &mut importers {
                assert_eq!(import(importer, &exported, number), 0, "{scenario}");
                agrees(&slice, importer);
            }
        }
        exporter.kill();
        slice.buried(3);
        for importer in &mut importers {
            agrees(&slice, importer);
        }
        // One is killed, one lets go, one is left and pays, until it lets go too.
        importers.remove(0).kill();
        slice.buried(2);
        agrees(&slice, &mut importers[1]);
        for number in 0..3 {
            importers[0].must(&format!("free {number}"));
            agrees(&slice, &mut importers[1]);
        }
        let before = slice.counted();
        for number in 0..3 {
            importers[1].must(&format!("free {number}"));
        }
        assert_eq!(before - slice.counted(), 3 * EACH, "{scenario}");
        agrees(&slice, &mut importers[1]);
    }
}

#[test]
fn memory_from_outside_the_slice_is_charged_to_its_importer() {
    for way in [Way::Descriptor, Way::Ipc] {
        let slice = Counted::new("rtx3090", GIB);
        let mut neighbour = slice.neighbour();
        let mut worker = slice.worker();
        let before = worker.free();
        let exported = export(&mut neighbour, way, 0);
        assert_eq!(import(&mut worker, &exported, 0), 0);
        if let Way::Descriptor = way {
            // How much it is shows when it is mapped.
            worker.must(&format!("map-bytes 9 0 {EACH}"));
        }
        assert_eq!(before - worker.free(), EACH);
        let exported = export(&mut neighbour, way, 1);
        let mut code = import(&mut worker, &exported, 1);
        if let Way::Descriptor = way {
            assert_eq!(code, 0);
            code = worker.code(&format!("map-bytes 10 1 {EACH}"));
        }
        assert_eq!(code, OUT_OF_MEMORY);
        assert_eq!(before - worker.free(), EACH);
        if let Way::Descriptor = way {
            worker.must("free 9");
        }
        worker.must("free 0");
        assert_eq!(worker.free(), before);
    }
}

#[test]
fn what_was_imported_ends_with_the_context_that_it_is_in() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut exporter = slice.worker();
    let mut importer = slice.worker();
    let exported = export(&mut exporter, Way::Ipc, 0);
    assert_eq!(import(&mut importer, &exported, 0), 0);
    assert_eq!(import(&mut importer, &exported, 1), 0, "once more");
    exporter.must("release-primary");
    agrees(&slice, &mut importer);
    importer.must("free 1");
    agrees(&slice, &mut importer);
    importer.must("release-primary");
    assert_eq!((slice.counted(), slice.held()), (0, 0));
}

#[test]
fn imported_memory_that_is_mapped_in_part_stays_charged_in_full() {
    for scenario in MACHINES {
        let slice = Counted::new(scenario, LIMIT);
        let mut exporter = slice.worker();
        let mut importer = slice.worker();
        let exported = export(&mut exporter, Way::Descriptor, 0);
        assert_eq!(import(&mut importer, &exported, 0), 0);
        importer.must(&format!("map-bytes 9 0 {}", 2 * MIB));
        exporter.kill();
        slice.buried(1);
        agrees(&slice, &mut importer);
        importer.must("free 9");
        agrees(&slice, &mut importer);
        let before = slice.counted();
        importer.must("free 0");
        assert_eq!(before - slice.counted(), EACH, "{scenario}");
    }
}

#[test]
fn threads_that_map_one_imported_object_are_charged_once() {
    let slice = Counted::new("rtx3090", LIMIT);
    let mut neighbour = slice.neighbour();
    let run = slice.run(compile::worker());
    let mut importer = Worker::start(run.env("GPUSLICE_SIM_FAULTS", "slow:cuMemMap=200ms"));
    importer.must("start 0");
    let before = importer.free();
    let exported = export(&mut neighbour, Way::Descriptor, 0);
    assert_eq!(import(&mut importer, &exported, 0), 0);
    // Both threads are in the driver while the size is unknown.
    for thread in [1, 2] {
        importer.send(thread, &format!("map-bytes {} 0 {EACH}", 8 + thread));
    }
    for _ in 0..2 {
        assert_eq!(
            importer.hear().map(|words| words[2].clone()).as_deref(),
            Some("0")
        );
    }
    assert_eq!(before - importer.free(), EACH);
    for number in [9, 10, 0] {
        importer.must(&format!("free {number}"));
    }
    assert_eq!(importer.free(), before);
}

#[test]
fn threads_that_export_one_allocation_export_it_once() {
    let slice = Counted::new("rtx3090", LIMIT);
    let run = slice.run(compile::worker());
    let mut exporter =
        Worker::start(run.env("GPUSLICE_SIM_FAULTS", "slow:cuMemGetAddressRange_v2=2ms"));
    exporter.must("start 0");
    let mut importer = slice.worker();
    for _ in 0..100 {
        exporter.must(&format!("alloc 0 {}", 64 * MIB));
        for thread in 1..8 {
            exporter.send(thread, "export 0");
        }
        let handle = exporter.hear().map(|words| words[3].clone());
        assert!(exporter.settle());
        importer.must(&format!("import 0 {}", handle.unwrap_or_default()));
        exporter.must("free 0");
        agrees(&slice, &mut importer);
        importer.must("free 0");
    }
}
