//! Several versions of the CUDA runtime in one process: each caller's calls reach the runtime that it
//! was built for.
//! Touches: `tests/clients/c/runtimes.c`, on a simulated card.

use gpuslice_suite::compile::compile;
use gpuslice_suite::run::{Machine, Run};
use gpuslice_suite::slice::{GIB, of_all_devices};
use std::path::{Path, PathBuf};

/// The memory of the simulated card.
const CARD: u64 = 25_438_126_080;

/// Compiles the program or the library for a runtime, `11.0`, `12` or `13`.
fn compiled(form: &str, runtime: &str, further: &[&str]) -> PathBuf {
    let major = runtime.split('.').next().unwrap_or(runtime);
    let (version, library) = (
        format!("-DCUDART={major}"),
        format!("-l:libcudart.so.{runtime}"),
    );
    let name = format!("runtimes-{form}-{major}");
    let words = [
        &[&*version, "-O2"],
        further,
        &["-L{sim}", &library, "-ldl", "-pthread"],
    ]
    .concat();
    compile("cc", "c/runtimes.c", &name, &words)
}

/// The program, which is a caller itself.
fn program(runtime: &str) -> PathBuf {
    compiled("program", runtime, &[])
}

/// A library with a caller. Apart from the version, all of them are the same code, so that the
/// loader maps one to the place of another that was closed.
fn library(runtime: &str) -> String {
    let further = ["-DPLUGIN", "-shared", "-fPIC"];
    compiled("library", runtime, &further).display().to_string()
}

/// The properties that a caller gets from its own runtime.
fn properties(major: u32, total: u64) -> String {
    let bytes = match major {
        11 => 728,
        12 => 1032,
        _ => 1008,
    };
    format!("properties: code 0, {bytes} bytes, total {total}")
}

/// The output of a caller whose calls reach its own runtime.
fn line(major: u32, total: u64) -> String {
    let properties = properties(major, total);
    format!("{major}: {properties}; cudaMalloc: code 1, last error 1\n")
}

/// The output of a library's function that ends in a jump to the library's own runtime.
fn through(major: u32, total: u64) -> String {
    format!("through a jump: {}\n", properties(major, total))
}

/// Checks the lines of callers that each are built for a runtime of this major version.
fn check(of: &str, callers: &[&str], majors: &[u32]) {
    check_lines(&program(of), callers, &|total| {
        majors.iter().map(|major| line(*major, total)).collect()
    });
}

/// Runs the program bare, with the preload, and in a slice.
fn check_lines(program: &Path, callers: &[&str], expected: &dyn Fn(u64) -> String) {
    let machine = Machine::new("rtx3090");
    let slice = of_all_devices(machine.folder(), 8 * GIB, &machine.state());
    let run = || machine.place(Run::new(program).args(callers));
    let [of_card, of_slice] = [expected(CARD), expected(8 * GIB)];
    assert_eq!(run().answer().clean(), of_card, "bare, {callers:?}");
    let preloaded = run().with_shim().answer();
    assert_eq!(preloaded.clean(), of_card, "preloaded, {callers:?}");
    let sliced = run().with_shim().slice(&slice).answer();
    assert_eq!(sliced.clean(), of_slice, "in a slice, {callers:?}");
}

#[test]
fn program_and_library_each_call_the_runtime_that_they_need() {
    for (own, major, other, of_library) in [("12", 12, "13", 13), ("13", 13, "11.0", 11)] {
        let library = library(other);
        check(
            own,
            &["program", &library, "program"],
            &[major, of_library, major],
        );
        check(own, &[&library, "program"], &[of_library, major]);
    }
}

#[test]
fn libraries_that_are_open_together_each_call_the_runtime_that_they_need() {
    let [eleven, twelve, thirteen] = ["11.0", "12", "13"].map(library);
    let kept = format!("+{thirteen}");
    let callers = [&*kept, &twelve, "program", &eleven, &thirteen];
    check("12", &callers, &[13, 12, 12, 11, 13]);
}

#[test]
fn libraries_that_replace_each_other_call_the_runtime_that_they_need() {
    let [eleven, twelve, thirteen] = ["11.0", "12", "13"].map(library);
    let callers = [&*thirteen, &eleven, &twelve, &thirteen, "program", &eleven];
    check("12", &callers, &[13, 11, 12, 13, 12, 11]);
}

/// While destructors run, libc holds the lock of its loader.
#[test]
fn a_destructor_can_wait_for_a_thread_that_calls_the_runtime() {
    let (program, library) = (program("12"), library("13"));
    check_lines(&program, &["during-close", &library], &|total| {
        line(12, total).repeat(2)
    });
}

/// When the runtime is called, the return address lies in the program, which needs another runtime.
#[test]
fn functions_that_end_in_a_jump_call_the_runtime_that_they_need() {
    let [eleven, thirteen] = ["11.0", "13"].map(library);
    let callers = ["jump", "program", &thirteen, &eleven, &thirteen, "program"];
    check_lines(&program("12"), &callers, &|total| {
        let jumps = [13, 11, 13].map(|major| through(major, total)).concat();
        [line(12, total), jumps, line(12, total)].concat()
    });
}

#[test]
fn a_linked_function_that_ends_in_a_jump_calls_the_runtime_that_it_needs() {
    let thirteen = library("13");
    let linked = ["-DLINKED", "-Wl,-rpath,{here}:{sim}", &thirteen];
    let name = "runtimes-linked";
    let words = [
        &["-DCUDART=12", "-O2"],
        &linked[..],
        &["-L{sim}", "-l:libcudart.so.12", "-ldl", "-pthread"],
    ];
    let program = compile("cc", "c/runtimes.c", name, &words.concat());
    let callers = ["jump", "program", "linked", "program", "linked", &thirteen];
    check_lines(&program, &callers, &|total| {
        let own = line(12, total);
        let jump = through(13, total);
        [&*own, &jump, &own, &jump, &jump].concat()
    });
}
