//! Programs that are started under a seccomp filter that fails a system call which the library
//! makes: GPU memory is refused, and the log names the cause.
//! Touches: workers in a slice.

use gpuslice_suite::compile;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use std::time::{Duration, Instant};

/// What is logged by a worker of a slice whose filter fails this system call.
fn logged(call: i64, errno: i32) -> String {
    let filtered = compile::compile("cc", "c/filtered.c", "filtered", &[]);
    let slice = Counted::new("rtx3090", 2 * GIB);
    let log = slice.machine().folder().join("log");
    let run = slice.run(filtered).env("GPUSLICE_LOG", "warn");
    let run = run.env("GPUSLICE_LOG_FILE", &log);
    let run = run.arg(call.to_string()).arg(errno.to_string());
    let mut worker = Worker::start(run.arg(compile::worker()));
    let start = Instant::now();
    assert_eq!(worker.code("start 0"), OUT_OF_MEMORY);
    assert!(
        start.elapsed() < Duration::from_millis(1500),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(slice.held(), 0);
    std::fs::read_to_string(log).unwrap()
}

#[test]
fn a_filter_that_fails_fstat_is_named() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let said = logged(libc::SYS_fstat, errno);
        let file = format!("slice.json: cannot be examined (fstat fails with errno {errno}");
        assert!(said.contains(&file), "{said}");
        assert!(said.contains("a seccomp filter"), "{said}");
        assert!(said.contains("GPU memory is refused"), "{said}");
        assert!(!said.contains("not a regular file"), "{said}");
    }
}

#[test]
fn a_filter_that_fails_fcntl_is_named() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        let said = logged(libc::SYS_fcntl, errno);
        let cause = format!("cannot be locked: errno {errno} (a seccomp filter");
        assert!(said.contains(&cause), "{said}");
        assert!(said.contains("GPU memory is refused"), "{said}");
    }
}
