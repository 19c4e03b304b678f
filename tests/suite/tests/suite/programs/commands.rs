//! Programs that have nothing to do with GPUs, and allocators, sanitizers and other interposers.
//! All run under the preload exactly as without it.
//! Touches: compilers and interpreters that `tests/clients/setup.sh` installs.

use gpuslice_suite::compile::{c, compile, dlopened, find, library, linked_cuda};
use gpuslice_suite::run::{Answer, Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use gpuslice_suite::{place, run};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a program bare, with the preload, and with the preload in a slice. All three outputs are
/// the same and contain no complaint. ld.so reports a library that it cannot preload on standard
/// error, so an empty standard error also means that the shim was loaded.
fn says_the_same(program: impl Fn(&Path) -> Run) -> String {
    let answers: Vec<Answer> = (0..3)
        .map(|way| {
            let machine = Machine::new("rtx3090");
            let run = machine.place(program(machine.folder()));
            match way {
                0 => run,
                1 => run.with_shim(),
                _ => {
                    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
                    run.with_shim().slice(&file)
                }
            }
            .answer()
        })
        .collect();
    assert_eq!(answers[0], answers[1], "with the preload and no slice");
    assert_eq!(answers[0], answers[2], "in a slice");
    answers[0].clone().clean()
}

fn script(interpreter: impl Into<OsString>, name: &str) -> String {
    let interpreter = interpreter.into();
    says_the_same(|folder| {
        Run::new(&interpreter)
            .arg(place::source(&format!("scripts/{name}")))
            .folder(folder)
    })
}

#[test]
fn the_preload_is_really_loaded() {
    let machine = Machine::new("rtx3090");
    let maps = machine
        .place(Run::new("cat").arg("/proc/self/maps"))
        .with_shim()
        .answer()
        .clean();
    assert!(maps.contains("/libgpuslice.so"), "{maps}");
}

#[test]
fn bash_is_not_disturbed() {
    assert!(script("bash", "shell.sh").ends_with("42\nleaving\n"));
}

#[test]
fn python_is_not_disturbed() {
    assert!(script(place::venv("python"), "python.py").ends_with("forked child 7\n"));
}

#[test]
fn node_is_not_disturbed() {
    assert!(script("node", "node.js").ends_with("worker 42\nserved /page\n"));
}

#[test]
fn perl_is_not_disturbed() {
    assert!(script("perl", "perl.pl").ends_with("ended with 3\n"));
}

#[test]
fn git_is_not_disturbed() {
    let said = script("bash", "git.sh");
    assert!(
        said.starts_with("6487d4d8086903a2aa85a704538833b05fd4d007 merged\n"),
        "{said}"
    );
}

const GO: &str = "echoed 1225\nuser true\nchild 0\nchild 1\nchild 2\nchild 3\nchild 4\n";

#[test]
fn a_go_program_is_not_disturbed() {
    let program = compile("go", "go/main.go", "go-dynamic", &[]);
    assert!(
        needs_libc(&program),
        "the program is meant to be loaded by ld.so"
    );
    assert_eq!(says_the_same(|_| Run::new(&program)), GO);
}

#[test]
fn a_static_go_program_is_not_disturbed() {
    let program = compile("go", "go/main.go", "go-static", &[]);
    assert!(!needs_libc(&program), "the program is meant to be static");
    assert_eq!(says_the_same(|_| Run::new(&program)), GO);
}

const ALLOCATED: &str = "sum 20400247\nchild sum 20400247\nchild ended with 0\n";

#[test]
fn a_musl_program_is_not_disturbed() {
    let program = compile("musl-gcc", "c/allocate.c", "allocate-musl", &["-pthread"]);
    assert_eq!(says_the_same(|_| Run::new(&program)), ALLOCATED);
}

#[test]
fn a_static_c_program_is_not_disturbed() {
    let program = compile(
        "cc",
        "c/allocate.c",
        "allocate-static",
        &["-static", "-pthread"],
    );
    assert!(!needs_libc(&program), "the program is meant to be static");
    assert_eq!(says_the_same(|_| Run::new(&program)), ALLOCATED);
}

/// The output of the program linked with `-lcuda` in a slice of 8 GiB of an RTX 3090.
const SLICED: &str = "\
cuda 3090aaaa-1111-4222-8333-444455550000 device total=8589934592
cuda 3090aaaa-1111-4222-8333-444455550000 context total=8589934592 free=8323596288
cuda 3090aaaa-1111-4222-8333-444455550000 holding total=8589934592 free=8055160832
cuda 3090aaaa-1111-4222-8333-444455550000 freed total=8589934592 free=8323596288
";

/// Runs a CUDA program in a slice of 8 GiB with these libraries preloaded, in this order.
fn in_a_slice(program: &Path, preload: &[PathBuf]) -> Answer {
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = machine.place(Run::new(program)).slice(&file);
    preload.iter().fold(run, Run::preload).answer()
}

/// The program linked with -lcuda, built for a sanitizer.
fn sanitized(name: &str, flags: &[&str]) -> PathBuf {
    let words = [flags, &["-L{sim}", "-l:libcuda.so.1"]].concat();
    compile("cc", "c/linked_cuda.c", name, &words)
}

/// The path of a library of the compiler or of the system.
fn system_library(name: &str) -> PathBuf {
    let output = Command::new("cc")
        .arg(format!("-print-file-name={name}"))
        .output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let path = PathBuf::from(said.unwrap_or_default());
    assert!(
        path.is_absolute(),
        "there is no {name}: run tests/clients/setup.sh first"
    );
    path.canonicalize().unwrap_or(path)
}

#[test]
fn other_allocators_work_in_both_orders() {
    let (plain, cuda) = (c("allocate"), linked_cuda());
    for allocator in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"].map(system_library) {
        for preload in [
            [allocator.clone(), place::shim()],
            [place::shim(), allocator],
        ] {
            assert_eq!(
                in_a_slice(&plain, &preload).clean(),
                ALLOCATED,
                "{preload:?}"
            );
            assert_eq!(in_a_slice(&cuda, &preload).clean(), SLICED, "{preload:?}");
        }
    }
}

#[test]
fn address_sanitizer_works_when_it_comes_first_or_is_linked_in() {
    let shared = sanitized("linked-cuda-asan", &["-fsanitize=address"]);
    let preload = [system_library("libasan.so"), place::shim()];
    assert_eq!(in_a_slice(&shared, &preload).clean(), SLICED);

    let inside = sanitized(
        "linked-cuda-static-asan",
        &["-fsanitize=address", "-static-libasan"],
    );
    assert_eq!(in_a_slice(&inside, &[place::shim()]).clean(), SLICED);
}

/// The output of four threads, each with a context of its own.
const FOUR_CONTEXTS: &str = "\
thread 0 contexts total=8589934592 free=7524581376
thread 1 contexts total=8589934592 free=7524581376
thread 2 contexts total=8589934592 free=7524581376
thread 3 contexts total=8589934592 free=7524581376
thread 0 holding total=8589934592 free=6450839552
thread 1 holding total=8589934592 free=6450839552
thread 2 holding total=8589934592 free=6450839552
thread 3 holding total=8589934592 free=6450839552
";

#[test]
fn thread_sanitizer_works_and_sees_no_race() {
    let words = [
        "-fsanitize=thread",
        "-pthread",
        "-L{sim}",
        "-l:libcuda.so.1",
    ];
    let program = compile("cc", "c/threads.c", "threads-tsan", &words);
    let machine = Machine::new("rtx3090");
    let file = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    // Some kernels place programs at more random addresses than this TSan supports; there setarch
    // is needed. Containers that forbid setarch run on kernels that were set up for them.
    let run = match Command::new("setarch").args(["-R", "true"]).status() {
        Ok(status) if status.success() => Run::new("setarch").arg("-R").arg(&program),
        _ => Run::new(&program),
    };
    // The simulated driver is not instrumented: TSan sees its memory but not its locks.
    let run = run.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1");
    let answer = machine.place(run).with_shim().slice(&file).answer();
    assert_eq!(answer.clean(), FOUR_CONTEXTS);
}

#[test]
fn another_library_that_hooks_dlsym_works_in_both_orders() {
    let (program, interposer) = (dlopened(), library("interposer"));
    let expected = "device total=8589934592\n\
        cuda total=8589934592 free=8323596288\n\
        nvml total=8589934592 free=8323596288 used=266338304\n";
    for preload in [
        [interposer.clone(), place::shim()],
        [place::shim(), interposer],
    ] {
        assert_eq!(
            in_a_slice(&program, &preload).clean(),
            expected,
            "{preload:?}"
        );
    }
}

/// The program that looks up names, beside a library that only the program's own RUNPATH finds.
fn lookups() -> PathBuf {
    let _beside = compile(
        "cc",
        "c/wrapper.c",
        "beside/libbeside.so",
        &["-shared", "-fPIC", "-ldl"],
    );
    compile(
        "cc",
        "c/lookups.c",
        "lookups",
        &[
            "-ldl",
            "-Wl,-rpath,$ORIGIN/beside",
            "-Wl,--enable-new-dtags",
        ],
    )
}

#[test]
fn every_lookup_finds_what_it_finds_without_the_preload() {
    let program = lookups();
    let said = says_the_same(|_| Run::new(&program));
    assert!(said.contains("atoi 10\n"), "{said}");
    assert!(
        said.contains("cuMemGetInfo_v2 by default nowhere\n"),
        "{said}"
    );
    assert!(said.ends_with("beside found\n"), "{said}");
}

#[test]
fn a_library_that_wraps_a_function_finds_the_next_one_in_both_orders() {
    let (program, wrapper, interposer) = (lookups(), library("wrapper"), library("interposer"));
    let shim = place::shim();
    let alone = in_a_slice(&program, std::slice::from_ref(&wrapper)).clean();
    assert!(alone.starts_with("atoi 11\n"), "{alone}");
    for preload in [
        vec![wrapper.clone(), shim.clone()],
        vec![shim.clone(), wrapper.clone()],
    ] {
        assert_eq!(in_a_slice(&program, &preload).clean(), alone, "{preload:?}");
    }
    // A third library forwards dlsym plainly. Wherever it comes first, its answers for RTLD_NEXT
    // are its own mistake. Behind the shim it must not be called at all.
    let preload = [shim, wrapper, interposer];
    assert!(
        in_a_slice(&program, &preload)
            .clean()
            .starts_with("atoi 11\n")
    );
}

/// Whether ld.so loads the program. A static program has no interpreter, so no preload reaches it.
fn needs_libc(program: &Path) -> bool {
    let readelf = find("readelf").unwrap_or_else(|| "readelf".into());
    let said = run::Run::new(readelf)
        .args(["-lW"])
        .arg(program)
        .answer()
        .clean();
    said.contains("INTERP")
}
