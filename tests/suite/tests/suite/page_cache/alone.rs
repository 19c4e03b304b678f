//! Programs that put themselves under a filter of system calls, or into other namespaces, go on as
//! they would without the library. The library's background work ends before the filter is in
//! force.
//! Touches: `tests/clients/c/sandbox.c`, model files of 256 MiB.

use gpuslice_suite::cache::{Models, slice_file};
use gpuslice_suite::compile::c;
use gpuslice_suite::run::{Answer, Machine, Run};

const HOW: [&str; 2] = ["prctl", "syscall"];
/// A slice of unified memory, in which `/proc/meminfo` shows the slice, too.
const UNIFIED: &str = "\"devices\":[{\"uuid\":\"GPU-b10aaaaa-4444-4555-8666-777788880000\",\
                       \"memory\":8589934592,\"integrated\":true}]";

/// The answers of a case bare, and in a slice whose `page_cache` is `mode`.
fn both(case: &str, how: &str, mode: &str) -> (Answer, Answer) {
    let models = Models::of(256);
    let machine = Machine::new("gb10");
    let keys = format!("\"page_cache\":\"{mode}\",{UNIFIED}");
    let slice = slice_file(machine.folder(), &keys);
    let program = c("sandbox");
    let run = || {
        let run = Run::new(&program).args([case, how]);
        machine.place(run.arg(models.cold("model.bin")))
    };
    (run().answer(), run().with_shim().slice(&slice).answer())
}

/// Asserts that a case says the same bare and in a slice with drop-behind. Returns its output.
fn says_the_same(case: &str) -> Vec<String> {
    let one = |how: &str| {
        let (bare, sliced) = both(case, how, "drop-behind");
        assert_eq!(sliced, bare, "{case} by {how}");
        bare.clean()
    };
    HOW.into_iter().map(one).collect()
}

/// Asserts that a case says the same bare and in a slice that drops, except that the slice has
/// dropped the file at the end. Returns the output in the slice.
fn says_the_same_and_drops(case: &str) -> String {
    let mut said = String::new();
    for how in HOW {
        let (bare, sliced) = both(case, how, "drop");
        let bare = bare.clean();
        assert!(bare.contains(": all\n"), "{bare}");
        said = sliced.clean();
        assert_eq!(said, bare.replace(": all\n", ": none\n"), "{case} by {how}");
    }
    said
}

#[test]
fn the_filter_of_these_tests_ends_a_program_for_what_it_does_not_know() {
    for how in HOW {
        let (bare, sliced) = both("proof", how, "drop");
        assert_eq!(sliced, bare);
        assert_eq!((&*bare.stdout, &*bare.end), ("filtered\n", "signal 31"));
    }
}

#[test]
fn a_program_that_filters_its_system_calls_still_loads_models() {
    for case in ["first", "mapped"] {
        for said in says_the_same(case) {
            assert!(said.starts_with("MemTotal: "), "{said}");
            assert!(said.ends_with("as sysinfo says\n"), "{said}");
        }
    }
}

#[test]
fn a_filter_that_comes_while_pages_are_dropped_waits_until_they_are() {
    for said in says_the_same("behind") {
        assert_eq!(said, "five children have ended well\n");
    }
}

#[test]
fn a_filter_for_all_threads_does_not_end_those_that_are_at_a_model() {
    // A filter that prctl installs applies to one thread alone.
    for mode in ["drop", "drop-behind"] {
        let (bare, sliced) = both("threads", "syscall", mode);
        assert_eq!(sliced, bare, "{mode}");
        assert_eq!(bare.clean(), "all threads go on\n");
    }
}

#[test]
fn a_filter_that_is_refused_changes_nothing() {
    let said = says_the_same_and_drops("refused");
    assert_eq!(said, "refused: -1, errno: 14\nloaded: none\n");
}

#[test]
fn a_filter_of_a_child_of_vfork_is_not_its_parents() {
    let said = says_the_same_and_drops("child");
    assert_eq!(said, "loaded: none\nthe child: 0\nloaded: none\n");
}

#[test]
fn a_program_gets_new_namespaces_while_pages_are_dropped_behind_it() {
    // Users who may not make namespaces even without the library are not tested here; root may make
    // them.
    for said in says_the_same("namespaces") {
        assert_eq!(said, "five children have new namespaces\n");
    }
}

#[test]
fn no_thread_keeps_the_rights_that_a_program_has_given_up() {
    // Without root's rights some of these calls are refused. One thread is left then, too.
    for said in says_the_same("credentials") {
        let alone = said.lines().filter(|line| line.ends_with(", threads: 1"));
        assert_eq!(alone.count(), 18, "{said}");
    }
}

#[test]
fn a_descriptor_that_is_closed_by_its_number_as_node_does_it_is_closed() {
    let said = says_the_same_and_drops("closes");
    assert_eq!(said, "closed: none\n");
}
