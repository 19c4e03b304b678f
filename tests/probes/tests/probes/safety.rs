//! Ways in which other preloads have broken programs. This library must not break them.
//! Touches: simulated machines, and programs that misbehave on purpose.

use gpuslice_probes::{Bench, Linked, compile};
use gpuslice_suite::place;
use std::path::Path;

const EIGHT: &str = "\"memory\":8589934592";
const SLICE: u64 = 8 << 30;
const CONTEXT: u64 = 254 << 20;

/// Asserts that a program prints the same, to the byte, bare, with the shim, and in a slice.
/// Returns its output.
fn unchanged(source: &str, linked: Linked) -> String {
    let program = compile(source, linked);
    let bare = Bench::bare("rtx3090").run(&program).answer();
    let without = Bench::bare("rtx3090").run(&program).with_shim().answer();
    assert_eq!(without, bare, "with the shim, without a slice");
    let within = Bench::sliced("rtx3090", EIGHT);
    assert_eq!(
        within.run(&program).with_shim().answer(),
        bare,
        "in a slice"
    );
    bare.clean()
}

#[test]
fn bad_input_is_answered_as_the_driver_answers_it() {
    let said = unchanged("safety_bad_input", Linked::All(12));
    assert!(
        said.contains("nvmlDeviceGetMemoryInfo_v2(device, memory) 25\n"),
        "{said}"
    );
}

#[test]
fn handlers_umask_descriptors_threads_errno_and_output_are_left_alone() {
    let said = unchanged("safety_process", Linked::All(12));
    assert!(said.contains("handlers=200 "), "{said}");
    assert!(said.contains("errno=79"), "{said}");
}

#[test]
fn dlsym_answers_everything_else_as_libc_does() {
    let said = unchanged("safety_dlsym", Linked::Nothing);
    assert!(said.contains("cuNothing null "), "{said}");
}

#[test]
fn a_machine_without_a_driver_is_seen_to_have_none() {
    let program = compile("safety_absent", Linked::Nothing);
    let run = |bench: &Bench| {
        let run = bench.run(&program);
        run.env("LD_LIBRARY_PATH", "/nonexistent")
    };
    let bare = run(&Bench::bare("rtx3090")).answer();
    let within = Bench::sliced("rtx3090", EIGHT);
    assert_eq!(run(&within).with_shim().answer(), bare);
    assert!(bare.clean().ends_with("libcuda 1\n"));
}

#[test]
fn a_direct_call_without_a_driver_gets_the_vendors_code() {
    let program = compile("safety_absent", Linked::Nothing);
    let bench = Bench::sliced("rtx3090", EIGHT);
    let run = bench.run(&program).arg("call").with_shim();
    let said = run.env("LD_LIBRARY_PATH", "/nonexistent").answer().clean();
    let calls = "cuMemGetInfo_v2 302\ncudaMemGetInfo 302\nnvmlDeviceGetMemoryInfo 12\namount 5\n";
    assert!(said.ends_with(calls), "{said}");
}

#[test]
fn another_interposer_works_before_and_behind_us() {
    let program = compile("safety_memory", Linked::All(12));
    let other = compile("safety_interposer", Linked::Interposer);
    let bench = Bench::sliced("rtx3090", EIGHT);
    let first = bench.run(&program).preload(&other).with_shim().answer();
    let (total, free) = (SLICE - 11, SLICE - CONTEXT);
    assert_eq!(first.clean(), format!("0 total={total} free={free}\n"));
    // Behind the shim, the interposer changes the driver's answers only: eleven bytes less seem in
    // use.
    let last = bench.run(&program).with_shim().preload(&other).answer();
    let free = SLICE - CONTEXT + 11;
    assert_eq!(last.clean(), format!("0 total={SLICE} free={free}\n"));
}

#[test]
fn what_others_put_before_the_loader_is_not_called_before_it_is_ready() {
    let program = compile("safety_memory", Linked::All(12));
    let other = compile("safety_iterate", Linked::Interposer);
    let bench = Bench::sliced("rtx3090", EIGHT);
    let expected = format!("0 total={SLICE} free={}\n", SLICE - CONTEXT);
    let behind = bench.run(&program).with_shim().preload(&other).answer();
    assert_eq!(behind.clean(), expected);
    let before = bench.run(&program).preload(&other).with_shim().answer();
    assert_eq!(before.clean(), expected);
}

#[test]
fn a_driver_may_be_closed_opened_again_and_there_twice() {
    let program = compile("safety_reopen", Linked::Nothing);
    let bench = Bench::sliced("rtx3090", EIGHT);
    let copy = bench.folder().join("libcuda.so.1");
    std::fs::copy(place::sim().join("libcuda.so.1"), &copy).unwrap();
    let said = bench.run(&program).arg(&copy).with_shim().answer().clean();
    let mut expected = format!("turn 0 total={SLICE}\n").repeat(5);
    for when in ["first", "second", "first"] {
        expected += &format!("{when} 0 total={SLICE}\n");
    }
    assert_eq!(said, expected);
}

#[test]
fn a_thread_may_be_cancelled_in_the_driver_and_a_child_may_ask() {
    let program = compile("safety_threads", Linked::All(12));
    let slow = ("GPUSLICE_SIM_FAULTS", "slow:cuMemGetInfo_v2=1000ms");
    let bare = Bench::bare("rtx3090")
        .run(&program)
        .env(slow.0, slow.1)
        .answer();
    let bench = Bench::sliced("rtx3090", EIGHT);
    let within = bench.run(&program).env(slow.0, slow.1).with_shim().answer();
    assert_eq!(within, bare);
    assert!(bare.clean().starts_with("cancelled 1 cleaned 1\n"));
}

fn host(bench: &Bench, plugins: &[(&str, &Path)]) -> String {
    let program = compile("safety_host", Linked::Nothing);
    let mut run = bench.run(&program).with_shim();
    for (how, plugin) in plugins {
        run = run.arg(how).arg(plugin);
    }
    run.answer().clean()
}

#[test]
fn a_library_that_is_opened_for_itself_alone_is_in_the_slice_too() {
    let plugin = compile("safety_plugin", Linked::DriverPlugin);
    for how in ["local", "deepbind", "base", "namespace"] {
        let bench = Bench::sliced("rtx3090", EIGHT);
        let expected = format!("{how} 0 total={SLICE}\n{how} look 0 total={SLICE}\n");
        assert_eq!(host(&bench, &[(how, &plugin)]), expected);
    }
}

#[test]
fn three_runtimes_in_one_process_each_keep_their_own_functions() {
    let old = compile("safety_plugin", Linked::RuntimePlugin(11));
    let middle = compile("safety_plugin", Linked::RuntimePlugin(12));
    let new = compile("safety_plugin", Linked::RuntimePlugin(13));
    let bench = Bench::sliced("rtx3090", EIGHT);
    let all = [&new, &old, &middle, &old, &new].map(|plugin| ("local", plugin.as_path()));
    let line = |end: u32, version: u32| {
        format!(
            "local 0 total={SLICE}\n\
             local properties 0 total={SLICE} end={end} version={version}\n"
        )
    };
    let (new, old, middle) = (line(1008, 13_000), line(728, 11_080), line(728, 12_090));
    let expected = [&*new, &*old, &*middle, &*old, &*new].concat();
    assert_eq!(host(&bench, &all), expected);
}

#[test]
fn a_thread_with_the_smallest_stack_may_be_the_first_to_ask() {
    let program = compile("safety_stack", Linked::All(12));
    for machine in ["rtx3090", "gb10"] {
        let bench = Bench::counted(machine, "\"memory\":8589934592");
        let answer = bench.run(&program).with_shim().answer();
        assert_eq!(answer.clean(), "0 8589934592\n", "{machine}");
    }
}
