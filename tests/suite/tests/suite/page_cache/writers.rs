//! A program that locks a model file or writes to it keeps its locks, and waits for no disk.
//! Touches: `tests/clients/c/model_locks.c`, model files of 256 MiB.

use gpuslice_suite::cache::{Models, evict, slice_file};
use gpuslice_suite::compile::c;
use gpuslice_suite::run::Run;

/// The output of a case bare, and in a slice that drops. The case has the file `name` to itself.
fn both(case: &str, name: &str) -> (String, String) {
    let models = Models::of(256);
    let folder = tempfile::tempdir().unwrap();
    let slice = slice_file(folder.path(), "\"page_cache\":\"drop\"");
    let model = models.copy(name, "model.bin");
    let run = || {
        evict(&model);
        Run::new(c("model_locks")).arg(case).arg(&model)
    };
    (
        run().answer().clean(),
        run().with_shim().slice(&slice).answer().clean(),
    )
}

/// The kernel releases all locks of a process on a file with any descriptor of that file.
#[test]
fn a_lock_by_another_descriptor_outlives_the_mapping() {
    let (bare, sliced) = both("writer", "locked.bin");
    let start = "mapped: 1, unmapped: 1, and again: 1, closed: 0, descriptors: ";
    assert!(bare.starts_with(start), "{bare}");
    assert!(bare.ends_with(": all\n"), "{bare}");
    assert_eq!(sliced, bare.replace(": all\n", ": none\n"));
}

#[test]
fn a_lock_outlives_the_mappings_of_four_threads() {
    let (bare, sliced) = both("threads", "locked.bin");
    assert_eq!(bare, "locked: 100\n");
    assert_eq!(sliced, bare);
}

/// `close` and `munmap` took as long as the disk needed for the data.
#[test]
fn what_a_program_has_written_is_not_waited_for() {
    let (bare, sliced) = both("writes", "written.bin");
    let written = "written, dirty: 1, cached: all\nwritten by a mapping, dirty: 1, cached: all\n";
    assert_eq!(bare, format!("only read: all\n{written}"));
    assert_eq!(sliced, format!("only read: none\n{written}"));
}
