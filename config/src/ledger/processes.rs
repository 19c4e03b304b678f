//! Forks, kills and waits for the real processes of the crash tests.
//! Touches: fork(2), kill(2) and the like, so that the tests themselves stay readable.
#![expect(unsafe_code, reason = "fork")]
#![expect(clippy::unwrap_used, reason = "a test that cannot start stops")]

use super::protocol::layout::{Device, Kind};
use super::{Claim, Ledger, Locks, Open, SIZE, beginning};
use crate::words::device::{DeviceKind, DeviceUuid};
use crate::words::units::Bytes;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

pub(super) const UUID: DeviceUuid = DeviceUuid {
    kind: DeviceKind::Gpu,
    bytes: *b"a gpu of a slice",
};

/// A ledger on tmpfs in a folder of its own, and this test's turn.
pub(super) struct TestLedger {
    pub(super) folder: tempfile::TempDir,
    pub(super) ledger: Ledger,
    pub(super) gpu: Device,
    _turn: MutexGuard<'static, ()>,
}

/// Tests that fork take turns, because a fork copies the open files of a concurrent test.
static TURN: Mutex<()> = Mutex::new(());

impl TestLedger {
    pub(super) fn new() -> TestLedger {
        TestLedger::within("/dev/shm")
    }

    pub(super) fn within(parent: &str) -> TestLedger {
        let turn = TURN
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let folder = tempfile::tempdir_in(parent).unwrap();
        let open = Open::Create {
            mode: 0o666,
            devices: 1,
        };
        let ledger = Ledger::open(&c_path(&folder.path().join("ledger")), open).unwrap();
        let gpu = ledger.device(&UUID).unwrap();
        TestLedger {
            folder,
            ledger,
            gpu,
            _turn: turn,
        }
    }

    /// The path of a ledger whose locks are on the file beside it, and the path of that file.
    pub(super) fn sealed(&self) -> [PathBuf; 2] {
        let folder = self.folder.path().join("sealed");
        std::fs::create_dir(&folder).unwrap();
        let mut bytes = beginning(1, Locks::Beside).to_vec();
        bytes.resize(SIZE, 0);
        let paths = ["ledger", "locks"].map(|name| folder.join(name));
        for (path, bytes) in paths.iter().zip([&bytes[..], b""]) {
            std::fs::write(path, bytes).unwrap();
        }
        paths
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("ledger")
    }

    /// The ledger as a new process opens it.
    pub(super) fn open(&self) -> Ledger {
        Ledger::open(&c_path(&self.path()), Open::Existing).unwrap()
    }

    pub(super) fn claim(&self, bytes: u64) -> Claim {
        claim(&self.ledger, self.gpu, bytes)
    }

    pub(super) fn sum(&self) -> u64 {
        self.ledger.sum(self.gpu).get()
    }
}

pub(super) const LIMIT: u64 = 1000;

pub(super) fn claim(ledger: &Ledger, gpu: Device, bytes: u64) -> Claim {
    ledger.claim(gpu, Bytes::new(bytes), Kind::Linear, Bytes::new(LIMIT))
}

pub(super) fn c_path(path: &std::path::Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Exit(i32),
    Signal(i32),
}

/// A child, killed and waited for when it goes out of scope.
pub(super) struct Child {
    pub(super) pid: i32,
    says: i32,
    waited: bool,
}

/// The child's end of the pipe to its parent.
#[derive(Clone, Copy)]
pub(super) struct Voice(i32);

impl Voice {
    /// Sends the parent a number.
    pub(super) fn say(self, number: i32) {
        let bytes = number.to_ne_bytes();
        // SAFETY: `bytes` has four bytes.
        let wrote = unsafe { libc::write(self.0, bytes.as_ptr().cast(), 4) };
        assert_eq!(wrote, 4);
    }
}

impl Child {
    /// Forks; the child runs `life` and ends.
    pub(super) fn fork(life: impl FnOnce(Voice)) -> Child {
        Child::by(life, || {
            // SAFETY: the child runs our own code, takes no lock that a test thread may hold but
            // malloc's, which glibc looks after, and ends by _exit.
            unsafe { libc::fork() }
        })
    }

    /// Like [`fork`], by the bare system call, which libc does not notice.
    pub(super) fn clone(life: impl FnOnce(Voice)) -> Child {
        Child::by(life, || {
            // SAFETY: as for fork; the child allocates nothing.
            let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
            i32::try_from(pid).unwrap()
        })
    }

    fn by(life: impl FnOnce(Voice), fork: impl Fn() -> i32) -> Child {
        let mut ends = [0; 2];
        // SAFETY: the two ends are written to a live array.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let [says, voice] = ends;
        let pid = fork();
        assert!(pid >= 0, "fork failed");
        if pid == 0 {
            let lived = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
                life(Voice(voice));
            }));
            exit(if lived.is_ok() { 0 } else { 101 });
        }
        close(voice);
        Child {
            pid,
            says,
            waited: false,
        }
    }

    /// Waits for the next number from the child.
    pub(super) fn hear(&self) -> i32 {
        let mut bytes = [0; 4];
        // SAFETY: there is room for four bytes.
        let read = unsafe { libc::read(self.says, bytes.as_mut_ptr().cast(), 4) };
        assert_eq!(read, 4, "the child has ended");
        i32::from_ne_bytes(bytes)
    }

    /// Waits for the child's end.
    pub(super) fn wait(&mut self) -> End {
        let mut status = 0;
        // SAFETY: the status is written to a live word.
        let waited = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!(waited, self.pid);
        self.waited = true;
        match libc::WIFSIGNALED(status) {
            true => End::Signal(libc::WTERMSIG(status)),
            false => End::Exit(libc::WEXITSTATUS(status)),
        }
    }

    /// Kills the child and waits for its end.
    pub(super) fn kill(mut self) {
        kill(self.pid);
        assert_eq!(self.wait(), End::Signal(libc::SIGKILL));
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.waited {
            kill(self.pid);
            self.wait();
        }
        close(self.says);
    }
}

pub(super) fn kill(pid: i32) {
    // SAFETY: no pointers.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

pub(super) fn exit(code: i32) -> ! {
    // SAFETY: ends the process without running what belongs to its parent.
    unsafe { libc::_exit(code) }
}

pub(super) fn close(fd: i32) {
    // SAFETY: no pointers; the descriptor is the caller's.
    unsafe { libc::close(fd) };
}

/// Waits to be killed.
pub(super) fn sleep() -> ! {
    loop {
        // SAFETY: no pointers.
        unsafe { libc::pause() };
    }
}

pub(super) fn unshare(flags: i32) -> bool {
    // SAFETY: no pointers.
    let done = unsafe { libc::unshare(flags) };
    done == 0
}

pub(super) fn become_user(uid: u32) -> bool {
    // SAFETY: no pointers; the bare call changes this thread only, in a child with one thread.
    let done = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
    done == 0
}

pub(super) fn is_root() -> bool {
    // SAFETY: no arguments.
    let uid = unsafe { libc::geteuid() };
    uid == 0
}

/// Replaces this process's program.
pub(super) fn exec_sleep() {
    let (program, seconds) = (c"/bin/sleep", c"1000");
    let arguments = [program.as_ptr(), seconds.as_ptr(), core::ptr::null()];
    let environment = [core::ptr::null()];
    // SAFETY: both lists end with null, the strings with NUL.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
}

/// A robust mutex, leaked.
pub(super) fn robust_mutex() -> &'static RobustMutex {
    // SAFETY: zeros are a valid place for both initialisers.
    let mut mutex: libc::pthread_mutex_t = unsafe { core::mem::zeroed() };
    // SAFETY: as above.
    let mut attributes: libc::pthread_mutexattr_t = unsafe { core::mem::zeroed() };
    let robust = libc::PTHREAD_MUTEX_ROBUST;
    // SAFETY: initialised first, used, and moved only before the mutex is locked.
    unsafe { libc::pthread_mutexattr_init(&raw mut attributes) };
    // SAFETY: as above.
    unsafe { libc::pthread_mutexattr_setrobust(&raw mut attributes, robust) };
    // SAFETY: as above.
    unsafe { libc::pthread_mutex_init(&raw mut mutex, &raw const attributes) };
    std::boxed::Box::leak(std::boxed::Box::new(RobustMutex(mutex.into())))
}

pub(super) struct RobustMutex(core::cell::UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be used by several threads.
unsafe impl Sync for RobustMutex {}

impl RobustMutex {
    pub(super) fn lock(&self) -> i32 {
        // SAFETY: initialised, and never moved again.
        unsafe { libc::pthread_mutex_lock(self.0.get()) }
    }

    pub(super) fn unlock(&self) {
        // SAFETY: initialised; this thread holds it.
        assert_eq!(unsafe { libc::pthread_mutex_unlock(self.0.get()) }, 0);
    }
}

/// Restricts this process to writing and exiting; any other system call kills it.
pub(super) fn allow_only_writing() {
    let statement = |code: u32, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: 0,
        jf: 0,
        k,
    };
    let (load, equals, answer) = (libc::BPF_LD | libc::BPF_W, libc::BPF_JMP | libc::BPF_JEQ, 6);
    let allowed = [libc::SYS_write, libc::SYS_exit_group].map(|call| u32::try_from(call).unwrap());
    // The number of the call is the first word.
    let mut filter = std::vec![statement(load | libc::BPF_ABS, 0)];
    for call in allowed {
        filter.push(libc::sock_filter {
            jf: 1,
            ..statement(equals, call)
        });
        filter.push(statement(answer, libc::SECCOMP_RET_ALLOW));
    }
    filter.push(statement(answer, libc::SECCOMP_RET_KILL_PROCESS));
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap(),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: no pointers.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(done, 0);
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program is what the kernel documents, and lives until it is installed.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(done, 0);
}
