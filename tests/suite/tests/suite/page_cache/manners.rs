//! The watch over model files disturbs no program: its forks, signals, threads, locks and
//! descriptors, and descriptor numbers that now name another file.
//! Touches: `tests/clients/c/loader.c`, model files of 256 MiB.

use gpuslice_suite::cache::{Models, evict, slice_file};
use gpuslice_suite::compile::c;
use gpuslice_suite::run::{Machine, Run};

/// The output of a case bare, and in a slice that drops.
fn both(case: &str) -> (String, String) {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    let slice = slice_file(folder.path(), "\"page_cache\":\"drop\"");
    let program = c("loader");
    let other = match case {
        // A file that counts as a model, and that no other test uses.
        "locks" => models.copy("locked.bin", "model.bin"),
        _ => models.other(),
    };
    let run = || {
        evict(&other);
        Run::new(&program)
            .arg(case)
            .arg(models.cold("model.bin"))
            .arg(&other)
    };
    (
        run().answer().clean(),
        run().with_shim().slice(&slice).answer().clean(),
    )
}

/// Asserts that a case prints `expected` in a slice. Bare it prints the same lines, except that
/// dropped files are still cached.
fn says(case: &str, expected: &str) {
    let (bare, sliced) = both(case);
    assert_eq!(sliced, expected, "{case} in a slice");
    assert_ne!(
        bare, expected,
        "{case}: the file leaves the cache without the slice, too"
    );
    let stays = bare.replace(": all\n", ": none\n");
    let words = |text: &str| text.lines().count();
    assert_eq!(words(&stays), words(expected), "{case} bare: {bare}");
}

/// Asserts that a case prints the same bare and in a slice. Returns its output.
fn says_the_same(case: &str) -> String {
    let (bare, sliced) = both(case);
    assert_eq!(sliced, bare, "{case}");
    bare
}

#[test]
fn a_file_goes_with_the_last_of_its_duplicates_even_by_dup2_over_it() {
    says(
        "duplicates",
        "one duplicate left: all\nits number is another's: none\n",
    );
}

#[test]
fn a_range_that_is_closed_on_exec_is_not_closed_yet() {
    says(
        "ranges",
        "closed on exec: all\na range is closed: none\na range is closed: none\n",
    );
}

#[test]
fn a_mapping_that_moves_is_followed_and_one_that_is_mapped_over_is_gone() {
    says("moves", "moved: some\nreplaced: none\n");
}

#[test]
fn a_child_drops_what_is_its_own_and_what_its_parent_has_left_behind() {
    let (bare, sliced) = both("forks");
    assert_eq!(
        sliced,
        "the child is done with it: all\nso is the parent: none\na child's own: none\n\
         an orphan's: none\n"
    );
    assert_eq!(
        bare.lines().filter(|line| line.ends_with(": all")).count(),
        4,
        "{bare}"
    );
}

#[test]
fn a_child_of_vfork_closes_its_own_descriptors_and_not_its_parents() {
    let (_, sliced) = both("vforks");
    assert_eq!(
        sliced,
        "the child has closed it: some\nso has the parent: none\nand again: none\n"
    );
}

#[test]
fn a_child_with_its_parents_memory_in_new_pids_leaves_its_files_alone() {
    let (_, sliced) = both("apart");
    assert_eq!(
        sliced,
        "the child has closed it: some\nso has the parent: none\n"
    );
}

#[test]
fn a_file_goes_when_its_stream_goes_on_with_another() {
    says("freopens", "the stream is another's: none\n");
}

#[test]
fn a_file_goes_with_a_descriptor_of_a_high_number() {
    says("high", "one is left: all\nnone is left: none\n");
}

#[test]
fn a_program_that_is_started_inherits_no_descriptor_of_ours() {
    assert!(!says_the_same("execs").is_empty());
}

/// The line that lists the open descriptors, which must be the same bare and in a slice.
fn descriptors(text: &str) -> &str {
    let line = text.lines().find(|line| line.starts_with("descriptors: "));
    line.unwrap_or_else(|| panic!("no descriptors in {text}"))
}

#[test]
fn a_signal_handler_on_a_small_stack_may_interrupt_us_anywhere() {
    let (bare, sliced) = both("signals");
    assert!(
        sliced.starts_with("after a thousand signals: none\n"),
        "{sliced}"
    );
    assert_eq!(descriptors(&sliced), descriptors(&bare));
}

#[test]
fn eight_threads_that_map_models_leave_nothing_cached_and_nothing_open() {
    let (bare, sliced) = both("threads");
    assert!(
        sliced.starts_with("after eight threads: none\n"),
        "{sliced}"
    );
    assert_eq!(descriptors(&sliced), descriptors(&bare));
}

#[test]
fn a_program_that_closes_our_descriptor_and_opens_its_own_there_keeps_it() {
    let (bare, sliced) = both("closes");
    let after = |text: &str| text.split_once(", ").map(|(_, rest)| rest.to_owned());
    assert_eq!(after(&sliced), after(&bare));
    assert_eq!(
        after(&bare).as_deref(),
        Some("still its own: 1000, other: none\n")
    );
    let count = |text: &str| {
        let number = text.split([':', ',']).nth(1).unwrap_or_default();
        number.trim().parse::<u32>().unwrap()
    };
    assert_eq!(count(&sliced), count(&bare) + 1, "one of the library's own");
}

#[test]
fn a_number_that_was_closed_behind_our_back_is_not_taken_for_a_model() {
    let said = says_the_same("stale");
    assert!(said.starts_with("same number: 1, other: all\n"), "{said}");
}

#[test]
fn a_programs_locks_stay_what_they_are() {
    let said = says_the_same("locks");
    assert!(
        said.starts_with("mapped: 1, unmapped: 1, closed: 0\n"),
        "{said}"
    );
}

#[test]
fn nothing_is_allocated_and_errno_is_what_it_was() {
    let said = says_the_same("allocates");
    assert_eq!(said, "counted: 1, allocated: 0, errno: 77\n");
}

#[test]
fn the_library_says_what_it_does_not_drop_because_it_lies_in_memory() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let model = folder.path().join("in-memory.gguf");
    std::fs::write(&model, vec![7u8; 2 << 20]).unwrap();
    let keys = "\"page_cache\":\"drop\",\"model_files\":{\"smallest\":1048576}";
    let slice = slice_file(folder.path(), keys);
    let machine = Machine::new("rtx3090");
    let run = Run::new("cksum").arg(&model).with_shim().slice(&slice);
    let answer = machine.place(run).env("GPUSLICE_LOG", "info").answer();
    assert_eq!(answer.end, "exit 0", "{answer:?}");
    let named = format!("{} is stored in memory", model.display());
    assert!(answer.stderr.contains(&named), "{answer:?}");
    assert_eq!(std::fs::read(&model).unwrap(), vec![7u8; 2 << 20]);
}

/// `strerror` said "Bad file descriptor" of a call that had failed before.
#[test]
fn closing_a_stream_without_a_descriptor_leaves_errno_alone() {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    let slice = slice_file(folder.path(), "\"page_cache\":\"drop\"");
    let program = c("memory_stream");
    let run = || Run::new(&program).arg(models.cold("model.bin"));
    let bare = run().answer().clean();
    assert_eq!(bare, "open_memstream: 0 kept\nfmemopen: 0 kept\n");
    assert_eq!(run().with_shim().slice(&slice).answer().clean(), bare);
}
