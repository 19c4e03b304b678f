//! Tests of the calls by what the kernel does.
//! Touches: files on tmpfs and in /proc, a pipe, the clock.

#![expect(clippy::unwrap_used, reason = "a test that cannot start stops")]

use super::{Access, EACCES, EAGAIN, EINTR, EMFILE, ENOENT, ENOSYS, EPERM, Errno, Fd, Stat};
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::string::ToString;
use std::time::{Duration, Instant};
use std::{format, fs, io};

/// A file on tmpfs, which is removed with the folder.
fn file() -> (tempfile::TempDir, CString) {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "five\n").unwrap();
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    (folder, path)
}

#[test]
fn errors_say_what_they_mean() {
    assert!(EMFILE.is_passing() && EINTR.is_passing() && !ENOENT.is_passing());
    assert!(EAGAIN.is_locked() && EACCES.is_locked() && !ENOENT.is_locked());
    for forbidden in [EPERM, ENOSYS] {
        assert_eq!(forbidden.hint(), " (a seccomp filter may forbid it)");
    }
    assert_eq!(ENOENT.hint(), "");
    assert_eq!(
        ENOENT.to_string(),
        io::Error::from_raw_os_error(libc::ENOENT).to_string()
    );
}

#[test]
fn a_lock_is_that_of_one_open_file() {
    let (_folder, path) = file();
    let [one, other] = [(); 2].map(|()| Fd::open(&path, Access::Write).unwrap());
    assert!(one.lock(7));
    assert_eq!((one.locked(7), other.locked(7)), (Ok(false), Ok(true)));
    assert_eq!(
        (other.try_lock(7), other.try_lock(8)),
        (Ok(false), Ok(true))
    );
    one.unlock(7);
    assert_eq!(other.try_lock(7), Ok(true));
    let read = Fd::open(&path, Access::Read).unwrap();
    assert_eq!(read.try_lock(9), Err(Errno(libc::EBADF)));
}

#[test]
fn a_file_system_has_its_number() {
    let (_folder, path) = file();
    let on_tmpfs = Fd::open(&path, Access::Read).unwrap();
    assert_eq!(on_tmpfs.is_on_tmpfs(), Ok(true));
    let in_proc = Fd::open(c"/proc/version", Access::Read).unwrap();
    assert_eq!(in_proc.is_on_tmpfs(), Ok(false));
    let number = u64::try_from(libc::PROC_SUPER_MAGIC).unwrap();
    assert_eq!(super::file_system(in_proc.number()), Ok(number));
}

#[test]
fn a_descriptor_ends_at_exec() {
    let (_folder, path) = file();
    let fd = Fd::open(&path, Access::Read).unwrap();
    let flags = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.number())).unwrap();
    let flags = flags.lines().find_map(|line| line.strip_prefix("flags:\t"));
    let flags = i32::from_str_radix(flags.unwrap(), 8).unwrap();
    let wanted = libc::O_CLOEXEC | libc::O_NONBLOCK;
    assert_eq!(flags & wanted, wanted, "{flags:o}");
}

#[test]
fn metadata_are_those_of_the_file() {
    let (_folder, path) = file();
    let known = fs::metadata(std::ffi::OsStr::from_bytes(path.to_bytes())).unwrap();
    let modified = known.modified().unwrap();
    let modified = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
    let found = Stat::at(&path).unwrap();
    assert_eq!(u128::from(found.changed), modified.as_nanos());
    assert!(found.regular && !found.stream);
    assert_eq!(found.length, 5);
    let (reader, _writer) = io::pipe().unwrap();
    let pipe = Stat::of(reader.as_raw_fd()).unwrap();
    assert!(!pipe.regular && pipe.stream);
    let terminal = Stat::at(c"/dev/tty").unwrap();
    assert!(!terminal.regular && terminal.stream);
    let null = Stat::at(c"/dev/null").unwrap();
    assert!(!null.regular && !null.stream);
}

#[test]
fn the_clock_is_the_kernels_and_a_sleep_takes_its_time() {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: u64 = uptime.split('.').next().unwrap().parse().unwrap();
    // A machine that was suspended has a longer uptime.
    let seconds = super::seconds();
    assert!(seconds > 1 && seconds <= uptime + 2, "{seconds}, {uptime}");
    let start = Instant::now();
    super::sleep_us(20_000);
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_thread_knows_itself() {
    let thread = super::gettid();
    let of_kernel = fs::read_link("/proc/thread-self").unwrap();
    assert!(of_kernel.ends_with(thread.to_string()));
    assert_eq!(super::probe_thread(thread), Ok(()));
    // The kernel's highest pid is below 2^22.
    assert_eq!(super::probe_thread(1 << 22), Err(super::ESRCH));
    // libc has one for each of its threads.
    assert!(super::robust_list().is_some());
}

/// In a process of its own, because it closes the standard streams.
#[test]
fn a_file_never_gets_the_number_of_a_closed_stream() {
    const FILE: &str = "GPUSLICE_TEST_FILE";
    if let Some(path) = std::env::var_os(FILE) {
        let path = CString::new(path.as_bytes()).unwrap();
        std::process::exit(i32::from(!keeps_streams_apart(&path)));
    }
    let (_folder, path) = file();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args([
        "sys::tests::a_file_never_gets_the_number_of_a_closed_stream",
        "--exact",
    ]);
    child.env(FILE, std::ffi::OsStr::from_bytes(path.to_bytes()));
    let ended = child.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Whether files that are opened keep the numbers 0 and 2 free, and the program's own 1 open.
fn keeps_streams_apart(path: &CString) -> bool {
    (0..3).for_each(|number| drop(Fd::numbered(number)));
    let [zero, one] = [(); 2].map(|()| Fd::open_path(c"/").unwrap());
    assert_eq!((zero.number(), one.number()), (0, 1));
    drop(zero);
    let is_open = |number: usize| fs::metadata(format!("/proc/self/fd/{number}")).is_ok();
    let are_kept = || [0, 1, 2].map(is_open) == [false, true, false];
    let are_above = || {
        let mut accesses = [Access::Read, Access::Write].into_iter();
        accesses.all(|access| Fd::open(path, access).unwrap().number() > 2)
    };
    if !are_above() || !are_kept() {
        return false;
    }
    // Only 2 is free.
    let zero = Fd::open_path(c"/").unwrap();
    zero.number() == 0 && are_above() && !is_open(2)
}
