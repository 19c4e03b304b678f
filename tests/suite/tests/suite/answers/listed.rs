//! The processes that NVML lists inside a slice: the slice's own, with their process ids and their
//! bytes, and never a neighbour's.
//! Touches: workers in a slice, and the monitors that people run.

use gpuslice_suite::place;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::Counted;

/// The memory of a context on an RTX 3090.
const CONTEXT: u64 = 254 << 20;
/// NVML's code for a list that is too short.
const INSUFFICIENT_SIZE: i64 = 7;

/// A worker's list as pairs of process id and bytes, in order.
fn pairs(answer: &[i64]) -> Vec<(u32, u64)> {
    let [0, count, rest @ ..] = answer else {
        panic!("NVML lists nothing: {answer:?}");
    };
    let pairs = rest.chunks_exact(2);
    let pairs = pairs.map(|pair| (u32::try_from(pair[0]).unwrap(), pair[1].cast_unsigned()));
    let mut pairs: Vec<_> = pairs.collect();
    assert_eq!(i64::try_from(pairs.len()), Ok(*count));
    pairs.sort_unstable();
    pairs
}

#[test]
fn a_slice_sees_its_own_processes_and_what_they_hold() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut neighbour = slice.neighbour();
    neighbour.must(&format!("alloc 0 {GIB}"));
    let (mut first, mut second) = (slice.worker(), slice.worker());
    first.must(&format!("alloc 0 {GIB}"));
    second.must(&format!("create 0 {}", 2 * GIB));
    let mut expected = vec![
        (first.pid(), GIB + CONTEXT),
        (second.pid(), 2 * GIB + CONTEXT),
    ];
    expected.sort_unstable();
    for worker in [&mut first, &mut second] {
        assert_eq!(pairs(&worker.ask("listed 8")), expected);
        assert_eq!(worker.ask("listed 0")[..2], [INSUFFICIENT_SIZE, 2]);
        assert_eq!(worker.ask("listed 1")[..2], [INSUFFICIENT_SIZE, 2]);
    }
    // The sum of the processes' memory is the slice's used memory.
    let [_, _, used] = first.nvml();
    assert_eq!(used, expected.iter().map(|pair| pair.1).sum::<u64>());

    second.kill();
    slice.buried(1);
    assert_eq!(
        pairs(&first.ask("listed 8")),
        [(first.pid(), GIB + CONTEXT)]
    );
}

#[test]
fn monitors_in_a_slice_show_its_processes_and_no_neighbour() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let neighbour = slice.neighbour();
    let mut worker = slice.worker();
    worker.must(&format!("alloc 0 {GIB}"));
    let used = (GIB + CONTEXT) >> 20;

    let nvitop = slice.run(place::venv("nvitop")).args(["-1", "--ascii"]);
    let said = nvitop.answer().clean();
    let shows = |pid: u32| said.lines().any(|line| line.contains(&format!(" {pid} ")));
    assert!(shows(worker.pid()) && !shows(neighbour.pid()), "{said}");
    assert!(said.contains(&format!("{used}MiB")), "{said}");

    let gpustat = slice.run(place::venv("gpustat"));
    let run: Run = gpustat.args(["--no-color", "--no-header", "--show-pid"]);
    let said = run.answer().clean();
    let own = format!("/{}({used}M)", worker.pid());
    assert!(said.contains(&own), "{said}");
    assert!(!said.contains(&format!("/{}(", neighbour.pid())), "{said}");
}
