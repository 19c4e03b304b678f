//! Contexts whose memory cannot be measured with NVML.

use gpuslice_suite::compile;
use gpuslice_suite::place;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// A worker of a slice that finds libcuda, but no libnvidia-ml: a container whose driver
/// capabilities are `compute` alone.
fn without_nvml(slice: &Counted) -> Worker {
    let folder = slice.machine().folder().join("compute");
    let driver = folder.join("libcuda.so.1");
    if !driver.exists() {
        std::fs::create_dir_all(&folder).expect("a folder");
        std::os::unix::fs::symlink(place::sim().join("libcuda.so.1"), driver).expect("a link");
    }
    let run = slice.run(compile::without_nvml());
    Worker::start(run.env("LD_LIBRARY_PATH", folder))
}

#[test]
fn a_context_is_counted_where_there_is_no_nvml() {
    for (scenario, context) in [("rtx3090", 254), ("h200", 520), ("gb10", 256)] {
        let slice = Counted::new(scenario, 1200 * MIB);
        let mut workers: Vec<Worker> = (0..3).map(|_| without_nvml(&slice)).collect();
        let room = 1200 / context;
        for (number, worker) in (1..).zip(&mut workers) {
            let expected = if number <= room { 0 } else { OUT_OF_MEMORY };
            assert_eq!(worker.code("start 0"), expected, "{scenario}, {number}");
        }
        let held = room.min(3) * context * MIB;
        assert!(
            slice.counted().abs_diff(held) <= 4 * MIB,
            "{scenario}: {}",
            slice.counted()
        );
        assert!(slice.held() <= 1200 * MIB, "{scenario}: {}", slice.held());
    }
}

#[test]
fn a_context_beside_a_neighbour_is_counted_where_there_is_no_nvml() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut neighbour = slice.neighbour();
    neighbour.must(&format!("alloc 0 {}", 4 * GIB));
    let mut worker = without_nvml(&slice);
    worker.must("start 0");
    assert_eq!(slice.counted(), 256 * MIB, "the usual size");
    drop(neighbour);
}

#[test]
fn another_process_with_our_pid_in_nvml_is_not_taken_for_us() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let run = slice.run(compile::worker());
    let mut worker = Worker::start(run.env("GPUSLICE_SIM_FAULTS", "other-pid"));
    worker.must("start 0");
    assert_eq!(slice.counted(), 254 * MIB);
}

#[test]
fn threads_that_retain_one_primary_context_need_room_for_one() {
    let slice = Counted::new("rtx3090", 380 * MIB);
    // The size of a context is known from here on.
    slice.worker().kill();
    slice.buried(0);
    for _ in 0..20 {
        let run = slice.run(compile::worker());
        let slow = "slow:cuDevicePrimaryCtxRetain=20ms";
        let mut worker = Worker::start(run.env("GPUSLICE_SIM_FAULTS", slow));
        for thread in 1..5 {
            worker.send(thread, "!start 0");
        }
        for _ in 1..5 {
            let words = worker.hear().expect("it lives");
            assert_eq!(words[2], "0", "{words:?}");
        }
        assert_eq!(slice.counted(), 254 * MIB);
        assert_eq!(slice.refusals().count, 0);
        for _ in 1..5 {
            worker.must("!release-primary");
        }
        assert_eq!(slice.counted(), 0);
        worker.kill();
        slice.buried(0);
    }
}

/// The number of the worker's threads that are inside a slow driver call, which sleeps.
fn in_the_driver(worker: &Worker) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", worker.pid())).expect("it lives");
    let sleep = libc::SYS_clock_nanosleep.to_string();
    let sleeps = |task: &std::fs::DirEntry| {
        let call = std::fs::read_to_string(task.path().join("syscall"));
        call.is_ok_and(|call| call.split(' ').next() == Some(&sleep))
    };
    tasks.flatten().filter(sleeps).count()
}

#[test]
fn a_thread_that_stays_in_the_driver_delays_others_for_seconds() {
    let slice = Counted::new("rtx3090", GIB);
    slice.worker().kill();
    slice.buried(0);
    let run = slice.run(compile::worker());
    let slow = "slow:cuDevicePrimaryCtxRetain=600000ms";
    let mut worker = Worker::start(run.env("GPUSLICE_SIM_FAULTS", slow));
    let start = Instant::now();
    worker.send(1, "!start 0");
    worker.send(2, "!start 0");
    while in_the_driver(&worker) < 2 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "one thread waits for the other"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn memory_that_is_older_than_the_first_context_is_not_taken_for_the_context() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut worker = Worker::start(slice.run(compile::worker()));
    worker.must("init");
    worker.must(&format!("create-at 0 {} 1 0", 44 * MIB));
    worker.must("start 0");
    assert_eq!(slice.counted(), (254 + 44) * MIB);
    // The measured size serves the next process.
    let _next = slice.worker();
    assert_eq!(slice.counted(), (254 + 44 + 254) * MIB);
}

/// Makes more green contexts than contexts have numbers, then prints what is free before, with and after
/// memory in a context.
const GREEN: &str = r#"
import ctypes as c
cuda = c.CDLL("libcuda.so.1")
primary, green, context = c.c_void_p(), c.c_void_p(), c.c_void_p()
address, free, total = c.c_uint64(), c.c_size_t(), c.c_size_t()
def must(code):
    assert code == 0, code
def left():
    must(cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)))
    return free.value >> 20
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(c.byref(primary), 0))
for _ in range(70):
    must(cuda.cuGreenCtxCreate(c.byref(green), c.c_void_p(1), 0, 1))
    must(cuda.cuCtxFromGreenCtx(c.byref(context), green))
    must(cuda.cuCtxSetCurrent(context))
    must(cuda.cuMemAlloc_v2(c.byref(address), c.c_size_t(16 << 20)))
    must(cuda.cuMemFree_v2(address))
    must(cuda.cuGreenCtxDestroy(green))
must(cuda.cuCtxSetCurrent(primary))
before = left()
must(cuda.cuCtxCreate_v2(c.byref(context), 0, 0))
alone = left()
must(cuda.cuMemAlloc_v2(c.byref(address), c.c_size_t(100 << 20)))
used = left()
must(cuda.cuCtxDestroy_v2(context))
must(cuda.cuCtxSetCurrent(primary))
print(alone - used, before - left())
must(cuda.cuGreenCtxCreate(c.byref(green), c.c_void_p(1), 0, 1))
must(cuda.cuCtxFromGreenCtx(c.byref(context), green))
must(cuda.cuCtxSetCurrent(context))
must(cuda.cuMemAlloc_v2(c.byref(address), c.c_size_t(64 << 20)))
must(cuda.cuCtxSetCurrent(primary))
print(before - left())
must(cuda.cuDevicePrimaryCtxReset_v2(0))
must(cuda.cuDevicePrimaryCtxRetain(c.byref(primary), 0))
must(cuda.cuCtxSetCurrent(primary))
print(before - left())
"#;

#[test]
fn many_green_contexts_do_not_keep_the_memory_of_other_contexts() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let answer = slice.run("python3").args(["-c", GREEN]).answer();
    assert_eq!(answer.clean(), "100 0\n64\n0\n");
}
