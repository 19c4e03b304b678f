//! Side effects of a preload on programs that had not asked for them.
//! Touches: the same as the parent module; `nm`.

use super::{CONTEXT, bare, in_a_slice, numbers};
use gpuslice_suite::compile::{c, compile, dlopened, library, linked, linked_cuda, linked_nvml};
use gpuslice_suite::place;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use gpuslice_suite::worker::{Counted, Worker};
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

/// Asserts that a program, in an empty folder, says the same bare and in a slice with a ledger.
/// Returns its output.
fn says_the_same(program: &std::path::Path) -> String {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let empty = slice.machine().folder().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let within = slice.run(program).folder(&empty).answer();
    let machine = Machine::new("rtx3090");
    let empty = machine.folder().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let bare = machine.place(Run::new(program)).folder(&empty).answer();
    assert_eq!(within, bare);
    within.clean()
}

/// The preload took SIGUSR1 and SIGUSR2 for itself, so virtual machines crashed. It left the umask
/// at 0, and made files when a program looked up any name that begins with `cu`. It exported names
/// like `round_up`, `mutex` and `initialized`, which replaced a program's own.
#[test]
fn signals_umask_files_and_a_programs_own_names_are_left_alone() {
    let words = ["-rdynamic", "-L{sim}", "-l:libcuda.so.1", "-ldl"];
    let program = compile("cc", "c/manners.c", "manners", &words);
    let said = says_the_same(&program);
    assert_eq!(numbers(&said, "files"), [2; 4], "{said}");
    assert_eq!(numbers(&said, "umask"), [22; 4], "{said}");
    assert_eq!(numbers(&said, "round_up"), [12800; 4], "{said}");
    assert!(said.contains("curl_easy_init nowhere\n"), "{said}");
    assert!(said.contains("signal 10\nsignal 12\n"), "{said}");
}

/// See the test above. Every name that the library exports is a vendor's, or libc's.
#[test]
fn nothing_is_exported_but_what_is_replaced() {
    let libc = Run::new("cc")
        .arg("-print-file-name=libc.so.6")
        .answer()
        .clean();
    let nm = Run::new("nm").args(["-D", "--defined-only", "--format=posix"]);
    let libc = nm.arg(libc.trim()).answer().clean();
    // `open@@GLIBC_2.2.5 W 1234`
    let words = libc
        .lines()
        .filter_map(|line| line.split([' ', '@']).next());
    let libcs: std::collections::HashSet<&str> = words.collect();
    assert!(libcs.contains("dlsym") && libcs.contains("open"));
    let nm = Run::new("nm").args(["-D", "--defined-only", "--format=posix"]);
    let said = nm.arg(place::shim()).answer().clean();
    assert!(said.lines().count() > 20, "{said}");
    for line in said.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let vendors = ["cu", "nvml"].iter().any(|start| name.starts_with(start));
        assert!(vendors || libcs.contains(name), "{name}");
    }
}

/// An unwritable folder for the preload's own files ended programs that only looked up a name
/// that begins with `cu`.
#[test]
fn looking_up_somebody_elses_name_does_nothing() {
    let words = ["-rdynamic", "-L{sim}", "-l:libcuda.so.1", "-ldl"];
    let program = compile("cc", "c/manners.c", "manners", &words);
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = machine.place(Run::new(&program)).with_shim().slice(&file);
    let run = run
        .env("HOME", "/nonexistent")
        .env("TMPDIR", "/nonexistent");
    let said = run.folder(std::path::Path::new("/proc")).answer().clean();
    assert!(said.contains("curl_easy_init nowhere\n"), "{said}");
}

/// A null pointer where the driver allows one crashed the program.
#[test]
fn null_pointers_are_the_drivers_business() {
    let words = ["-L{sim}", "-l:libcuda.so.1", "-l:libnvidia-ml.so.1"];
    let program = compile("cc", "c/bad_arguments.c", "bad-arguments", &words);
    assert_eq!(says_the_same(&program), bare(&program).clean());
}

/// A library that looked up the next function of its own name found itself, and called itself for
/// ever (`import torch` with an OpenMP runtime). A second look-up found nothing.
#[test]
fn rtld_next_finds_the_next_function_every_time() {
    let (tool, program) = (library("next_tool"), c("allocate"));
    let alone = Run::new(&program).preload(&tool).answer();
    assert!(
        alone
            .stdout
            .starts_with("next tool 0\nmalloc twice the same\n"),
        "{alone:?}"
    );
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    for first in [true, false] {
        let run = machine.place(Run::new(&program)).slice(&file);
        let run = match first {
            true => run.with_shim().preload(&tool),
            false => run.preload(&tool).with_shim(),
        };
        assert_eq!(run.answer(), alone, "the shim first: {first}");
    }
}

/// Flags of look-ups were ignored: programs with per-thread streams got the functions of the legacy
/// stream.
#[test]
fn per_thread_streams_get_functions_of_their_own() {
    let program = linked("streams", "libcuda.so.1");
    let said = in_a_slice(&program).clean();
    assert_eq!(said, bare(&program).clean());
    assert_eq!(said.matches(" two\n").count(), 3, "{said}");
}

/// Drivers and libraries that look up the driver's functions themselves (WSL2, cuDNN) called each
/// other for ever, or waited for a mutex that they held.
#[test]
fn a_driver_that_looks_itself_up_answers_and_does_not_hang() {
    for program in [linked_cuda(), dlopened()] {
        let machine = Machine::new("rtx3090");
        let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
        let run = machine.place(Run::new(&program)).with_shim().slice(&file);
        let run = run.env("GPUSLICE_SIM_FAULTS", "self-dlsym");
        let said = run.answer().clean();
        assert!(
            numbers(&said, "total")
                .iter()
                .all(|total| *total == 8 * GIB),
            "{said}"
        );
        assert_eq!(numbers(&said, "free")[0], 8 * GIB - CONTEXT, "{said}");
    }
}

/// Some drivers' functions call each other by their exported names. Such a call came back to the
/// preload, which waited for a mutex that it held, and memory was counted twice.
#[test]
fn a_driver_that_calls_itself_through_the_preload_is_counted_once() {
    let soname = "-Wl,-soname,libcuda.so.1";
    let words = ["-shared", "-fPIC", "-pthread", soname];
    let driver = compile(
        "cc",
        "c/self_calling_driver.c",
        "self-calling/libcuda.so.1",
        &words,
    );
    let folder = driver.parent().unwrap();
    let words = ["-L{here}", "-l:libcuda.so.1"];
    let program = compile("cc", "c/self_called.c", "self-calling/program", &words);
    let slice = Counted::new("rtx3090", 8 * GIB);
    let run = slice.run(program).env("LD_LIBRARY_PATH", folder);
    let said = run.answer().clean();
    assert_eq!(numbers(&said, "code"), [0; 3], "{said}");
    assert_eq!(numbers(&said, "total"), [8 * GIB; 3], "{said}");
    let free = numbers(&said, "free");
    assert_eq!(free, [8 * GIB, 5 * GIB, 8 * GIB], "{said}");
}

/// A preload that was itself linked to the driver ended every program on machines without a driver.
#[test]
fn programs_start_where_there_is_no_driver() {
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = Run::new("/bin/true").with_shim().slice(&file);
    let said = run.env("LD_LIBRARY_PATH", "/nonexistent").answer();
    assert_eq!(said.clean(), "");
    let needed = Run::new("readelf")
        .arg("-d")
        .arg(place::shim())
        .answer()
        .clean();
    assert!(
        !needed.contains("libcuda") && !needed.contains("libnvidia"),
        "{needed}"
    );
}

/// When an old driver lacked one function, all other functions answered without the slice, or the
/// program was killed.
#[test]
fn an_old_driver_that_lacks_functions_is_sliced_in_the_others() {
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let old = place::sim().join("old");
    let run = machine
        .place(Run::new(linked_cuda()))
        .with_shim()
        .slice(&file);
    let said = run.env("LD_LIBRARY_PATH", &old).answer().clean();
    assert_eq!(numbers(&said, "total"), [8 * GIB; 4], "{said}");
    // The program linked with -lnvidia-ml ends at the missing function.
    let run = machine
        .place(Run::new(linked_nvml()))
        .with_shim()
        .slice(&file);
    let answer = run.env("LD_LIBRARY_PATH", &old).answer();
    let first = answer.stdout.lines().next().unwrap_or_default();
    assert!(first.contains(&format!("total={} ", 8 * GIB)), "{answer:?}");
}

/// Programs whose name looks like a line of /proc/pid/stat were taken for dead, and their memory
/// was counted as free.
#[test]
fn a_program_with_a_strange_name_is_alive_until_it_dies() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let strange = slice.machine().folder().join("a Zb) Z 1 (");
    symlink(gpuslice_suite::compile::worker(), &strange).unwrap();
    let mut other = slice.worker();
    let mut worker = Worker::start(slice.run(&strange));
    worker.must("start 0");
    worker.must(&format!("alloc 0 {GIB}"));
    assert_eq!(other.free(), 7 * GIB - 2 * CONTEXT);
    worker.kill();
    slice.buried(1);
    assert_eq!(other.free(), 8 * GIB - CONTEXT);
}

/// Freeing the newest of 20,000 blocks walked a list of all of them under a lock: 21 µs each.
#[test]
fn freeing_the_newest_of_many_costs_no_more_than_freeing_the_oldest() {
    let slice = Counted::new("rtx3090", 8 * GIB);
    let mut worker = slice.worker();
    let mut fastest = |order: u32| {
        let line = format!("pile 20000 4096 {order}");
        (0..3).map(|_| worker.ask(&line)[2]).min().unwrap()
    };
    let (oldest, newest) = (fastest(0), fastest(1));
    // This bound allows for the noise of a busy machine, and not for a walk of 20,000 blocks.
    assert!(
        newest < oldest * 3 + 2000,
        "{newest} ns for the newest first, {oldest} ns for the oldest first"
    );
}

/// Two hundred programs that started at the same time waited for each other for minutes.
#[test]
fn two_hundred_programs_start_at_once() {
    let slice = Counted::new("h200", 120 * GIB);
    let start = Instant::now();
    let mut workers: Vec<Worker> = (0..200).map(|_| slice.idle()).collect();
    for worker in &mut workers {
        worker.send(0, "start 0");
        worker.send(0, "alloc 0 4194304");
        worker.send(0, "!info");
    }
    for worker in &mut workers {
        assert!(worker.settle());
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(120), "{took:?}");
    // The simulated driver has room for 128 processes, and refuses the others as out of memory.
    let free = workers
        .iter_mut()
        .filter_map(|worker| match worker.ask("!info")[..] {
            [0, free, _] => Some(free.cast_unsigned()),
            _ => None,
        });
    let free: Vec<u64> = free.collect();
    assert_eq!(free, vec![120 * GIB - slice.held(); free.len()]);
    assert!(free.len() > 100, "{}", free.len());
}

/// Drivers before R570 have no cuStreamGetDevice. The library searched all loaded libraries for it at
/// every allocation of a created stream, which takes the loader's lock.
#[test]
fn a_function_that_the_driver_lacks_is_not_looked_up_by_every_allocation() {
    let program = linked("stream_allocations", "libcuda.so.1");
    let look_ups = |times: &str| {
        let slice = Counted::new("rtx3090+h200@550", 8 * GIB);
        let log = slice.machine().folder().join("look-ups");
        let run = slice.run(&program).arg(times);
        let run = run.env("LD_DEBUG", "symbols").env("LD_DEBUG_OUTPUT", &log);
        assert_eq!(run.answer().clean(), "done\n");
        let files = std::fs::read_dir(slice.machine().folder()).unwrap();
        let logs = files.filter_map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name()?.to_str()?;
            name.starts_with("look-ups.").then_some(path.clone())
        });
        let text: String = logs
            .map(|log| std::fs::read_to_string(log).unwrap())
            .collect();
        text.matches("symbol=cuStreamGetDevice;").count()
    };
    let once = look_ups("1");
    assert!(once > 0);
    assert!(look_ups("1000") <= 2 * once);
}
