//! Opens a machine: the scenario, the mapped state, the lock. With a state directory all processes
//! share it. Without one it is private to the process and its fork children (two memory files that
//! are found again by name).
//! Touches: `DIR/machine`, `DIR/alive`, `DIR/meminfo`, or two memory files.

use crate::faults::Faults;
use crate::limits;
use crate::scenario::{Domain, Scenario, ScenarioError};
use crate::segments::SegmentId;
use crate::shared::{MAGIC, Shared};
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fmt, io, ptr};

/// Why a machine cannot be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The scenario is wrong.
    Scenario(ScenarioError),
    /// The state directory cannot be used.
    State(PathBuf, io::Error),
    /// The state directory belongs to another machine.
    Other {
        /// The scenario with which it was made.
        there: String,
        /// The scenario that was requested.
        asked: String,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(error) => error.fmt(f),
            Self::State(path, error) => write!(f, "cannot use state {}: {error}", path.display()),
            Self::Other { there, asked } => {
                write!(
                    f,
                    "the state directory is a running `{there}`, not `{asked}` (reset it or use another)"
                )
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// One simulated machine, as one process sees it.
pub struct Machine {
    /// The scenario that describes the machine.
    pub scenario: Scenario,
    /// The machine's memories.
    pub domains: Vec<Domain>,
    /// Faults that are injected on purpose.
    pub faults: Faults,
    pub(crate) shared: &'static Shared,
    /// Never closed: closing any descriptor of the file would release this process's record lock.
    pub(crate) alive: &'static File,
    pub(crate) meminfo: Option<File>,
    pub(crate) image: u64,
    /// This process's slot, `usize::MAX` before its first context.
    pub(crate) slot: AtomicUsize,
    path: PathBuf,
    lock_file: AtomicI32,
    lock_pid: AtomicU32,
    holder: AtomicU32,
    born: *const AtomicBool,
}

// SAFETY: `born` points to a page that lives as long as the machine and holds an atomic; everything else is
// Send and Sync.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

impl Machine {
    /// Opens the machine that the environment names: `GPUSLICE_SIM`, `GPUSLICE_SIM_STATE`,
    /// `GPUSLICE_SIM_FAULTS`.
    pub fn from_environment() -> Result<Self, OpenError> {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let state = text("GPUSLICE_SIM_STATE").map(PathBuf::from);
        let faults = text("GPUSLICE_SIM_FAULTS").unwrap_or_default();
        Self::start(text("GPUSLICE_SIM").as_deref(), state.as_deref(), &faults)
    }

    /// Opens the machine that the environment names, for a library of the driver. None, with a line on
    /// standard error, if it cannot be opened or a fault in the environment does not exist.
    pub fn of_this_process() -> Option<Self> {
        match Machine::from_environment() {
            Ok(machine) if machine.faults.unknown().is_empty() => Some(machine),
            Ok(machine) => {
                eprintln!(
                    "gpuslice-sim: there is no fault {:?}",
                    machine.faults.unknown()
                );
                None
            }
            Err(error) => {
                eprintln!("gpuslice-sim: {error}");
                None
            }
        }
    }

    /// Opens the machine that lives in a state directory, for a tool or a test that observes it.
    pub fn open(state: &Path) -> Result<Self, OpenError> {
        Self::start(None, Some(state), "")
    }

    /// Opens or starts a machine. Without a scenario it is the machine that already runs there, or
    /// an RTX 3090.
    pub fn start(
        scenario: Option<&str>,
        state: Option<&Path>,
        faults: &str,
    ) -> Result<Self, OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| OpenError::State(path, error)
        };
        let (path, alive) = match state {
            Some(dir) => {
                fs::create_dir_all(dir).map_err(failed(dir))?;
                (dir.join("machine"), dir.join("alive"))
            }
            None => (
                private("gpuslice-sim-machine").map_err(failed(Path::new("memory file")))?,
                private("gpuslice-sim-alive").map_err(failed(Path::new("memory file")))?,
            ),
        };
        let file = open(&path).map_err(failed(&path))?;
        let lock = Flock::take(&file);
        let fresh = file.metadata().map_err(failed(&path))?.len() == 0;
        let shared = map(&file).map_err(failed(&path))?;
        let running = shared.scenario.get();
        let fresh = fresh || shared.magic.load(Ordering::Acquire) != MAGIC;
        let name = match (fresh, scenario) {
            (true, asked) => asked.unwrap_or("rtx3090").to_owned(),
            (false, Some(asked)) if asked != running => {
                return Err(OpenError::Other {
                    there: running,
                    asked: asked.to_owned(),
                });
            }
            (false, _) => running,
        };
        let scenario = Scenario::load(&name).map_err(OpenError::Scenario)?;
        if fresh {
            shared.scenario.set(&name);
            shared.next_segment.store(1, Ordering::Relaxed);
            if let Some(host) = &scenario.host {
                shared
                    .cache
                    .store(host.mem_available - host.mem_free, Ordering::Relaxed);
            }
            shared.magic.store(MAGIC, Ordering::Release);
        }
        let meminfo = match (&scenario.host, state) {
            (Some(_), Some(dir)) => Some(open(&dir.join("meminfo")).map_err(failed(dir))?),
            _ => None,
        };
        if let (Some(text), Some(dir), true) = (limits::capacity(&scenario), state, fresh) {
            fs::write(dir.join(limits::CAPACITY), text).map_err(failed(dir))?;
        }
        let alive = keep_open(&alive).map_err(failed(&alive))?;
        drop(lock);
        let born = born().map_err(failed(&path))?;
        let machine = Self {
            domains: scenario.domains(),
            scenario,
            faults: Faults::parse(faults),
            shared,
            alive,
            meminfo,
            image: crate::alive::image(),
            slot: AtomicUsize::new(usize::MAX),
            path,
            lock_file: AtomicI32::new(std::os::fd::IntoRawFd::into_raw_fd(file)),
            lock_pid: AtomicU32::new(std::process::id()),
            holder: AtomicU32::new(0),
            born,
        };
        machine.locked(|| {
            // The written meminfo must not count the memory of dead processes.
            machine.reap();
            machine.write_meminfo();
        });
        Ok(machine)
    }

    /// Is this still the process that opened the machine (and not its fork child)?
    #[must_use]
    #[inline]
    pub fn own_process(&self) -> bool {
        // SAFETY: `born` is a live page for as long as the machine; the kernel wipes it to 0 in
        // fork children.
        unsafe { (*self.born).load(Ordering::Relaxed) }
    }

    /// Makes a fork child the owner: for a driver that was loaded but not initialised before the
    /// fork.
    pub fn adopt(&self) {
        // SAFETY: as in `own_process`.
        unsafe { (*self.born).store(true, Ordering::Relaxed) };
    }

    /// Runs `f` while no other thread or process changes the machine.
    pub(crate) fn locked<R>(&self, f: impl FnOnce() -> R) -> R {
        let pid = std::process::id();
        loop {
            match self
                .holder
                .compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break,
                // The holder was a thread of the parent process. This fork child does not have that
                // thread.
                Err(other) if other != pid => {
                    let stolen = self.holder.compare_exchange(
                        other,
                        pid,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    );
                    if stolen.is_ok() {
                        break;
                    }
                }
                Err(_) => std::thread::yield_now(),
            }
        }
        if self.lock_pid.load(Ordering::Relaxed) != pid {
            // An inherited descriptor shares its lock with the parent; this process needs its own.
            if let Ok(file) = open(&self.path) {
                self.lock_file
                    .store(std::os::fd::IntoRawFd::into_raw_fd(file), Ordering::Relaxed);
            }
            self.lock_pid.store(pid, Ordering::Relaxed);
        }
        let fd = self.lock_file.load(Ordering::Relaxed);
        flock(fd, libc::LOCK_EX);
        let result = f();
        flock(fd, libc::LOCK_UN);
        self.holder.store(0, Ordering::Release);
        result
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the descriptor came from `into_raw_fd` and nobody else closes it.
        drop(unsafe { File::from_raw_fd(self.lock_file.load(Ordering::Relaxed)) });
        let shared = ptr::from_ref(self.shared).cast_mut().cast();
        // SAFETY: mapped by `map` for this machine, and nobody uses the mapping after it.
        unsafe { libc::munmap(shared, size_of::<Shared>()) };
        // SAFETY: as above, by `born`.
        unsafe { libc::munmap(self.born.cast_mut().cast(), 4096) };
    }
}

struct Flock<'a>(&'a File);

impl<'a> Flock<'a> {
    fn take(file: &'a File) -> Self {
        flock(file.as_raw_fd(), libc::LOCK_EX);
        Self(file)
    }
}

impl Drop for Flock<'_> {
    fn drop(&mut self) {
        flock(self.0.as_raw_fd(), libc::LOCK_UN);
    }
}

/// Takes or releases the lock. A test may let one system call fail, and a lock that is not released
/// would stop every process: so a failure is tried again. Under a filter that lets each call fail,
/// the process goes on without the lock.
fn flock(fd: i32, what: i32) {
    let mut attempts = 0;
    // SAFETY: flock takes a descriptor and a number; a closed descriptor is an error, not
    // undefined.
    while unsafe { libc::flock(fd, what) } != 0 && attempts < 3 {
        let was_interrupted = io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        attempts += i32::from(!was_interrupted);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o666)
        .open(path)
}

/// Files that one process opens once and never closes, by device and inode.
static KEPT: Mutex<Vec<(u64, u64, &'static File)>> = Mutex::new(Vec::new());

/// Opens the lock file, or returns the one that this process already has. Closing even a second
/// descriptor of it would release the record lock that marks this process as alive.
fn keep_open(path: &Path) -> io::Result<&'static File> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(there) = fs::metadata(path) {
        let known = kept
            .iter()
            .find(|it| (it.0, it.1) == (there.dev(), there.ino()));
        if let Some((_, _, file)) = known {
            return Ok(file);
        }
    }
    let file: &'static File = Box::leak(Box::new(open(path)?));
    let there = file.metadata()?;
    kept.push((there.dev(), there.ino(), file));
    Ok(file)
}

fn map(file: &File) -> io::Result<&'static Shared> {
    let size = size_of::<Shared>();
    if file.metadata()?.len() < size as u64 {
        file.set_len(size as u64)?;
    }
    // SAFETY: a new mapping at an address the kernel chooses; the file is at least `size` long.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: page-aligned, `size` bytes, mapped until the machine is dropped, and Shared consists of
    // atomics, valid for any bytes.
    Ok(unsafe { &*at.cast::<Shared>() })
}

/// A page that the kernel empties in every fork child, however the child was forked.
///
/// # Errors
/// When the process gets no page.
fn born() -> io::Result<*const AtomicBool> {
    // SAFETY: a new private mapping at an address the kernel chooses.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: advises the page mapped above.
    unsafe { libc::madvise(at, 4096, libc::MADV_WIPEONFORK) };
    let flag = at.cast::<AtomicBool>();
    // SAFETY: mapped above, and zeroed.
    unsafe { &*flag }.store(true, Ordering::Relaxed);
    Ok(flag)
}

/// The path of this process's memory file of that name, which is found among the open descriptors
/// or created. If two were created at the same moment, every thread takes the one with the lower
/// number.
fn private(name: &str) -> io::Result<PathBuf> {
    if let Some(path) = find_private(name)? {
        return Ok(path);
    }
    let c_name = std::ffi::CString::new(name)?;
    let fd = memory_file(&c_name)?;
    // SAFETY: a fresh descriptor that nobody else owns; it stays open so that the file can be found
    // again.
    std::mem::forget(unsafe { File::from_raw_fd(fd) });
    find_private(name)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// `memfd_create`, by number: glibc before 2.27 has no function of that name.
///
/// # Errors
/// The kernel's.
pub fn memory_file(name: &std::ffi::CStr) -> io::Result<i32> {
    // SAFETY: the name is a live C string.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) };
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The segment of a descriptor that the simulated Vulkan driver has exported, and the size of its
/// memory. The segment's number stands behind the memory.
#[must_use]
pub fn segment_of(file: &File) -> Option<(SegmentId, u64)> {
    let bytes = file.metadata().ok()?.len().checked_sub(8)?;
    let mut id = [0; 8];
    file.read_exact_at(&mut id, bytes).ok()?;
    Some((u64::from_ne_bytes(id), bytes))
}

fn find_private(name: &str) -> io::Result<Option<PathBuf>> {
    let wanted = format!("/memfd:{name} (deleted)");
    let mut lowest: Option<u32> = None;
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        if fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str())
            && let Some(fd) = entry.file_name().to_str().and_then(|fd| fd.parse().ok())
        {
            lowest = Some(lowest.map_or(fd, |known| known.min(fd)));
        }
    }
    Ok(lowest.map(|fd| PathBuf::from(format!("/proc/self/fd/{fd}"))))
}
