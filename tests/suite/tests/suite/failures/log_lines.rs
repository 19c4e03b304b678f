//! Log lines that no process reads, or that cannot be written: the program runs on unchanged.
//! Touches: workers in a slice, whose standard error is a pipe or a full file.

use gpuslice_suite::compile;
use gpuslice_suite::run::Run;
use gpuslice_suite::slice::GIB;
use gpuslice_suite::worker::{Counted, OUT_OF_MEMORY, Worker};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn slice() -> Counted {
    Counted::new("rtx3090", 2 * GIB)
}

/// A worker that logs warnings to this.
fn worker(slice: &Counted, stderr: impl Into<Stdio>) -> Worker {
    let run = slice.run(compile::worker()).env("GPUSLICE_LOG", "warn");
    Worker::start(run.stderr(stderr))
}

/// It is refused something, which is a line in the log, and lives.
fn goes_on(mut worker: Worker) {
    worker.must("start 0");
    for _ in 0..2 {
        assert_eq!(worker.code(&format!("alloc 0 {}", 3 * GIB)), OUT_OF_MEMORY);
    }
    worker.must("alloc 0 4096");
}

#[test]
fn a_line_to_a_pipe_whose_reader_is_gone_ends_nobody() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    goes_on(worker(&slice(), writer));
}

#[test]
fn a_line_to_a_pipe_that_nobody_empties_makes_nobody_wait() {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    fill(&mut writer);
    let given = writer.try_clone().unwrap();
    let (done, waiting) = mpsc::channel();
    let slice = slice();
    let worker = worker(&slice, given);
    let asked = thread::spawn(move || {
        goes_on(worker);
        done.send(()).unwrap();
    });
    let in_time = waiting.recv_timeout(Duration::from_secs(60));
    drop(writer);
    // Reading the rest unblocks a program that still waits, so that the test ends either way.
    reader.read_to_end(&mut Vec::new()).unwrap();
    asked.join().unwrap();
    assert_eq!(in_time, Ok(()));
}

fn fill(pipe: &mut std::io::PipeWriter) {
    let flags = |flags: i32| {
        // SAFETY: takes numbers only; the descriptor is open.
        assert_eq!(
            unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, flags) },
            0
        );
    };
    flags(libc::O_NONBLOCK);
    let mut pipe = pipe.try_clone().unwrap();
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    while pipe.write(b"x").is_ok() {}
    flags(0);
}

#[test]
fn a_line_for_which_a_file_may_not_grow_ends_nobody() {
    let slice = slice();
    let path = slice.machine().folder().join("stderr");
    std::fs::write(&path, [b'x'; 4096]).unwrap();
    let full = OwnedFd::from(File::options().append(true).open(&path).unwrap());
    let program = compile::worker();
    let run = slice
        .run("/bin/sh")
        .arg("-c")
        .arg("ulimit -f 1; exec \"$0\"");
    let run: Run = run.arg(program).env("GPUSLICE_LOG", "warn");
    goes_on(Worker::start(run.stderr(full)));
    assert_eq!(std::fs::read(&path).unwrap().len(), 4096);
}

/// What became of a log file that was there before, or not.
fn logged_to(path: &Path) -> String {
    let slice = slice();
    let run = slice.run(compile::worker()).env("GPUSLICE_LOG", "warn");
    let (mut reader, writer) = std::io::pipe().unwrap();
    goes_on(Worker::start(
        run.env("GPUSLICE_LOG_FILE", path).stderr(writer),
    ));
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(said, "", "nothing on standard error");
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_log_file_is_made_and_gets_its_lines_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for count in 1..3 {
        let log = logged_to(&path);
        assert_eq!(
            log.matches("refused 3221225472 bytes").count(),
            count,
            "{log}"
        );
    }
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    assert_eq!(
        logged_to(&empty)
            .matches("refused 3221225472 bytes")
            .count(),
        1
    );
}

#[test]
fn a_file_that_is_no_log_and_what_a_link_leads_to_stay_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("shadow");
    std::fs::write(&other, "root:*:19000\n").unwrap();
    assert_eq!(logged_to(&other), "root:*:19000\n");
    let (link, missing) = (folder.path().join("link"), folder.path().join("missing"));
    std::os::unix::fs::symlink(&missing, &link).unwrap();
    logged_to(&link);
    assert!(!missing.exists());
}

#[test]
fn a_log_file_of_another_user_gets_no_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, "gpuslice[1.1] WARN \n").unwrap();
    // Only root may give a file to another user, and only a program of root's could be misled.
    if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
        assert_eq!(logged_to(&path), "gpuslice[1.1] WARN \n");
    }
}

#[test]
fn what_is_read_late_is_complete() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    goes_on(worker(&slice(), writer));
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(
        said.matches("refused 3221225472 bytes").count(),
        1,
        "{said}"
    );
}
