//! Memory that allocators keep. When memory is short, the library makes them release it: PyTorch's
//! allocator alone by a refusal, once at a time and never in a capture, and malloc as well.
//! Touches: a stand-in for PyTorch's allocator under its library's name, in slices of simulated
//! machines.

use gpuslice_suite::compile::compile;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 10 * GIB;

/// The code of a capture that a free has ended.
const STREAM_CAPTURE_INVALIDATED: i32 = 901;
/// The code for a thread that may not end a capture. The capture goes on.
const STREAM_CAPTURE_WRONG_THREAD: i32 = 908;

/// The modes of a capture.
const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

struct Torch {
    slice: Counted,
    worker: Worker,
}

/// The allocator's own counters.
#[derive(Debug, PartialEq, Eq)]
struct Statistics {
    retries: u64,
    failures: u64,
    reserved: u64,
    freed: u64,
}

impl Torch {
    fn on(scenario: &str, keys: &Value) -> Torch {
        Torch::with(scenario, keys, "torch", &[])
    }

    /// Builds the program under this name, with further words for the linker.
    fn with(scenario: &str, keys: &Value, name: &str, more: &[&str]) -> Torch {
        let runtimes = ["-L{sim}", "-l:libcudart.so.13", "-l:libcuda.so.1"];
        let words = [&["-shared", "-fPIC"], &runtimes[..]].concat();
        let allocator = compile("cc", "c/c10_cuda.c", "torch/libc10_cuda.so", &words);
        assert!(allocator.ends_with("torch/libc10_cuda.so"));
        let own = [
            "-pthread",
            "-L{here}",
            "-l:libc10_cuda.so",
            "-Wl,-rpath,{here}",
        ];
        let words = [&own, &runtimes[..], more].concat();
        let program = compile("cc", "c/torch.c", &format!("torch/{name}"), &words);
        let slice = Counted::with(scenario, keys);
        // jemalloc releases memory by itself after a while, unless it is configured not to.
        let run = slice.run(program);
        let run = run.env("MALLOC_CONF", "dirty_decay_ms:-1,muzzy_decay_ms:-1");
        let mut worker = Worker::start(run);
        worker.must("start 0");
        Torch { slice, worker }
    }

    /// A card and a slice that makes allocators release their caches.
    fn asked() -> Torch {
        Torch::on("rtx3090", &json!({"memory": LIMIT, "pressure": "release"}))
    }

    fn statistics(&mut self) -> Statistics {
        let said = self.worker.ask("statistics");
        let [0, retries, failures, reserved, freed] = said[..] else {
            panic!("{said:?}");
        };
        let [retries, failures, reserved, freed] =
            [retries, failures, reserved, freed].map(i64::cast_unsigned);
        Statistics {
            retries,
            failures,
            reserved,
            freed,
        }
    }

    /// Fills the slice to 7 GiB, of which 4 GiB are only cached.
    fn fill(&mut self) {
        for number in 0..7 {
            self.worker.must(&format!("tensor {number} {GIB}"));
        }
        for number in 0..4 {
            self.worker.must(&format!("drop {number}"));
        }
        assert_eq!(self.statistics().retries, 0, "nothing is short yet");
    }
}

/// Together with the held memory this exceeds 80 % of the slice, and no cached block is large
/// enough.
const GROWTH: u64 = 3 * GIB / 2;

#[test]
fn the_cache_comes_back_before_the_slice_is_full() {
    let mut torch = Torch::asked();
    torch.fill();
    torch.worker.must(&format!("tensor 10 {GROWTH}"));
    let after = Statistics {
        retries: 1,
        failures: 0,
        reserved: 3 * GIB + GROWTH,
        freed: 4 * GIB,
    };
    assert_eq!(torch.statistics(), after);
    // Another engine of the slice can allocate the released memory now.
    let mut other = torch.slice.worker();
    other.must(&format!("alloc 0 {}", 4 * GIB));
}

#[test]
fn without_the_key_it_stays_until_there_is_no_more() {
    let mut torch = Torch::on("rtx3090", &json!({"memory": LIMIT}));
    torch.fill();
    torch.worker.must(&format!("tensor 10 {GROWTH}"));
    assert_eq!(torch.statistics().freed, 0);
    torch.worker.must(&format!("tensor 11 {GROWTH}"));
    assert_eq!(
        torch.statistics().freed,
        4 * GIB,
        "the limit itself refuses, and the allocator releases its cache"
    );
}

#[test]
fn a_slice_that_only_counts_refuses_nothing() {
    let keys = json!({"memory": LIMIT, "pressure": "release", "enforce": false});
    let mut torch = Torch::on("rtx3090", &keys);
    torch.fill();
    torch.worker.must(&format!("tensor 10 {GROWTH}"));
    assert_eq!(torch.statistics().retries, 0);
}

#[test]
fn physical_memory_of_expandable_segments_is_asked_for_too() {
    let mut torch = Torch::asked();
    torch.worker.must("expandable 1");
    torch.fill();
    torch.worker.must(&format!("tensor 10 {GROWTH}"));
    assert_eq!(torch.statistics().freed, 4 * GIB);
}

#[test]
fn with_split_blocks_one_refusal_is_one_refusal() {
    let mut torch = Torch::asked();
    torch.worker.must("split 1");
    torch.fill();
    // The allocator has two ways to release its cache. The first frees only as much as it wants,
    // which must be enough.
    torch.worker.must(&format!("tensor 10 {GROWTH}"));
    let said = torch.statistics();
    assert_eq!((said.retries, said.failures, said.freed), (1, 0, 2 * GIB));
}

#[test]
fn never_in_a_capture() {
    for split in [0, 1] {
        let mut torch = Torch::asked();
        torch.worker.must(&format!("split {split}"));
        torch.fill();
        torch.worker.must(&format!("begin {RELAXED}"));
        torch.worker.must(&format!("tensor 10 {GROWTH}"));
        torch.worker.must(&format!("tensor 11 {}", GROWTH / 2));
        torch.worker.must("end");
        assert_eq!(torch.statistics().retries, 0);
        // After the capture, the cache is requested again.
        torch.worker.must(&format!("tensor 12 {}", 200 * MIB));
        assert_eq!(
            torch.statistics().retries,
            0,
            "a cached block is used first"
        );
        torch.worker.must("drop 10");
        torch.worker.must("drop 11");
        torch.worker.must(&format!("tensor 13 {}", GROWTH + MIB));
        assert_eq!(torch.statistics().retries, 1);
    }
}

/// The library took the capture for ended. PyTorch's allocator freed its cache at the next
/// allocation, and that free ended the capture.
#[test]
fn a_capture_that_another_thread_fails_to_end_goes_on() {
    for mode in [GLOBAL, THREAD_LOCAL] {
        let mut torch = Torch::asked();
        torch.fill();
        torch.worker.must(&format!("begin {mode}"));
        let ended = torch.worker.code("end-elsewhere");
        assert_eq!(ended, STREAM_CAPTURE_WRONG_THREAD, "mode {mode}");
        torch.worker.must(&format!("tensor 10 {GROWTH}"));
        assert_eq!(torch.statistics().retries, 0, "mode {mode}");
        torch.worker.must("end");
        torch.worker.must("drop 10");
        torch.worker.must(&format!("tensor 11 {}", GROWTH + MIB));
        assert_eq!(torch.statistics().retries, 1, "mode {mode}");
    }
}

#[test]
fn a_relaxed_capture_is_ended_by_any_thread() {
    let mut torch = Torch::asked();
    torch.fill();
    torch.worker.must(&format!("begin {RELAXED}"));
    torch.worker.must("end-elsewhere");
    torch.worker.must(&format!("tensor 10 {GROWTH}"));
    assert_eq!(torch.statistics().retries, 1);
}

#[test]
fn the_stand_ins_capture_is_ended_by_what_must_not_happen() {
    // Shows that the test above can fail: here the limit itself refuses in a capture, with split
    // blocks.
    let mut torch = Torch::on("rtx3090", &json!({"memory": LIMIT}));
    torch.worker.must("split 1");
    torch.fill();
    torch.worker.must(&format!("begin {RELAXED}"));
    let code = torch.worker.code(&format!("tensor 10 {}", 4 * GIB));
    assert_ne!(code, 0);
    assert_eq!(torch.worker.code("end"), STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn who_calls_for_himself_is_never_refused_for_a_cache() {
    let mut torch = Torch::asked();
    torch.fill();
    for number in 0..5 {
        torch.worker.must(&format!("plain {number} {}", 500 * MIB));
    }
    let said = torch.statistics();
    assert_eq!((said.retries, said.freed), (0, 0));
    let rest = torch.worker.free();
    assert_eq!(
        torch.worker.code(&format!("plain 9 {}", rest + 2 * MIB)),
        OUT_OF_MEMORY
    );
}

#[test]
fn who_has_nothing_to_give_is_asked_less_and_less_often() {
    let mut torch = Torch::asked();
    // None of these tensors is cached.
    for number in 0..160 {
        torch.worker.must(&format!("tensor {number} {}", 60 * MIB));
    }
    let said = torch.statistics();
    assert_eq!((said.failures, said.freed), (0, 0));
    // The cache is requested once at 8 GiB, and again after 1 GiB more. Another 2 GiB do not fit.
    assert_eq!(said.retries, 2);
}

#[test]
fn a_host_without_free_memory_makes_an_empty_slice_release_its_cache() {
    let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
    let keys = json!({
        "devices": [{"uuid": uuid, "memory": 40 * GIB, "integrated": true}],
        "reserve": 8 * GIB,
        "pressure": "release",
    });
    let mut torch = Torch::on("gb10", &keys);
    torch.fill();
    let available = torch.slice.truth().host.unwrap().mem_available;
    torch
        .slice
        .simulator(&["host", &format!("+{}", available - 9 * GIB)]);
    // The host has 1 GiB above its reserve. The allocator wants 1.5 GiB, and its cache has 4 GiB.
    torch.worker.must(&format!("tensor 10 {GROWTH}"));
    let said = torch.statistics();
    assert_eq!((said.retries, said.failures, said.freed), (1, 0, 4 * GIB));
}

#[test]
fn malloc_gives_back_what_it_keeps_when_memory_is_short_and_not_before() {
    let mut torch = Torch::asked();
    torch.worker.must("churn 400");
    let before = torch.worker.ask("kept")[1];
    assert!(before > 390, "malloc keeps it: {before} MiB");
    torch.worker.must(&format!("tensor 0 {}", 7 * GIB));
    assert_eq!(torch.worker.ask("kept")[1], before, "nothing is short yet");
    torch.worker.must(&format!("tensor 1 {GROWTH}"));
    let after = torch.worker.ask("kept")[1];
    assert!(after < 150, "{before} MiB became {after}");
    // The library does not ask malloc again within half a minute.
    torch.worker.must("churn 400");
    torch.worker.must(&format!("tensor 2 {}", 100 * MIB));
    assert!(torch.worker.ask("kept")[1] > 390);
}

#[test]
fn jemalloc_gives_back_what_it_keeps_when_memory_is_short() {
    let keys = json!({"memory": LIMIT, "pressure": "release"});
    let jemalloc = ["-Wl,--no-as-needed", "-l:libjemalloc.so.2"];
    let mut torch = Torch::with("rtx3090", &keys, "jemalloc", &jemalloc);
    torch.worker.must("churn 400");
    let before = torch.worker.ask("kept")[1];
    assert!(before > 390, "jemalloc keeps it: {before} MiB");
    torch.worker.must(&format!("tensor 0 {}", 7 * GIB));
    torch.worker.must(&format!("tensor 1 {GROWTH}"));
    let after = torch.worker.ask("kept")[1];
    assert!(after < 150, "{before} MiB became {after}");
}
