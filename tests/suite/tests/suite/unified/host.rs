//! The host of a slice of unified memory: the host memory that the slice's programs hold, page
//! cache, and memory pressure.
//! Touches: workers in a slice of a simulated GB10; files in the place of the kernel's.

use gpuslice_suite::compile::linked;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, write};
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LIMIT: u64 = 40 * GIB;
const RESERVE: u64 = 8 * GIB;
const CONTEXT: u64 = 256 << 20;
const MIB: u64 = 1 << 20;

fn slice(keys: &Value) -> Counted {
    let uuid = "GPU-b10aaaaa-4444-4555-8666-777788880000";
    let mut all = json!({
        "devices": [{"uuid": uuid, "memory": LIMIT, "integrated": true}],
        "reserve": RESERVE,
    });
    for (key, value) in keys.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    Counted::with("gb10", &all)
}

/// Queries until the answer is `expected`. The library reads the use of host memory only every few
/// milliseconds.
fn comes_to(worker: &mut Worker, expected: u64) {
    let start = Instant::now();
    loop {
        let free = worker.free();
        if free == expected {
            assert_eq!(worker.nvml(), [expected, LIMIT, LIMIT - expected]);
            return;
        }
        let took = start.elapsed();
        assert!(
            took < Duration::from_secs(60),
            "{free} instead of {expected}"
        );
    }
}

#[test]
fn sixty_gibibytes_of_page_cache_move_free_by_nothing() {
    let slice = slice(&json!({}));
    let (mut worker, mut neighbour) = (slice.worker(), slice.neighbour());
    let (ours, drivers) = (worker.free(), neighbour.free());
    slice.simulator(&["cache", "+60GiB"]);
    assert_eq!(
        drivers - neighbour.free(),
        60 * GIB,
        "the driver's own free memory falls"
    );
    assert_eq!(worker.free(), ours);
    assert_eq!(ours, LIMIT - CONTEXT);
    let meminfo = worker.ask("meminfo");
    assert_eq!(meminfo[2].cast_unsigned() << 10, ours);
}

/// A memory cgroup, as the kernel shows one.
struct Cgroup(tempfile::TempDir);

impl Cgroup {
    fn new() -> Cgroup {
        Cgroup(tempfile::tempdir().unwrap())
    }

    fn says(&self, current: u64, stat: &str) {
        // The sum is written last, because the library reads it first.
        write(&self.0.path().join("memory.stat"), stat.as_bytes());
        write(
            &self.0.path().join("memory.current"),
            format!("{current}\n").as_bytes(),
        );
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }
}

fn v2(inactive: u64, active: u64, slab: u64) -> String {
    format!(
        "anon 1\nfile {}\ninactive_file {inactive}\nactive_file {active}\nslab_reclaimable {slab}\n",
        inactive + active
    )
}

#[test]
fn host_memory_beyond_the_allowance_is_charged_and_page_cache_is_not() {
    let cgroup = Cgroup::new();
    cgroup.says(3 * GIB, &v2(0, 0, 0));
    let slice = slice(&json!({"cgroup": cgroup.path()}));
    let mut worker = slice.worker();
    comes_to(&mut worker, LIMIT - CONTEXT);
    // The cgroup holds 30 GiB, of which 27 GiB are files. The allowance is 4 GiB.
    cgroup.says(30 * GIB, &v2(20 * GIB, 6 * GIB, GIB));
    comes_to(&mut worker, LIMIT - CONTEXT);
    cgroup.says(36 * GIB, &v2(20 * GIB, 6 * GIB, GIB));
    comes_to(&mut worker, LIMIT - CONTEXT - 5 * GIB);
    // All memory that is shown as free can be allocated, and no more.
    let free = worker.free();
    assert_eq!(
        worker.code(&format!("alloc 0 {}", free + 2 * MIB)),
        OUT_OF_MEMORY
    );
    worker.must(&format!("alloc 0 {free}"));
    comes_to(&mut worker, 0);
    cgroup.says(100 * GIB, &v2(0, 0, 0));
    comes_to(&mut worker, 0);
    worker.must("free 0");
    cgroup.says(GIB, &v2(5 * GIB, 5 * GIB, 5 * GIB));
    comes_to(&mut worker, LIMIT - CONTEXT);
}

#[test]
fn an_allowance_of_zero_charges_everything_and_managed_memory_once() {
    let cgroup = Cgroup::new();
    cgroup.says(GIB, &v2(0, 0, 0));
    let slice = slice(&json!({"cgroup": cgroup.path(), "host_allowance": 0}));
    let mut worker = slice.worker();
    comes_to(&mut worker, LIMIT - CONTEXT - GIB);
    // Managed memory is in the ledger, and the kernel charges it to the cgroup as well.
    worker.must(&format!("managed 0 {}", 4 * GIB));
    cgroup.says(5 * GIB, &v2(0, 0, 0));
    comes_to(&mut worker, LIMIT - CONTEXT - 5 * GIB);
}

#[test]
fn memory_of_a_pool_of_the_host_is_charged_once() {
    let cgroup = Cgroup::new();
    cgroup.says(GIB, &v2(0, 0, 0));
    let slice = slice(&json!({"cgroup": cgroup.path(), "host_allowance": 0}));
    let mut worker = slice.worker();
    worker.must("pool-at 0 1 2 0");
    worker.must(&format!("from 1 0 {}", 4 * GIB));
    // Like pinned memory, it is in the ledger and in the cgroup.
    cgroup.says(5 * GIB, &v2(0, 0, 0));
    comes_to(&mut worker, LIMIT - CONTEXT - 5 * GIB);
}

#[test]
fn an_old_cgroup_is_read_by_its_own_names() {
    let cgroup = Cgroup::new();
    let stat = format!(
        "cache 1\ninactive_file 7\ntotal_inactive_file {}\ntotal_active_file 0\n",
        20 * GIB
    );
    write(&cgroup.0.path().join("memory.stat"), stat.as_bytes());
    let usage = cgroup.0.path().join("memory.usage_in_bytes");
    write(&usage, format!("{}\n", 30 * GIB).as_bytes());
    let slice = slice(&json!({"cgroup": cgroup.path()}));
    comes_to(&mut slice.worker(), LIMIT - CONTEXT - 6 * GIB);
}

#[test]
fn a_cgroup_that_cannot_be_read_charges_nothing() {
    let cgroup = Cgroup::new();
    let slice = slice(&json!({"cgroup": cgroup.path()}));
    let mut worker = slice.worker();
    comes_to(&mut worker, LIMIT - CONTEXT);
    for current in ["", "max\n", "-5\n", "99999999999999999999999\n"] {
        write(&cgroup.0.path().join("memory.current"), current.as_bytes());
        std::thread::sleep(Duration::from_millis(7)); // a reading is used for 5 ms
        assert_eq!(worker.free(), LIMIT - CONTEXT, "{current}");
    }
}

/// A process without free descriptors cannot open the files of its cgroup. It was shown as free what
/// the slice holds on the host.
#[test]
fn a_cgroup_that_cannot_be_read_any_more_leaves_the_charge_as_it_is() {
    let cgroup = Cgroup::new();
    cgroup.says(9 * GIB, &v2(0, 0, 0));
    let slice = slice(&json!({"cgroup": cgroup.path()}));
    let mut worker = slice.worker();
    comes_to(&mut worker, LIMIT - CONTEXT - 5 * GIB);
    std::fs::remove_file(cgroup.0.path().join("memory.current")).unwrap();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(7)); // a reading is used for 5 ms
        assert_eq!(worker.free(), LIMIT - CONTEXT - 5 * GIB);
    }
    cgroup.says(6 * GIB, &v2(0, 0, 0));
    comes_to(&mut worker, LIMIT - CONTEXT - 2 * GIB);
}

#[test]
fn without_a_cgroup_of_its_own_a_slice_is_charged_what_its_processes_hold() {
    let slice = slice(&json!({"host_allowance": 64 * MIB}));
    let mut worker = slice.worker();
    comes_to(&mut worker, LIMIT - CONTEXT);
    worker.must(&format!("host 0 {}", 256 * MIB));
    let start = Instant::now();
    loop {
        let charged = LIMIT - CONTEXT - worker.free();
        // 192 MiB lie beyond the allowance; the rest is the program's own memory.
        if charged >= 190 * MIB {
            assert!(charged < 220 * MIB, "{charged}");
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{charged}");
    }
    worker.must("free 0");
    comes_to(&mut worker, LIMIT - CONTEXT);
}

/// The file of the machine's memory pressure.
fn pressure(folder: &Path, full: &str) -> PathBuf {
    let file = folder.join("pressure");
    let text = format!(
        "some avg10=99.00 avg60=0.00 avg300=0.00 total=1\nfull avg10={full} avg60=0.00 avg300=0.00 total=1\n"
    );
    write(&file, text.as_bytes());
    file
}

#[test]
fn a_machine_that_waits_keeps_more_from_large_requests_and_says_so_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = pressure(folder.path(), "0.00");
    let slice = slice(&json!({"pressure_file": file.display().to_string()}));
    let log = folder.path().join("log");
    let run = slice.run(gpuslice_suite::compile::worker());
    let run = run
        .env("GPUSLICE_LOG", "warn")
        .env("GPUSLICE_LOG_FILE", &log);
    let mut worker = Worker::start(run);
    worker.must("start 0");
    // The host has 20 GiB available: 12 GiB above the reserve, and 4 GiB above twice the reserve.
    let available = slice.truth().host.unwrap().mem_available;
    slice.simulator(&["host", &format!("+{}", available - 20 * GIB)]);
    let calm = worker.free();
    assert_eq!(calm, 12 * GIB);
    pressure(folder.path(), "5.00");
    std::thread::sleep(Duration::from_millis(2)); // a reading is used for 1 ms
    assert_eq!(worker.free(), 4 * GIB);
    assert_eq!(worker.code(&format!("alloc 0 {}", 5 * GIB)), OUT_OF_MEMORY);
    assert_eq!(worker.code(&format!("alloc 0 {}", 5 * GIB)), OUT_OF_MEMORY);
    worker.must(&format!("alloc 0 {}", 4 * GIB));
    assert_eq!(worker.code(&format!("alloc 1 {}", 66 * MIB)), OUT_OF_MEMORY);
    worker.must(&format!("alloc 1 {}", 64 * MIB));
    // Streaming page cache alone makes a machine wait. While memory is plenty, this pressure means
    // nothing.
    worker.must("free 0");
    slice.simulator(&["host", "-60GiB"]);
    assert_eq!(worker.free(), LIMIT - CONTEXT - 64 * MIB);
    pressure(folder.path(), "4.99");
    slice.simulator(&["host", "+60GiB"]);
    assert_eq!(worker.free(), 12 * GIB - 64 * MIB);
    let said = std::fs::read_to_string(&log).unwrap();
    let times = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        times(
            " WARN refused 5.00 GiB: the host has 20.00 GiB available and keeps 16.00 GiB (under memory pressure)"
        ),
        1,
        "{said}"
    );
    // Whose doing it is, and not also the slice's.
    assert_eq!(times(" on GPU 0: "), 0, "{said}");
    assert_eq!(times(" WARN all tasks stalled for 5 %"), 1, "{said}");
}

#[test]
fn a_garbled_or_missing_pressure_file_is_no_signal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pressure");
    let slice = slice(&json!({"pressure_file": file.display().to_string()}));
    let mut worker = slice.worker();
    let available = slice.truth().host.unwrap().mem_available;
    slice.simulator(&["host", &format!("+{}", available - 20 * GIB)]);
    assert_eq!(worker.free(), 12 * GIB);
    for text in [
        "",
        "full\n",
        "full avg10=99\n",
        "full avg10=1e9\n",
        "\u{0}\u{0}",
    ] {
        write(&file, text.as_bytes());
        std::thread::sleep(Duration::from_millis(2)); // a reading is used for 1 ms
        assert_eq!(worker.free(), 12 * GIB, "{text:?}");
    }
}

#[test]
fn thresholds_are_the_slices_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = pressure(folder.path(), "21.00");
    let slice = slice(&json!({
        "pressure_file": file.display().to_string(),
        "pressure_full": 20,
        "pressure_available": 10 * GIB,
        "pressure_request": GIB,
    }));
    let mut worker = slice.worker();
    let available = slice.truth().host.unwrap().mem_available;
    slice.simulator(&["host", &format!("+{}", available - 11 * GIB)]);
    assert_eq!(worker.free(), GIB);
    worker.must(&format!("alloc 0 {GIB}"));
    assert_eq!(
        worker.code(&format!("alloc 1 {}", GIB + 2 * MIB)),
        OUT_OF_MEMORY
    );
    worker.must(&format!("alloc 1 {GIB}"));
    worker.must(&format!("alloc 2 {GIB}"));
    let refused = worker.code(&format!("alloc 3 {}", 2 * MIB));
    assert_eq!(refused, OUT_OF_MEMORY, "the reserve is kept");
}

#[test]
fn whatever_meminfo_says_nothing_ends_and_no_number_is_above_the_total() {
    let folder = tempfile::tempdir().unwrap();
    let meminfo = folder.path().join("meminfo");
    let live = |total: u64, free: u64, available: u64| {
        format!("MemTotal: {total} kB\nMemFree: {free} kB\nMemAvailable: {available} kB\n")
    };
    let good = live(127_600_748, 108_265_472, 121_267_814);
    write(&meminfo, good.as_bytes());
    let slice = slice(&json!({"meminfo": meminfo.display().to_string()}));
    let mut worker = slice.worker();
    let usual = worker.free();
    assert_eq!(usual, LIMIT - CONTEXT);
    for text in [
        String::new(),
        "garbage".into(),
        "MemTotal:".into(),
        "MemTotal: 0 kB\nMemFree: 0 kB\nMemAvailable: 0 kB\n".into(),
        live(1, 0, 0),
        live(127_600_748, 0, 0),
        live(127_600_748, 5, 127_600_748),
        live(u64::MAX, u64::MAX, u64::MAX),
        live(127_600_748, 1, 999_999_999_999),
        "MemTotal: -5 kB\nMemFree: -5 kB\nMemAvailable: -5 kB\n".into(),
        "x".repeat(1 << 20),
        "MemTotal: 127600748 kB\nMemFree: 108265472 kB\n".into(),
    ] {
        write(&meminfo, text.as_bytes());
        std::thread::sleep(Duration::from_millis(2)); // a reading is used for 1 ms
        let said = worker.info();
        let shown = text.get(..60).unwrap_or(&text);
        assert!(
            said.total <= LIMIT && said.free <= usual,
            "{said:?}: {shown}"
        );
        let nvml = worker.ask("nvml");
        if let [0, free, total, used] = nvml[..] {
            assert_eq!(total, free + used, "{shown}");
            assert!(total.cast_unsigned() <= LIMIT, "{shown}");
        }
        assert_eq!(worker.ask("meminfo")[0], 0, "{shown}");
        if worker.code(&format!("alloc 0 {}", 2 * MIB)) == 0 {
            worker.must("free 0");
        }
    }
    std::fs::remove_file(&meminfo).unwrap();
    assert!(worker.free() <= usual);
    write(&meminfo, good.as_bytes());
    comes_to(&mut worker, usual);
}

/// The memory that the slice's machine has available.
fn available(slice: &Counted) -> u64 {
    let text = std::fs::read_to_string(slice.machine().state().join("meminfo")).unwrap();
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let words = line.unwrap().split_whitespace().nth(1);
    words.unwrap().parse::<u64>().unwrap() << 10
}

/// A program without free descriptors cannot read the host's memory. Its last reading counts, less
/// what the slice has taken since. Without a place in the ledger, it is refused everything.
#[test]
fn without_free_descriptors_the_host_keeps_its_reserve() {
    let program = linked("few_descriptors", "libcuda.so.1");
    let whole = available(&slice(&json!({})));
    let reserve = whole - 3 * CONTEXT - 3 * GIB / 2;
    let slice = slice(&json!({"reserve": reserve}));
    let said = slice.run(&program).arg("used").answer().clean();
    let expected = "init: 0\n\
        before: 0 0 0 free=2048 total=40960\n\
        full: 0 0 2 free=768 total=40960\n\
        free: 0 0 2 free=512 total=40960\n\
        later: 0 0 2 free=256 total=40960\n";
    assert_eq!(said, expected);
    let said = slice.run(&program).arg("loaded").answer().clean();
    let expected = "init: 0\n\
        full: 2 201 201 free=0 total=0\n\
        free: 0 0 0 free=2048 total=40960\n\
        later: 0 0 2 free=768 total=40960\n";
    assert_eq!(said, expected);
}

#[test]
fn a_total_that_was_never_read_is_the_hosts_own() {
    let program = linked("few_descriptors", "libcuda.so.1");
    let bare = Machine::new("gb10");
    let bare = bare
        .place(Run::new(&program))
        .arg("sysinfo")
        .answer()
        .clean();
    for total in ["device", "slice"] {
        let slice = slice(&json!({"total": total}));
        let said = slice.run(&program).arg("sysinfo").answer().clean();
        assert_eq!(said, bare, "total = {total}");
    }
}
