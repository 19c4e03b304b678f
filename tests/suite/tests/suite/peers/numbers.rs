//! Answers that contradict each other, the driver, or arithmetic.
//! Touches: the same as the parent module.

use super::{CARD, CONTEXT, bare, in_a_slice, numbers};
use gpuslice_suite::compile::{dlopened, linked, linked_cuda, linked_nvml};
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, of_machine};
use gpuslice_suite::worker::{Counted, Said};
use serde_json::json;

/// Without a limit, one function reported 0 bytes, and another more free memory than total less
/// used.
#[test]
fn without_a_limit_every_function_says_what_the_driver_says() {
    for program in [linked_cuda(), linked_nvml(), dlopened()] {
        let machine = Machine::new("rtx3090");
        let run = machine.place(Run::new(&program)).with_shim();
        assert_eq!(run.answer(), bare(&program), "{}", program.display());
    }
}

/// The functions without a suffix were not replaced, or were written as if their results had 64
/// bits, which overwrote the memory beside the caller's variable.
#[test]
fn the_functions_of_2008_are_sliced_and_write_32_bits() {
    let program = linked("legacy", "libcuda.so.1");
    let machine = Machine::new("rtx3090");
    let file = of_machine(machine.folder(), 3 * GIB, None, &machine.state());
    let run = machine.place(Run::new(&program)).with_shim().slice(&file);
    let free = 3 * GIB - CONTEXT;
    let expected = format!(
        "cuDeviceTotalMem total={0}\ncuMemGetInfo total={0} free={free}\nbeside untouched\n",
        3 * GIB
    );
    assert_eq!(run.answer().clean(), expected);
    // A size of more than 32 bits is reported as the largest number of 32 bits.
    let most = u32::MAX;
    let said = in_a_slice(&program).clean();
    assert!(
        said.starts_with(&format!("cuDeviceTotalMem total={most}\n")),
        "{said}"
    );
    assert!(said.ends_with("beside untouched\n"), "{said}");
}

/// `nvmlDeviceGetMemoryInfo_v2` reported the card's own reserved memory together with a slice's
/// total.
#[test]
fn total_is_used_plus_free_plus_reserved() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut worker = slice.worker();
    worker.must("alloc 0 1073741824");
    let said = slice.run(linked_nvml()).answer().clean();
    for line in said.lines() {
        let one = |name| numbers(line, name).first().copied().unwrap_or(0);
        let parts = [one("free"), one("used"), one("reserved")];
        assert_eq!(one("total"), 8 * GIB, "{line}");
        assert_eq!(parts.iter().sum::<u64>(), 8 * GIB, "{line}");
        assert_eq!(one("free"), worker.free(), "{line}");
    }
}

/// Memory from pools, and memory allocated by the functions of per-thread streams, was not counted:
/// CUDA and NVML were 4 GiB apart.
#[test]
fn memory_of_pools_and_of_per_thread_streams_is_used_for_cuda_and_nvml() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut worker = slice.worker();
    worker.must("pool 0");
    worker.must(&format!("from 1 0 {}", 2 * GIB));
    worker.must(&format!("ptsz 2 {}", 2 * GIB));
    let held = slice.held();
    assert!(held >= 4 * GIB + CONTEXT);
    let free = 8 * GIB - held;
    assert_eq!(
        worker.info(),
        Said {
            total: 8 * GIB,
            free
        }
    );
    assert_eq!(worker.nvml(), [free, 8 * GIB, held]);
}

/// For unified memory, NVML's "not supported" was passed on although CUDA answered.
#[test]
fn unified_memory_is_reported_where_nvml_does_not_answer() {
    let machine = Machine::new("gb10");
    let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
    let file = of_machine(machine.folder(), 4 * GIB, Some(uuid), &machine.state());
    let run = machine.place(Run::new(linked_nvml()));
    let said = run.with_shim().slice(&file).answer().clean();
    assert_eq!(numbers(&said, "total"), [4 * GIB; 2], "{said}");
}

/// When the use exceeded the limit, CUDA answered "invalid value" and NVML reported 16 EiB of free
/// memory.
#[test]
fn more_used_than_the_limit_is_no_error_and_nothing_is_free() {
    let keys = json!({"memory": 4 * GIB, "enforce": false});
    let slice = Counted::with("rtx3090", &keys);
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {}", 5 * GIB));
    let total = 4 * GIB;
    assert_eq!(worker.info(), Said { total, free: 0 });
    assert_eq!(worker.nvml(), [0, total, total]);
}

/// A build with hidden symbols hooked NVML and not CUDA: one program saw two sizes.
#[test]
fn cuda_and_nvml_say_one_size_in_one_program() {
    let said = in_a_slice(&dlopened()).clean();
    assert_eq!(numbers(&said, "total"), [8 * GIB; 3], "{said}");
    let free = numbers(&said, "free");
    assert_eq!(free, [8 * GIB - CONTEXT; 2], "{said}");
}

/// A second process saw all memory as free.
#[test]
fn a_second_process_sees_what_the_first_holds() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut first = slice.worker();
    first.must(&format!("alloc 0 {}", 2 * GIB));
    let mut second = slice.worker();
    let total = 8 * GIB;
    let free = total - 2 * GIB - 2 * CONTEXT;
    assert_eq!(second.info(), Said { total, free });
    assert_eq!(first.info(), Said { total, free });
}

/// A limit above the card's memory was reported as the card's size.
#[test]
fn a_limit_above_the_card_shows_the_card() {
    let slice = Counted::new("rtx3090", 48 * GIB);
    let mut worker = slice.worker();
    let free = CARD - CONTEXT;
    assert_eq!(worker.info(), Said { total: CARD, free });
}
