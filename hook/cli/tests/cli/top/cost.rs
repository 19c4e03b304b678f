//! What `gpuslice top` costs: CPU time and memory.

use super::session::{HERE, Session, top};
use crate::support::machine::{Machine, end};
use crate::support::start;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Allocates 16 MiB by CUDA, says so, and waits for the end of its standard input.
const HOLDS: &str = "
import ctypes, sys
cuda = ctypes.CDLL('libcuda.so.1')
assert cuda.cuInit(0) == 0
context = ctypes.c_void_p()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), int(sys.argv[1])) == 0
assert cuda.cuCtxSetCurrent(context) == 0
place = ctypes.c_void_p()
assert cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(16 << 20)) == 0
sys.stdin.read()
";

/// Returns the CPU time of a process and of its children that have ended.
fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<u64> = fields
        .split(' ')
        .map(|one| one.parse().unwrap_or(0))
        .collect();
    let ticks: u64 = fields[11..15].iter().sum();
    Duration::from_millis(ticks * 10)
}

fn memory(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Starts slices with four processes each that hold memory, and measures `top`.
fn measure(slices: usize, period: Duration) -> (Duration, u64, u64) {
    let machine = Machine::new(&HERE, "2xh200");
    let script = "for one in 1 2 3 4; do python3 -c \"$HOLDS\" $GPU <&3 & done 3<&0; wait";
    let children: Vec<Child> = (0..slices)
        .map(|place| {
            let name = format!("--name=slice-{place:02}");
            // Contexts of all processes would fill one card.
            let card = place % 2;
            let script =
                format!("GPU={card}; HOLDS=$(cat <<'END'{HOLDS}END\n); echo started; {script}");
            let mut command = machine.run(&["--memory=3GiB", "--overcommit", &name], &script);
            start(command.stdin(Stdio::piped())).0
        })
        .collect();
    let mut top = Session::start(&mut top(&machine.home, &[]), (120, 200));
    top.shows(&format!("{slices} slices"));
    // Every slice has a row for each of the two cards, one of which is in use.
    top.press("n");
    top.until("all processes hold memory", |screen| {
        let used = |line: &&str| line.contains(" / 3.00 GiB") && !line.contains("0.00 / 3.00 GiB");
        screen.lines().filter(used).count() == slices
    });
    let before = cpu_time(top.pid());
    let start = Instant::now();
    // The screen is read meanwhile, so that top never waits for its terminal.
    top.until("the period is over", |_| start.elapsed() > period);
    let taken = cpu_time(top.pid()) - before;
    let pid = top.pid();
    let memory = (memory(pid, "VmRSS:"), memory(pid, "RssAnon:"));
    top.press("q");
    assert_eq!(top.end(), 0);
    children.into_iter().for_each(end);
    (taken, memory.0, memory.1)
}

#[test]
fn eight_slices_take_little_memory_and_time() {
    let period = Duration::from_secs(12);
    let (taken, _, anonymous) = measure(8, period);
    // A test build on a busy machine is some times slower than the release (see the test below).
    assert!(taken < period / 5, "{taken:?} in {period:?}");
    assert!(anonymous <= 16 << 10, "{anonymous} KiB");
}

#[test]
#[ignore = "measures: cargo test --release -p gpuslice --test cli -- top::cost --ignored --nocapture"]
fn sixty_four_slices_with_256_processes_take_one_percent_of_a_core() {
    let period = Duration::from_secs(60);
    let (taken, resident, anonymous) = measure(64, period);
    println!(
        "top: {taken:?} of CPU time in {period:?}, {resident} KiB resident, {anonymous} KiB of it its own"
    );
    assert!(taken <= period / 100, "{taken:?}");
    assert!(resident <= 16 << 10, "{resident} KiB");
}
