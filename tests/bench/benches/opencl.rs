//! What the library adds to the creation and release of an OpenCL buffer, and to a query:
//! instructions, counted by callgrind, and processor time.
//! Touches: the built shim and a driver that answers at once, in programs of their own; valgrind.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]
#![expect(clippy::print_stdout, reason = "the result of a bench is its output")]

use gpuslice_bench::stub::{Bench, compile};
use gpuslice_bench::target;
use std::process::Command;

/// Callgrind reports the sum of a run. The difference of two runs is that of the calls alone.
const CALLS: u64 = 2000;
/// The calls of a run whose time is taken, and the number of runs.
const TIMED: u64 = 2_000_000;
const RUNS: usize = 9;

/// A program to be run in this way: with no library, with it, with it in a slice.
fn program(bench: &Bench, way: usize, program: &mut Command) {
    program
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LD_LIBRARY_PATH", bench.folder());
    if way > 0 {
        program.env("LD_PRELOAD", target().join("release/libgpuslice.so"));
    }
    if way > 1 {
        program.env("GPUSLICE_CONFIG", bench.slice());
    }
}

/// The instructions of one run.
fn instructions(bench: &Bench, way: usize, pairs: u64, queries: u64) -> u64 {
    let out = bench.start().with_file_name("callgrind.out");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(bench.start().with_file_name("opencl_pair"))
        .args([pairs.to_string(), queries.to_string()]);
    program(bench, way, &mut command);
    let done = command.output().expect("valgrind runs");
    assert!(done.status.success(), "the program ends well: {done:?}");
    let text = std::fs::read_to_string(out).expect("callgrind has written");
    let sum = text.lines().find_map(|line| {
        line.strip_prefix("summary: ")
            .or(line.strip_prefix("totals: "))
    });
    let sum = sum.and_then(|sum| sum.trim().parse().ok());
    sum.expect("callgrind has counted")
}

/// The nanoseconds of a pair and of a query: medians of several runs.
fn times(bench: &Bench) -> [[f64; 2]; 3] {
    let mut all = [const { Vec::new() }; 3];
    for _ in 0..RUNS {
        for (way, times) in all.iter_mut().enumerate() {
            let mut command = Command::new(bench.start().with_file_name("opencl_pair"));
            command.args([TIMED.to_string(), TIMED.to_string()]);
            program(bench, way, &mut command);
            let done = command.output().expect("the program runs");
            let text = String::from_utf8(done.stdout).expect("two numbers");
            let mut words = text.split_whitespace().map(|word| word.parse::<f64>());
            let mut word = || words.next().and_then(Result::ok).expect("two numbers");
            times.push([word(), word()]);
        }
    }
    all.map(|times| {
        [0, 1].map(|which| {
            let mut values: Vec<f64> = times
                .iter()
                .filter_map(|pair| pair.get(which).copied())
                .collect();
            values.sort_by(f64::total_cmp);
            values.get(RUNS / 2).copied().unwrap_or(f64::NAN)
        })
    })
}

fn main() {
    let bench = Bench::begin();
    let soname = "-Wl,-soname,libnvidia-opencl.so.1";
    compile(
        "stub_opencl.c",
        &bench.start().with_file_name("libnvidia-opencl.so.1"),
        &["-shared", "-fPIC", "-Wl,-Bsymbolic", soname],
    );
    compile(
        "opencl_pair.c",
        &bench.start().with_file_name("opencl_pair"),
        &["-ldl"],
    );
    println!("\nOpenCL on a driver that answers at once ({CALLS} calls by callgrind)");
    let times = times(&bench);
    let names = ["no library", "the library, no slice", "in a slice"];
    for (way, (name, [pair_time, query_time])) in names.iter().zip(times).enumerate() {
        let count = |pairs, queries| instructions(&bench, way, pairs, queries);
        let start = count(1, 1);
        let each = |all: u64| all.saturating_sub(start).checked_div(CALLS).unwrap_or(0);
        let pair = each(count(CALLS.saturating_add(1), 1));
        let query = each(count(1, CALLS.saturating_add(1)));
        println!(
            "  {name:<24} buffer {pair:>5} instructions {pair_time:>6.1} ns   query {query:>5} instructions {query_time:>6.1} ns"
        );
    }
    bench.end();
}
