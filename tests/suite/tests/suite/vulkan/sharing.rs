//! Memory that one process exports and another imports: the exporter pays while it holds it.

use super::{MIB, NO_ROOM, Way, opened, take};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, Worker};

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
