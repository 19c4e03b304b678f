//! Compares the library's costs with stored numbers: instructions of each kind of call, and
//! instructions, system calls and page faults of a program's start.
//! Touches: the built library and simulator, valgrind, a C compiler, a temporary folder.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    reason = "a test that cannot be set up has failed"
)]

mod setting;

use gpuslice_bench::budgets::{Cost, compare};
use gpuslice_bench::callgrind::Counted;
use gpuslice_bench::start::Start;
use setting::{Setting, Way};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The end of the library's path, as callgrind names it.
const LIBRARY: &str = "libgpuslice.so";
/// The calls of a run. The difference to a run with one call is theirs alone.
const CALLS: u64 = 500;
/// Instructions by which the cost of a call may differ, however small it is. It is an average without
/// its fraction, and what is done once in many calls is not the same in each run.
const ROUNDING: u64 = 2;

/// The stored costs, which are those of one architecture.
fn stored(name: &str) -> PathBuf {
    let file = format!("budgets/{name}-{}.txt", std::env::consts::ARCH);
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// The instructions that the library itself executes for each call of `program`.
fn each_call(name: &str, count: impl Fn(u64) -> Counted, repeated: u64) -> Cost {
    let (once, often) = (count(1), count(CALLS + 1));
    let calls = CALLS * repeated;
    let functions = often.most_expensive(LIBRARY, &once);
    let parts = functions.iter().take(5);
    let parts: Vec<_> = parts
        .map(|(name, cost)| format!("{name}: {}", cost / calls))
        .collect();
    Cost {
        name: name.to_owned(),
        value: (often.of(LIBRARY) - once.of(LIBRARY)) / calls,
        slack: ROUNDING,
        detail: format!("Most is in {}", parts.join(", ")),
    }
}

#[test]
fn no_call_costs_more_instructions_than_stored() {
    let setting = Setting::new();
    let mut costs = Vec::new();
    let kinds = [
        ("cuMemGetInfo", "query"),
        ("nvmlDeviceGetMemoryInfo", "nvml"),
        ("cuMemAlloc and cuMemFree", "alloc"),
        ("cuMemAllocAsync and cuMemFreeAsync", "async"),
        ("cuMemAllocManaged and cuMemFree", "managed"),
        ("cuMemAllocPitch and cuMemFree", "pitch"),
        ("cuMemCreate and cuMemRelease", "create"),
        ("cuArrayCreate and cuArrayDestroy", "array"),
        (
            "cuGetProcAddress of an intercepted function",
            "proc-address",
        ),
        ("dlsym of an intercepted function", "dlsym-hooked"),
        ("dlsym of another function", "dlsym-other"),
        ("open and close of another file", "open"),
        ("mmap and munmap of another file", "map"),
        ("pread of another file", "read"),
    ];
    for (name, kind) in kinds {
        let is_of_files = ["open", "map", "read"].contains(&kind);
        for way in [Way::NoSlice, Way::Slice, Way::DropBehind] {
            if way != Way::DropBehind || is_of_files {
                let count = |calls| setting.calls(way, kind, calls);
                costs.push(each_call(&format!("{name}, {way}"), count, 1));
            }
        }
    }
    for way in [Way::NoSlice, Way::Slice] {
        let driver = setting.file("libGLX_nvidia.so.0");
        let driver = driver.to_str().expect("UTF-8");
        let count = |calls: u64| setting.count(way, "vulkan", &[driver, &calls.to_string()]);
        // The program repeats its calls twelve times.
        costs.push(each_call(
            &format!("vkAllocateMemory and vkFreeMemory, {way}"),
            count,
            12,
        ));
        let count = |calls: u64| setting.count(way, "opencl_pair", &[&calls.to_string(), "1"]);
        costs.push(each_call(
            &format!("clCreateBuffer and clReleaseMemObject, {way}"),
            count,
            1,
        ));
        let count = |calls: u64| setting.count(way, "opencl_pair", &["1", &calls.to_string()]);
        costs.push(each_call(&format!("clGetDeviceInfo, {way}"), count, 1));
    }
    let _others = setting.others(63);
    for (name, kind) in [
        ("cuMemGetInfo", "query"),
        ("cuMemAlloc and cuMemFree", "alloc"),
    ] {
        let name = format!("{name}, in a slice of 64 processes");
        let count = |calls| setting.calls(Way::Slice, kind, calls);
        costs.push(each_call(&name, count, 1));
    }
    compare(
        &stored("calls"),
        "Instructions of libgpuslice.so for one call or pair of calls",
        &costs,
    );
}

#[test]
fn no_start_costs_more_than_stored() {
    let setting = Setting::new();
    let programs = [
        ("/bin/true", PathBuf::from("/bin/true")),
        ("a first allocation and query", setting.file("start")),
    ];
    let mut costs = Vec::new();
    for (name, program) in programs {
        let start = |way: Way| {
            let starts = (0..7).map(|_| {
                let mut command = Command::new(&program);
                setting.prepare(way, &mut command);
                Start::count(command)
            });
            let starts: Vec<_> = starts.collect();
            let least = |of: fn(&Start) -> u64| starts.iter().map(of).min().unwrap_or(0);
            [
                least(|start| start.system_calls),
                least(|start| start.page_faults),
            ]
        };
        let [bare_calls, bare_faults] = start(Way::Bare);
        for way in [Way::NoSlice, Way::Slice] {
            let counted = Counted::run(&program, &[], |command| setting.prepare(way, command));
            let functions = counted.most_expensive(LIBRARY, &Counted::default());
            let parts = functions.iter().take(5);
            let parts: Vec<_> = parts
                .map(|(name, cost)| format!("{name}: {cost}"))
                .collect();
            let [calls, faults] = start(way);
            let cost = |what: &str, value: u64, detail: String| Cost {
                name: format!("{name}, {way}: {what}"),
                value,
                // How many pages of a file one fault maps depends on the page cache.
                slack: if what == "page faults" { 10 } else { 0 },
                detail,
            };
            let detail = format!("Most is in {}", parts.join(", "));
            costs.push(cost("instructions", counted.of(LIBRARY), detail));
            costs.push(cost("system calls", calls - bare_calls, String::new()));
            costs.push(cost("page faults", faults - bare_faults, String::new()));
        }
    }
    compare(
        &stored("starts"),
        "What libgpuslice.so adds to the start of a program",
        &costs,
    );
}
