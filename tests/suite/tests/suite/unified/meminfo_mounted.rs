//! `/proc/meminfo` of a slice of unified memory for programs that no preload reaches: `gpuslice run
//! --meminfo mount`.
//! Touches: runs on a simulated GB10, in mount namespaces. Needs root.

use gpuslice_config::answer::meminfo_text;
use gpuslice_config::answer::view::MemoryView;
use gpuslice_config::host::meminfo::{self, HostMemory};
use gpuslice_config::words::units::Bytes;
use gpuslice_suite::compile::{self, compile};
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Said, Worker};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
pub(super) const LIMIT: u64 = 40 * GIB;
/// The simulated GB10's.
const HOST_TOTAL: u64 = 127_600_748 << 10;

pub(super) fn is_root() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// Programs that make their own system calls, and one of musl.
fn readers() -> Vec<(&'static str, Vec<PathBuf>)> {
    let c = |compiler, name, words: &[&str]| compile(compiler, "c/meminfo_lines.c", name, words);
    vec![
        ("static", vec![c("cc", "meminfo-lines", &["-static"])]),
        ("musl", vec![c("musl-gcc", "meminfo-lines-musl", &[])]),
        (
            "static musl",
            vec![c("musl-gcc", "meminfo-lines-musl-alone", &["-static"])],
        ),
        (
            "Go",
            vec![compile(
                "go",
                "go/meminfo/main.go",
                "meminfo-go-static",
                &[],
            )],
        ),
        (
            "busybox",
            ["busybox", "head", "-n", "3", "/proc/meminfo"]
                .map(PathBuf::from)
                .to_vec(),
        ),
    ]
}

pub(super) fn run(machine: &Machine, options: &[&str]) -> Run {
    let run = machine.place(Run::new(place::gpuslice()));
    run.args(["run", "--sim", "gb10", "--memory", "40GiB"])
        .args(options)
        .arg("--")
}

fn parsed(text: &str) -> HostMemory {
    meminfo::parse(text.as_bytes()).unwrap_or_else(|| panic!("no meminfo: {text}"))
}

#[test]
fn static_musl_and_go_programs_read_the_slice_where_it_is_mounted() {
    if !is_root() {
        return;
    }
    for (name, words) in readers() {
        // musl's own loader loads the library, too: it needs almost nothing of libc.
        let alone = if name == "musl" { LIMIT } else { HOST_TOTAL };
        for (options, total) in [
            (&[][..], alone),
            (&["--meminfo", "preload"][..], alone),
            (&["--meminfo", "mount"][..], LIMIT),
        ] {
            let machine = Machine::new("gb10");
            let answer = run(&machine, options).args(&words).answer();
            let shown = parsed(&answer.stdout);
            assert_eq!(shown.total.get(), total, "{name} {options:?}");
            let is_slice = total == LIMIT;
            assert_eq!(shown.available.get() == LIMIT, is_slice, "{name}");
            assert_eq!(shown.free == shown.available, is_slice, "{name}");
        }
    }
}

/// The result of `gpuslice check` that this script starts in a slice as `"$0" check --json`.
fn checked(options: &[&str], script: &str) -> (Value, String) {
    let machine = Machine::new("gb10");
    let run = run(&machine, options).args(["sh", "-c", script]);
    let answer = run.arg(place::gpuslice()).answer();
    let json = serde_json::from_str(&answer.stdout);
    (
        json.unwrap_or_else(|error| panic!("{error}: {answer:?}")),
        answer.end,
    )
}

/// The totals of `/proc/meminfo` that it found, by route.
fn totals(said: &Value) -> Vec<(&str, u64)> {
    let rows = said["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["api"] == "/proc/meminfo")
        .map(|row| {
            (
                row["route"].as_str().unwrap(),
                row["total"].as_u64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn check_reads_meminfo_by_libc_and_where_a_page_is_mounted_by_system_calls() {
    if !is_root() {
        return;
    }
    let script = "exec \"$0\" check --json";
    let (said, end) = checked(&[], script);
    assert_eq!(totals(&said), [("meminfo-libc", LIMIT)]);
    assert_eq!(end, "exit 0", "{said}");
    let skipped = said["skipped"].as_array().unwrap().iter();
    let mut skipped = skipped.filter(|it| it["route"] == "meminfo-syscall");
    let why = skipped.next().unwrap()["why"].as_str().unwrap().to_owned();
    assert!(
        why.contains("no page is mounted over /proc/meminfo"),
        "{why}"
    );

    let (said, end) = checked(&["--meminfo", "mount"], script);
    let both = [("meminfo-libc", LIMIT), ("meminfo-syscall", LIMIT)];
    assert_eq!(totals(&said), both);
    assert_eq!(end, "exit 0", "{said}");

    // The page of another slice.
    let view = MemoryView {
        total: Bytes::new(64 * MIB),
        free: Bytes::new(8 * MIB),
        used: Bytes::new(56 * MIB),
    };
    let mut buffer = [0; meminfo_text::LENGTH];
    let page = tempfile::NamedTempFile::new().unwrap();
    let text = meminfo_text::write_page(&view, Bytes::new(HOST_TOTAL), &mut buffer);
    std::fs::write(&page, text).unwrap();
    let other = format!(
        "mount -t tmpfs tmpfs /mnt && cp {} /mnt/page && mount --bind /mnt/page /proc/meminfo \
         && exec \"$0\" check --json",
        page.path().display()
    );
    let (said, end) = checked(&["--meminfo", "mount"], &other);
    let both = [("meminfo-libc", LIMIT), ("meminfo-syscall", 64 * MIB)];
    assert_eq!(totals(&said), both);
    assert_eq!(end, "exit 1", "{said}");
    let disagreements = said["disagreements"].to_string();
    let named = "/proc/meminfo by meminfo-syscall";
    assert!(disagreements.contains(named), "{disagreements}");
}

/// A run with a mounted page, and a worker in it that has a context.
struct Mounted {
    worker: Worker,
    folder: PathBuf,
    _machine: Machine,
}

impl Mounted {
    fn new(options: &[&str]) -> Mounted {
        let machine = Machine::new("gb10");
        let all = [&["--meminfo", "mount"], options].concat();
        let mut worker = Worker::start(run(&machine, &all).arg(compile::worker()));
        worker.must("start 0");
        let environment = std::fs::read_to_string(format!("/proc/{}/environ", worker.pid()));
        let environment = environment.unwrap();
        let file = environment
            .split('\0')
            .find_map(|pair| pair.strip_prefix("GPUSLICE_CONFIG="))
            .unwrap();
        let folder = Path::new(file).parent().unwrap().to_path_buf();
        Mounted {
            worker,
            folder,
            _machine: machine,
        }
    }

    /// The page, as a program of the run reads it by its own system calls.
    fn page(&self) -> HostMemory {
        let reader = compile("cc", "c/meminfo_lines.c", "meminfo-lines", &["-static"]);
        let read = self.inside(&reader, &[]);
        parsed(&read)
    }

    /// Runs a program in the mount namespace of the run, and not in its slice.
    fn inside(&self, program: &Path, arguments: &[&str]) -> String {
        let pid = self.worker.pid().to_string();
        let output = Command::new("nsenter")
            .args(["--mount", "--target", &pid, "--"])
            .arg(program)
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the page and CUDA agree to a mebibyte, and returns how long that took.
    fn agree(&mut self, since: Instant, what: &str) -> (Said, Duration) {
        loop {
            let said = self.worker.info();
            let page = self.page();
            let is_near = |one: u64, other: u64| one.abs_diff(other) < MIB;
            if is_near(page.available.get(), said.free)
                && is_near(page.free.get(), said.free)
                && page.total.get() == said.total
            {
                return (said, since.elapsed());
            }
            assert!(
                since.elapsed() < Duration::from_secs(20),
                "{what}: {page:?} {said:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_page_and_cuda_agree_after_allocations_frees_and_neighbours() {
    if !is_root() {
        return;
    }
    let mut run = Mounted::new(&[]);
    let mut times = Vec::new();
    for (line, change) in [
        ("", 0i64),
        ("alloc 0 1073741824", 1024),
        ("alloc 1 5368709120", 5120),
        ("free 0", -1024),
        ("free 1", -5120),
    ] {
        let before = run.worker.free().cast_signed();
        if !line.is_empty() {
            run.worker.must(line);
        }
        let (said, time) = run.agree(Instant::now(), line);
        let taken = before - said.free.cast_signed();
        assert_eq!(taken / 1_048_576, change, "{line}");
        times.push(time);
    }
    eprintln!("the page followed within {times:?}");
    // The library of the run shows the same memory as the page does to others.
    let file = run.folder.join("slice.json");
    let slice: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert!(slice["meminfo"].as_str().unwrap().ends_with("/meminfo"));
}

#[test]
fn memory_of_a_killed_process_is_free_on_the_page() {
    if !is_root() {
        return;
    }
    let mut run = Mounted::new(&[]);
    let environment = std::fs::read_to_string(format!("/proc/{}/environ", run.worker.pid()));
    let environment = environment.unwrap();
    let pairs = environment
        .split('\0')
        .filter_map(|pair| pair.split_once('='));
    let other = pairs.fold(Run::new(compile::worker()), |other, (name, value)| {
        other.env(name, value)
    });
    let mut other = Worker::start(other);
    other.must("start 0");
    other.must(&format!("alloc 0 {}", 8 * GIB));
    let (held, _) = run.agree(Instant::now(), "another process");
    other.kill();
    let (after, _) = run.agree(Instant::now(), "the other process was killed");
    assert!(after.free >= held.free + 8 * GIB, "{held:?} {after:?}");
}

#[test]
fn the_page_is_read_only_for_programs_and_new_each_second() {
    if !is_root() {
        return;
    }
    let mut run = Mounted::new(&[]);
    run.agree(Instant::now(), "the first context");
    let page = run.folder.join("meminfo");
    let before = std::fs::read_to_string(&page).unwrap();
    let script = "echo x >/proc/meminfo || truncate -s 0 /proc/meminfo || rm -f /proc/meminfo || \
                  mv /proc/meminfo /tmp || chmod 777 /proc/meminfo || echo refused";
    let said = run.inside(Path::new("sh"), &["-c", script]);
    assert_eq!(said, "refused\n");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), before);
    let written = || std::fs::metadata(&page).unwrap().modified().unwrap();
    let (first, start) = (written(), Instant::now());
    while written() == first {
        assert!(start.elapsed() < Duration::from_secs(20), "it grew old");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap(), before);
}

#[test]
fn the_page_follows_a_resize() {
    if !is_root() {
        return;
    }
    let mut run = Mounted::new(&["--name", "page-resized"]);
    run.worker.must("alloc 0 1073741824");
    for (size, limit) in [("60GiB", 60 * GIB), ("20GiB", 20 * GIB), ("40GiB", LIMIT)] {
        let resize = Run::new(place::gpuslice()).args(["resize", "page-resized", size]);
        let answer = resize.answer();
        assert_eq!(answer.end, "exit 0", "{answer:?}");
        let (said, time) = run.agree(Instant::now(), size);
        assert_eq!((said.total, run.page().total.get()), (limit, limit));
        eprintln!("{size}: the page followed within {time:?}");
    }
}

#[test]
fn on_this_machine_the_library_reads_the_host_beside_the_page() {
    if !is_root() {
        return;
    }
    // A slice file that names no meminfo means this machine's own, although its GPU is simulated.
    let machine = Machine::new("gb10");
    let state = machine.folder().join("other");
    let script = format!(
        "cat $(dirname $GPUSLICE_CONFIG)/host-meminfo | head -1; {} ; ls $(dirname $GPUSLICE_CONFIG)",
        compile("cc", "c/meminfo_lines.c", "meminfo-lines", &["-static"]).display()
    );
    std::fs::create_dir(&state).unwrap();
    // `--sim` would bring a meminfo of its own: here only the driver is simulated.
    let run = Run::new(place::gpuslice()).on("gb10", &state);
    let run = run.args([
        "run",
        "--memory",
        "2GiB",
        "--meminfo",
        "mount",
        "--reserve",
        "1GiB",
    ]);
    let answer = run.args(["--", "sh", "-c", &script]).answer();
    let hosts = std::fs::read_to_string("/proc/meminfo").unwrap();
    let hosts = hosts.lines().next().unwrap();
    let lines: Vec<&str> = answer.stdout.lines().collect();
    assert_eq!(lines[0], hosts, "{answer:?}");
    assert_eq!(parsed(&lines[1..4].join("\n")).total.get(), 2 * GIB);
}
