//! Memory that one process exports and another imports: the exporter pays while it holds it.

use super::{MIB, NO_ROOM, Way, opened, take};
use crate::opencl;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, Worker};
use serde_json::json;

const EACH: u64 = 512 * MIB;

fn export(client: &mut Worker, number: u64) -> i64 {
    let said = client.ask(&format!("export {number}"));
    let [0, descriptor] = said[..] else {
        panic!("not exported: {said:?}");
    };
    descriptor
}

#[test]
fn an_import_is_charged_when_its_exporter_has_let_go() {
    for killed in [false, true] {
        let slice = Counted::new("rtx3090", GIB);
        let (mut exporter, mut importer) =
            (opened(&slice, Way::Loader), opened(&slice, Way::Direct));
        assert_eq!(take(&mut exporter, 1, EACH), 0);
        let (pid, descriptor) = (exporter.pid(), export(&mut exporter, 1));
        importer.must(&format!("import 1 {EACH} 0 {pid} {descriptor}"));
        assert_eq!(
            (slice.held(), super::seen(&mut importer).free),
            (EACH, GIB - EACH)
        );
        match killed {
            false => exporter.must("free 1"),
            true => {
                exporter.kill();
                slice.buried(1);
            }
        }
        assert_eq!((slice.held(), slice.counted()), (EACH, EACH));
        assert_eq!(take(&mut importer, 2, EACH), 0);
        assert_eq!(take(&mut importer, 3, MIB), NO_ROOM);
        importer.must("free 1");
        assert_eq!((slice.held(), slice.counted()), (EACH, EACH));
        importer.must("shut 0");
        assert_eq!((slice.held(), slice.counted()), (0, 0));
    }
}

#[test]
fn memory_from_outside_the_slice_is_charged_to_its_vulkan_importer() {
    let (slice, outside) = (
        Counted::new("rtx3090", GIB),
        env!("CARGO_BIN_EXE_client-vulkan"),
    );
    let place = slice
        .machine()
        .place(gpuslice_suite::run::Run::new(outside));
    let mut neighbour = super::client(place, Way::Loader);
    neighbour.must("open 0 0 1");
    let mut importer = opened(&slice, Way::Loader);
    for number in 0..3 {
        assert_eq!(take(&mut neighbour, number, EACH), 0);
        let (pid, descriptor) = (neighbour.pid(), export(&mut neighbour, number));
        let code = importer.code(&format!("import {number} {EACH} 0 {pid} {descriptor}"));
        assert_eq!(code, if number < 2 { 0 } else { NO_ROOM }, "{number}");
    }
    assert_eq!(slice.counted(), GIB);
}

/// Small buffers, as a compositor or a camera shares them. Drivers serve several from one block.
#[test]
fn small_imports_are_charged_by_their_pages() {
    const COUNT: u64 = 60;
    const SMALL: u64 = 256 << 10;
    for by_opencl in [false, true] {
        let slice = Counted::new("rtx3090", GIB);
        let outside = gpuslice_suite::run::Run::new(env!("CARGO_BIN_EXE_client-vulkan"));
        let mut neighbour = super::client(slice.machine().place(outside), Way::Loader);
        neighbour.must("open 0 0 1");
        let (mut importer, device, free) = match by_opencl {
            false => (opened(&slice, Way::Loader), "0 ", "free"),
            true => (opencl::worker(&slice, "icd"), "", "release"),
        };
        for number in 0..COUNT {
            assert_eq!(take(&mut neighbour, number, SMALL), 0);
            let (pid, descriptor) = (neighbour.pid(), export(&mut neighbour, number));
            importer.must(&format!(
                "import {number} {SMALL} {device}{pid} {descriptor}"
            ));
        }
        assert_eq!(slice.counted(), COUNT * SMALL);
        (0..COUNT).for_each(|number| importer.must(&format!("{free} {number}")));
        assert_eq!(slice.counted(), 0);
    }
}

#[test]
fn an_import_that_is_charged_gets_what_cuda_keeps() {
    let slice = Counted::new("rtx3090", 2 * GIB);
    let outside = gpuslice_suite::run::Run::new(env!("CARGO_BIN_EXE_client-vulkan"));
    let mut neighbour = super::client(slice.machine().place(outside), Way::Loader);
    neighbour.must("open 0 0 1");
    assert_eq!(take(&mut neighbour, 0, GIB), 0);
    let (pid, descriptor) = (neighbour.pid(), export(&mut neighbour, 0));
    let mut importer = opened(&slice, Way::Loader);
    importer.must("cuda");
    let context = slice.counted();
    importer.must(&format!("keep {GIB}"));
    importer.must(&format!("import 0 {GIB} 0 {pid} {descriptor}"));
    assert_eq!(slice.counted(), context + GIB);
}

/// As a program does for each plane of a frame, or for each of its devices.
#[test]
fn an_object_that_a_process_imports_twice_is_charged_once() {
    let slice = Counted::new("rtx3090", GIB);
    let mut exporter = opened(&slice, Way::Loader);
    assert_eq!(take(&mut exporter, 1, EACH), 0);
    let (pid, descriptor) = (exporter.pid(), export(&mut exporter, 1));
    let mut importer = opened(&slice, Way::Loader);
    importer.must("open 1 0 1");
    for (number, device) in [(1, 0), (2, 0), (3, 1)] {
        importer.must(&format!(
            "import {number} {EACH} {device} {pid} {descriptor}"
        ));
        assert_eq!((slice.held(), slice.counted()), (EACH, EACH), "{number}");
    }
    exporter.must("free 1");
    for ends in ["free 1", "free 2"] {
        assert_eq!((slice.held(), slice.counted()), (EACH, EACH), "{ends}");
        importer.must(ends);
    }
    assert_eq!((slice.held(), slice.counted()), (EACH, EACH));
    importer.must("shut 1");
    assert_eq!((slice.held(), slice.counted()), (0, 0));
}

#[test]
fn an_object_from_outside_that_is_imported_twice_is_charged_once() {
    for by_opencl in [false, true] {
        let slice = Counted::new("rtx3090", GIB);
        let outside = gpuslice_suite::run::Run::new(env!("CARGO_BIN_EXE_client-vulkan"));
        let mut neighbour = super::client(slice.machine().place(outside), Way::Loader);
        neighbour.must("open 0 0 1");
        assert_eq!(take(&mut neighbour, 1, EACH), 0);
        let (pid, descriptor) = (neighbour.pid(), export(&mut neighbour, 1));
        let (mut importer, device, free) = match by_opencl {
            false => (opened(&slice, Way::Loader), "0 ", "free"),
            true => (opencl::worker(&slice, "icd"), "", "release"),
        };
        // The largest size that an import names is charged.
        for (number, bytes, charged) in [(1, 4096, 4096), (2, EACH, EACH), (3, MIB, EACH)] {
            importer.must(&format!(
                "import {number} {bytes} {device}{pid} {descriptor}"
            ));
            assert_eq!(slice.counted(), charged, "{number}");
        }
        let other = importer.code(&match by_opencl {
            false => format!("take 4 {} 0 0 1 0", EACH + MIB),
            true => format!("buffer 4 {}", EACH + MIB),
        });
        assert_ne!(other, 0, "the rest of the slice is smaller");
        importer.must(&format!("{free} 2"));
        importer.must(&format!("{free} 1"));
        assert_eq!(slice.counted(), EACH);
        importer.must(&format!("{free} 3"));
        assert_eq!(slice.counted(), 0);
    }
}

/// Exports, imports with a smaller size, and frees the original, until the slice is full.
fn imports_too_small(slice: &Counted, mut import: impl FnMut(&mut Worker, u64, i64) -> i32) {
    let mut client = opened(slice, Way::Loader);
    for number in 0..3 {
        let code = take(&mut client, number, EACH);
        if number == 2 {
            assert_eq!(code, NO_ROOM, "two imports fill the slice");
            break;
        }
        assert_eq!(code, 0, "{number}");
        let descriptor = export(&mut client, number);
        assert_eq!(import(&mut client, number, descriptor), 0, "{number}");
        client.must(&format!("free {number}"));
        let expected = (number + 1) * EACH;
        assert_eq!((slice.held(), slice.counted()), (expected, expected));
    }
}

#[test]
fn a_vulkan_import_is_charged_the_exported_size() {
    // The importer names a memory type of the device, or of the host.
    for host in [0, 1] {
        let slice = Counted::new("rtx3090", GIB);
        imports_too_small(&slice, |client, number, descriptor| {
            let (number, pid) = (number + 100, client.pid());
            client.code(&format!("import {number} 4096 0 {pid} {descriptor} {host}"))
        });
    }
}

#[test]
fn an_opencl_import_is_charged_the_exported_size() {
    let slice = Counted::new("rtx3090", GIB);
    let mut importer = opencl::worker(&slice, "icd");
    imports_too_small(&slice, |client, number, descriptor| {
        let pid = client.pid();
        importer.code(&format!("import {number} 4096 {pid} {descriptor}"))
    });
    importer.must("release 0");
    assert_eq!((slice.held(), slice.counted()), (EACH, EACH));
}

/// `CL_MEM_OBJECT_ALLOCATION_FAILURE`.
const OPENCL_NO_ROOM: i32 = -4;

#[test]
fn an_import_of_opencl_is_charged_when_its_exporter_has_let_go() {
    for (from, killed) in [("libOpenCL.so.1", false), ("icd", true)] {
        let slice = Counted::new("rtx3090", GIB);
        let mut exporter = opened(&slice, Way::Loader);
        let mut importer = opencl::worker(&slice, from);
        assert_eq!(take(&mut exporter, 1, EACH), 0);
        let (pid, descriptor) = (exporter.pid(), export(&mut exporter, 1));
        importer.must(&format!("import 0 {EACH} {pid} {descriptor}"));
        assert_eq!(slice.held(), EACH);
        assert_eq!(super::seen(&mut exporter).free, GIB - EACH);
        match killed {
            false => exporter.must("free 1"),
            true => {
                exporter.kill();
                slice.buried(1);
            }
        }
        // The importer pays now.
        assert_eq!(slice.held(), EACH);
        let mut other = opened(&slice, Way::Direct);
        assert_eq!(super::seen(&mut other).free, GIB - EACH);
        importer.must(&format!("buffer 1 {EACH}"));
        assert_eq!(importer.code(&format!("buffer 2 {MIB}")), OPENCL_NO_ROOM);
        importer.must("release 1");
        importer.must("release 0");
        assert_eq!((slice.held(), super::seen(&mut other).free), (0, GIB));
    }
}

#[test]
fn memory_from_outside_the_slice_is_charged_to_its_opencl_importer() {
    let slice = Counted::new("rtx3090", GIB);
    let outside = gpuslice_suite::run::Run::new(env!("CARGO_BIN_EXE_client-vulkan"));
    let mut neighbour = super::client(slice.machine().place(outside), Way::Loader);
    neighbour.must("open 0 0 1");
    let mut importer = opencl::worker(&slice, "icd");
    let mut beside = opened(&slice, Way::Loader);
    for number in 0..3 {
        assert_eq!(take(&mut neighbour, number, EACH), 0);
        let (pid, descriptor) = (neighbour.pid(), export(&mut neighbour, number));
        let code = importer.code(&format!("import {number} {EACH} {pid} {descriptor}"));
        let expected = if number < 2 { 0 } else { OPENCL_NO_ROOM };
        assert_eq!(code, expected, "{number}");
    }
    assert_eq!(super::seen(&mut beside).free, 0);
    // A descriptor that is nobody's memory is the driver's error, and nothing stays charged.
    importer.must("release 0");
    assert_eq!(
        importer.code(&format!("import 0 {EACH} {} 0", importer.pid())),
        -30
    );
    assert_eq!(super::seen(&mut beside).free, EACH);
}

#[test]
fn an_import_for_several_devices_is_charged_where_its_exporter_has_it() {
    let slice = Counted::of_devices("2xrtx3090", &json!({"memory": GIB}), 2);
    let run = slice.run(env!("CARGO_BIN_EXE_client-vulkan"));
    let mut exporter = super::client(run, Way::Loader);
    exporter.must("open 0 1 1");
    exporter.must(&format!("take 1 {EACH} 0 1 1 0"));
    let (pid, descriptor) = (exporter.pid(), export(&mut exporter, 1));
    let mut importer = opencl::worker_of_all(&slice, "icd");
    importer.must(&format!("import-all 0 {EACH} {pid} {descriptor}"));
    let free = |client: &mut Worker| {
        [0, 1].map(|card| {
            let heaps = super::heaps_of(client, card);
            let local = heaps.iter().filter(|heap| heap.is_local);
            local.map(|heap| heap.budget - heap.usage).sum::<u64>()
        })
    };
    assert_eq!(free(&mut exporter), [GIB, GIB - EACH]);
    exporter.must("free 1");
    assert_eq!(free(&mut exporter), [GIB, GIB - EACH]);
    importer.must("release 0");
    assert_eq!(free(&mut exporter), [GIB, GIB]);
}
