//! What the library adds to an allocation and its free, and to a query, where the driver holds the
//! limit and where the library does: instructions, counted by callgrind.
//! Touches: the built shim and a driver that answers at once, in programs of their own; valgrind.
#![expect(
    clippy::expect_used,
    reason = "a bench that cannot start says why and stops"
)]
#![expect(clippy::print_stdout, reason = "the result of a bench is its output")]

use gpuslice_bench::stub::{Bench, DEVICE, compile};
use gpuslice_bench::target;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Callgrind reports the sum of a run. The difference of two runs is that of the calls alone.
const CALLS: u64 = 2000;

/// The instructions of one run of the program.
fn instructions(bench: &Bench, slice: Option<&Path>, pairs: u64, queries: u64) -> u64 {
    let out = bench.start().with_file_name("callgrind.out");
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(bench.start().with_file_name("pair"))
        .args([pairs.to_string(), queries.to_string()])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LD_LIBRARY_PATH", bench.folder());
    if let Some(slice) = slice {
        command
            .env("LD_PRELOAD", target().join("release/libgpuslice.so"))
            .env("GPUSLICE_CONFIG", slice);
    }
    let done = command.status().expect("valgrind runs");
    assert!(done.success(), "the program ends well: {done}");
    let text = std::fs::read_to_string(out).expect("callgrind has written");
    let sum = text.lines().find_map(|line| {
        line.strip_prefix("summary: ")
            .or(line.strip_prefix("totals: "))
    });
    let sum = sum.and_then(|sum| sum.trim().parse().ok());
    sum.expect("callgrind has counted")
}

/// A slice of the bench's device. `held`: keys that say that the driver holds the limit.
fn slice(bench: &Bench, name: &str, held: bool) -> PathBuf {
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("this process's cgroup");
    let own = own.lines().find_map(|line| line.strip_prefix("0::"));
    let (cgroup, limit) = match held {
        true => (
            format!(r#""driver_cgroup":"{}","#, own.expect("cgroup v2")),
            r#","driver_limit":"dmem""#,
        ),
        false => (String::new(), ""),
    };
    let text = format!(
        r#"{{"version":1,"name":"bench","ledger":"{}",{cgroup}"devices":[{{"uuid":"{DEVICE}","memory":{},"integrated":false{limit}}}]}}"#,
        bench.start().with_file_name("ledger").display(),
        1u64 << 39
    );
    let file = bench.start().with_file_name(name);
    std::fs::write(&file, text).expect("the slice is written");
    file
}

fn main() {
    let bench = Bench::begin();
    compile(
        "pair.c",
        &bench.start().with_file_name("pair"),
        &bench.link(),
    );
    let library = slice(&bench, "library.json", false);
    let driver = slice(&bench, "driver.json", true);
    println!(
        "\ninstructions of a call with a driver that answers at once (callgrind, {CALLS} calls)"
    );
    for (name, slice) in [
        ("no library", None),
        ("the library holds the limit", Some(&library)),
        ("the driver holds the limit", Some(&driver)),
    ] {
        let slice = slice.map(PathBuf::as_path);
        let count = |pairs, queries| instructions(&bench, slice, pairs, queries);
        let start = count(1, 1);
        let each = |all: u64| all.saturating_sub(start).checked_div(CALLS).unwrap_or(0);
        let pair = each(count(CALLS.saturating_add(1), 1));
        let query = each(count(1, CALLS.saturating_add(1)));
        println!("  {name:<30} allocation and free {pair:>5}   query {query:>5}");
    }
    bench.end();
}
