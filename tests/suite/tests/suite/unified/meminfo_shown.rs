//! The host's memory as programs in a slice of unified memory see it. Every way to read it shows
//! the slice, except where the slice must not show.
//! Touches: programs that read `/proc/meminfo`, `sysinfo` and `sysconf`, on simulated machines.

use gpuslice_suite::compile::{self, compile};
use gpuslice_suite::place;
use gpuslice_suite::run::{Answer, Run};
use gpuslice_suite::slice::{GIB, write};
use gpuslice_suite::worker::{Counted, Worker};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::PathBuf;

const LIMIT: u64 = 40 * GIB;
const CONTEXT: u64 = 256 << 20;
/// The slice's total and free memory, in kB, while a worker in it holds a gibibyte.
const TOTAL: u64 = LIMIT >> 10;
const FREE: u64 = (LIMIT - GIB - CONTEXT) >> 10;

const UUID: &str = "GPU-b10aaaaa-4444-4555-8666-777788880000";

/// A slice of a simulated GB10, and a worker that holds a gibibyte.
fn slice(keys: &Value) -> (Counted, Worker) {
    let mut all = json!({
        "devices": [{"uuid": UUID, "memory": LIMIT, "integrated": true}],
        "reserve": 8 * GIB,
    });
    for (key, value) in keys.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    let slice = Counted::with("gb10", &all);
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {GIB}"));
    (slice, worker)
}

fn routes() -> PathBuf {
    let words = ["-Wno-unused-result", "-ldl"];
    compile("cc", "c/meminfo_routes.c", "meminfo_routes", &words)
}

/// The first three lines of meminfo, as the kernel writes them.
fn lines(total: u64, free: u64) -> String {
    format!(
        "MemTotal:       {total:>8} kB\nMemFree:        {free:>8} kB\nMemAvailable:   {free:>8} kB\n"
    )
}

/// Splits a program's output into the lines about memory and all other lines.
fn parted(answer: Answer) -> (Vec<String>, Vec<String>) {
    let said = answer.clean();
    let all = said.lines().map(str::to_owned);
    all.partition(|line| line.contains(" total="))
}

/// The program's lines about opening and closing files, which are the same without the library.
const MANNERS: [&str; 10] = [
    "another file of that name: not the host's",
    "the lowest number 1, close on exec 1 and 0",
    "the same again 1",
    "the same file 1 1 1 1 1 1",
    "another 1, none 1",
    "errno 77",
    "written -1, and that is an error 1",
    "what is not there -1 1",
    "a file that is made 641",
    "one without a name 1",
];

#[test]
fn every_way_to_the_hosts_memory_leads_to_the_slices() {
    let (slice, _worker) = slice(&json!({}));
    let other = slice.machine().folder().join("meminfo");
    write(&other, b"not the host's\n");
    let (told, manners) = parted(slice.run(routes()).arg(&other).answer());
    assert_eq!(told.len(), 22, "{told:#?}");
    for line in &told {
        let own = line.contains(&format!("total={TOTAL} free={FREE}"));
        assert!(own, "{line}");
        let reads_meminfo = line.contains("available=");
        let whole = line.ends_with(&format!("available={FREE} swap=0 huge=0"));
        assert!(whole || !reads_meminfo, "{line}");
    }
    assert!(told.iter().any(|line| line.ends_with("swap=0 unit=1")));
    assert_eq!(manners, MANNERS);
}

/// Asserts that every route shows this machine's own total.
fn is_left_alone(run: Run, why: &str) {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("meminfo");
    write(&other, b"not the host's\n");
    let (told, manners) = parted(run.arg(&other).answer());
    assert_eq!(told.len(), 22, "{why}");
    let real = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = real
        .lines()
        .next()
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap();
    for line in told {
        assert!(line.contains(&format!(" total={total} ")), "{why}: {line}");
    }
    assert_eq!(manners, MANNERS, "{why}");
}

#[test]
fn the_hosts_own_stays_wherever_the_slice_must_not_show() {
    let (discrete, _worker) = slice(&json!({"present_as": "discrete"}));
    is_left_alone(discrete.run(routes()), "presented as a discrete card");
    let card = Counted::new("rtx3090", 8 * GIB);
    is_left_alone(card.run(routes()), "a card with memory of its own");
    let empty = Counted::with("gb10", &json!({}));
    is_left_alone(empty.run(routes()), "no slice");
    is_left_alone(Run::new(routes()).with_shim(), "nothing said at all");
    let (missing, _worker) = slice(&json!({"meminfo": "/nonexistent"}));
    is_left_alone(missing.run(routes()), "the host's meminfo cannot be read");
}

#[test]
fn meminfo_shows_the_slice_once_the_driver_has_named_the_device_kind() {
    let slice = Counted::with("gb10", &json!({"memory": LIMIT, "reserve": 8 * GIB}));
    is_left_alone(slice.run(routes()), "nobody has asked the driver");
    let mut worker = slice.worker();
    worker.free();
    let said = worker.ask("meminfo").into_iter().map(i64::cast_unsigned);
    assert_eq!(
        said.collect::<Vec<_>>(),
        [0, TOTAL, (LIMIT - CONTEXT) >> 10]
    );
}

#[test]
fn the_text_is_the_kernels_own_in_form_and_order_and_short() {
    let (slice, _worker) = slice(&json!({}));
    let shown = slice.run("cat").arg("/proc/meminfo").answer().clean();
    assert!(shown.len() < 2048, "{} bytes", shown.len());
    assert!(shown.starts_with(&lines(TOTAL, FREE)), "{shown}");
    let name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    let real = std::fs::read_to_string("/proc/meminfo").unwrap();
    let real: Vec<String> = real.lines().map(name).collect();
    let ours: Vec<String> = shown.lines().map(name).collect();
    let common = |one: &[String], other: &[String]| {
        let other: HashSet<&String> = other.iter().collect();
        one.iter()
            .filter(|name| other.contains(name))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(common(&ours, &real), common(&real, &ours));
    assert!(common(&ours, &real).len() > 35, "{ours:?}");
}

#[test]
fn what_copies_files_copies_the_slices() {
    let (slice, _worker) = slice(&json!({}));
    let copy = slice.machine().folder().join("copy");
    let python = "import shutil, sys; shutil.copy('/proc/meminfo', sys.argv[1])";
    for how in [
        &["cp"][..],
        &["cp", "--preserve=all", "--recursive"],
        &["install"],
    ] {
        let run = slice.run(how[0]).args(&how[1..]).arg("/proc/meminfo");
        assert_eq!(run.arg(&copy).answer().clean(), "", "{how:?}");
        let copied = std::fs::read_to_string(&copy).unwrap();
        assert!(copied.starts_with(&lines(TOTAL, FREE)), "{how:?}: {copied}");
        std::fs::remove_file(&copy).unwrap();
    }
    let run = slice.run("python3").args(["-c", python]);
    assert_eq!(run.arg(&copy).answer().clean(), "");
    let copied = std::fs::read_to_string(&copy).unwrap();
    assert!(copied.starts_with(&lines(TOTAL, FREE)), "{copied}");
}

#[test]
fn who_may_write_no_files_is_not_ended_by_the_slices() {
    let (slice, _worker) = slice(&json!({}));
    for blocks in [0, 1] {
        let line = format!("ulimit -f {blocks}; head -c 9 /proc/meminfo");
        let said = slice.run("sh").args(["-c", &line]).answer().clean();
        assert_eq!(said, "MemTotal:");
    }
    let line = "ulimit -f 8; head -3 /proc/meminfo";
    let said = slice.run("sh").args(["-c", line]).answer().clean();
    assert_eq!(said, lines(TOTAL, FREE));
}

#[test]
fn the_programs_that_people_use_see_the_slice() {
    let (slice, _worker) = slice(&json!({}));
    let shell = |line: &str| slice.run("sh").args(["-c", line]).answer().clean();
    let three = lines(TOTAL, FREE);
    assert_eq!(shell("head -3 /proc/meminfo"), three);
    assert_eq!(shell("cd /proc/self && cat ../meminfo | head -3"), three);
    assert_eq!(shell("grep -E '^Mem' /proc/meminfo"), three);
    let read =
        "while read -r line; do case $line in Mem*) echo \"$line\";; esac; done </proc/meminfo";
    assert_eq!(shell(read), three, "a shell reads by itself");
    let free = shell("free -k");
    let words: Vec<&str> = free.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        (words[1], words[3]),
        (&*TOTAL.to_string(), &*FREE.to_string()),
        "{free}"
    );
    assert_eq!(shell("getconf _PHYS_PAGES"), format!("{}\n", TOTAL / 4));

    let rust = slice
        .run(env!("CARGO_BIN_EXE_client-meminfo"))
        .answer()
        .clean();
    assert_eq!(rust, three);
    let stream = compile("c++", "c/meminfo_stream.cpp", "meminfo_stream", &[]);
    assert_eq!(slice.run(stream).answer().clean(), three);

    let python = "import psutil, os\n\
        seen, swap = psutil.virtual_memory(), psutil.swap_memory()\n\
        print(seen.total, seen.available, seen.free, swap.total, os.sysconf('SC_PHYS_PAGES'))";
    let psutil = slice
        .run(place::venv("python"))
        .args(["-c", python])
        .answer()
        .clean();
    let (total, free) = (TOTAL << 10, FREE << 10);
    assert_eq!(psutil, format!("{total} {free} {free} 0 {}\n", TOTAL / 4));
    let nvitop = slice
        .run(place::venv("nvitop"))
        .args(["-1", "--ascii"])
        .answer()
        .clean();
    // 1280 MiB of 40 GiB, by NVML and by psutil.
    assert!(nvitop.contains("1280MiB / 40.00GiB"), "{nvitop}");
    assert!(nvitop.contains("USED: 1.25GiB"), "{nvitop}");
}

#[test]
#[ignore = "make readers: installs node and Java"]
fn node_and_java_see_the_slice() {
    let (slice, _worker) = slice(&json!({}));
    let node = compile::find("node").expect("tests/setup.sh readers installs it");
    let script = "const os = require('os'), fs = require('fs');\
        console.log(os.totalmem(), os.freemem());\
        console.log(fs.readFileSync('/proc/meminfo', 'utf8').split('\\n')[0]);";
    let said = slice.run(node).args(["-e", script]).answer().clean();
    let first = lines(TOTAL, FREE).lines().next().unwrap().to_owned();
    assert_eq!(said, format!("{} {}\n{first}\n", TOTAL << 10, FREE << 10));
    let java = compile::find("java").expect("tests/setup.sh readers installs it");
    let heap = |run: Run| -> u64 {
        let flags = [
            "-XX:+UseContainerSupport",
            "-XX:MaxRAMPercentage=50",
            "-XX:+PrintFlagsFinal",
        ];
        let said = run.args(flags).arg("-version").answer().stdout;
        let line = said
            .lines()
            .find(|line| line.contains(" MaxHeapSize "))
            .unwrap();
        line.split_whitespace().nth(3).unwrap().parse().unwrap()
    };
    // Java takes half of the memory that it sees, up to the 32 GiB of compressed pointers.
    let within = heap(slice.run(&java));
    assert!(within.abs_diff(LIMIT / 2) < 64 << 20, "{within}");
    assert_ne!(
        heap(Run::new(&java)),
        within,
        "the heap is the same without the slice, so the test proves nothing"
    );
}
