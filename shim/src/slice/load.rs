//! Loads this process's slice once, or finds that it has none.
//! Touches: the slice file, the environment, once.
//! Law: loaded at the first intercepted call. Blocks no thread, survives fork, may run twice. Needs no
//! more than a few hundred bytes of the calling thread's stack.
//! Everything is written to its final place, and never lies on the stack of the calling thread.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuslice_config::slice::{DeviceSlice, MAX_DEVICES, MAX_FILE, Slice};
use gpuslice_config::words::paths;
use once_cell::race::OnceRef;

use crate::log::Piece::{Raw, Str};
use crate::log::{self, Level};
use crate::slice::loaded_slice::{LoadedSlice, Mounted};
use crate::slice::source::{
    NO_MEMORY, Opened, PASSING, begin, find, in_environment, open, refuse, unusable,
};
use crate::sys::{self, File, stack};

/// The outcome of loading, for the rest of the process's life.
struct Loaded {
    slice: Option<&'static LoadedSlice>,
    /// There is no slice, and none was configured.
    unsliced: bool,
    /// The host's settings, which hold without limits too.
    host: Option<&'static LoadedSlice>,
}

static NOTHING: Loaded = Loaded {
    slice: None,
    unsliced: false,
    host: None,
};

static UNSLICED: Loaded = Loaded {
    unsliced: true,
    ..NOTHING
};

#[unsafe(link_section = ".data")]
static LOADED: OnceRef<'static, Loaded> = OnceRef::new();

/// The process's slice. None: there is none, and the driver's answers stand.
#[inline]
pub(crate) fn current() -> Option<&'static LoadedSlice> {
    match LOADED.get() {
        Some(loaded) => loaded.slice,
        None => first(),
    }
}

/// Whether loading has already found that there is no slice: files that the program opens do not
/// matter then.
#[inline]
pub(crate) fn is_known_to_be_unsliced() -> bool {
    LOADED.get().is_some_and(|loaded| loaded.slice.is_none())
}

#[cold]
#[inline(never)]
fn first() -> Option<&'static LoadedSlice> {
    loaded().slice
}

fn loaded() -> &'static Loaded {
    LOADED.get().unwrap_or_else(load_on_a_large_stack)
}

/// Loads on a stack of its own: a thread may have as little as 16 KiB, which loading would exceed.
#[cold]
#[inline(never)]
fn load_on_a_large_stack() -> &'static Loaded {
    extern "C" fn load_to(place: *mut c_void) -> u8 {
        let loaded = Some(load());
        // SAFETY: `place` is the variable below, which lives across this call.
        unsafe { place.cast::<Option<&'static Loaded>>().write(loaded) };
        0
    }
    let mut loaded: Option<&'static Loaded> = None;
    let place = (&raw mut loaded).cast();
    // Without memory for a stack, the caller's has to do.
    match stack::on_a_large_one(load_to, place) {
        Some(_) => loaded.unwrap_or_else(load),
        None => load(),
    }
}

fn load() -> &'static Loaded {
    match build() {
        Built::Slice(loaded) => LOADED.get_or_init(|| loaded),
        Built::NoMemory(path) => {
            let loaded = REFUSED.get().or_else(of_another_thread);
            loaded.unwrap_or_else(|| refused_for_now(path, NO_MEMORY))
        }
        Built::Later(path) => refused_for_now(path, PASSING),
    }
}

/// The outcome of one attempt to load.
enum Built {
    /// The slice is loaded, or there is none.
    Slice(&'static Loaded),
    /// The kernel refuses memory for it.
    NoMemory(&'static CStr),
    /// The process has no free descriptor to read its file.
    Later(&'static CStr),
}

/// The slice that refuses all device memory until the slice file can be loaded.
static REFUSED: OnceRef<'static, Loaded> = OnceRef::new();

/// Refuses all device memory until the slice file can be loaded: the next call tries again.
#[cold]
fn refused_for_now(path: &'static CStr, why: &[u8]) -> &'static Loaded {
    if let Some(refused) = REFUSED.get() {
        return refused;
    }
    match Refusing::place() {
        Some(place) => {
            unusable(path, why);
            refuse(&mut place.slice);
            let refused = lay_out(None, path, &mut place.laid, &mut place.slice, &mut []);
            REFUSED.get_or_init(|| refused)
        }
        // Another thread is writing it, for microseconds.
        None => wait_for(&REFUSED).unwrap_or(&NOTHING),
    }
}

/// The place of the slice that refuses, as a static: it is needed where the kernel refuses memory.
#[repr(C)]
struct Refusing {
    laid: LaidOut,
    slice: MaybeUninit<Slice>,
}

impl Refusing {
    /// The place, for the thread that asks first. A forked child may take it again, because the
    /// thread that was writing to it may not exist in the child.
    fn place() -> Option<&'static mut Refusing> {
        struct Static(UnsafeCell<MaybeUninit<Refusing>>);
        // SAFETY: only the thread that has put its process's number into WRITER accesses it.
        unsafe impl Sync for Static {}
        static PLACE: Static = Static(UnsafeCell::new(MaybeUninit::zeroed()));
        static WRITER: AtomicU64 = AtomicU64::new(0);
        let (writer, own) = (WRITER.load(Ordering::Relaxed), sys::pid());
        if writer == own {
            return None;
        }
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        let taken = WRITER.compare_exchange(writer, own, acquire, relaxed);
        // SAFETY: exclusively ours, by WRITER. All zeros is a valid Refusing.
        taken.ok().map(|_| unsafe { &mut *PLACE.0.get().cast() })
    }
}

/// Waits for the slice that another thread is loading, where the kernel refuses memory for a second
/// place. None: that thread has not finished.
#[cold]
fn of_another_thread() -> Option<&'static Loaded> {
    wait_for(&LOADED)
}

fn wait_for(outcome: &OnceRef<'static, Loaded>) -> Option<&'static Loaded> {
    for _ in 0..WAITS {
        if let Some(loaded) = outcome.get() {
            return Some(loaded);
        }
        sys::nap();
    }
    None
}

/// The number of waits: about a second in total.
const WAITS: u32 = 15_000;

/// The host's settings where there is no slice. None: there is a slice, even if it cannot be used.
pub(crate) fn unsliced() -> Option<&'static LoadedSlice> {
    static HOST: OnceRef<'static, LoadedSlice> = OnceRef::new();
    let loaded = Some(loaded()).filter(|loaded| loaded.unsliced)?;
    let usual = || {
        let place = Storage::map().ok_or(())?;
        let slice = begin(&mut place.slice);
        Ok::<_, ()>(
            (*place
                .laid
                .loaded_slice
                .write(LoadedSlice::new(slice, &[], Mounted::No)))
            .publish(),
        )
    };
    loaded.host.or_else(|| HOST.get_or_try_init(usual).ok())
}

/// The final place of a slice: only the pages that are used cost memory.
#[repr(C)]
struct Storage {
    laid: LaidOut,
    slice: MaybeUninit<Slice>,
    text: [u8; MAX_FILE],
    listed: [MaybeUninit<DeviceSlice>; MAX_DEVICES],
}

/// The part of a place that answers point to.
#[repr(C)]
struct LaidOut {
    loaded: MaybeUninit<Loaded>,
    loaded_slice: MaybeUninit<LoadedSlice>,
}

/// The place of a process's first slice, as a static: a mapping would cost more.
struct FirstStorage(UnsafeCell<MaybeUninit<Storage>>);

// SAFETY: only the thread that has moved FIRST_TAKEN to true accesses it.
unsafe impl Sync for FirstStorage {}

static FIRST_STORAGE: FirstStorage = FirstStorage(UnsafeCell::new(MaybeUninit::zeroed()));

#[unsafe(link_section = ".data")]
static FIRST_TAKEN: AtomicBool = AtomicBool::new(false);

fn build() -> Built {
    let (file, path) = match open() {
        Opened::Nothing => return Built::Slice(&UNSLICED),
        Opened::File(file, path) => (Ok(file), path),
        Opened::Failed(path, why) if why.is_passing() && in_environment(path).is_none() => {
            return Built::Later(path);
        }
        Opened::Failed(path, why) => (Err(why), path),
    };
    match Storage::map() {
        Some(place) => Built::Slice(understand(file, path, place)),
        None => Built::NoMemory(path),
    }
}

impl Storage {
    fn map() -> Option<&'static mut Storage> {
        let (relaxed, acquire) = (Ordering::Relaxed, Ordering::Acquire);
        let taken = FIRST_TAKEN.compare_exchange(false, true, acquire, relaxed);
        let place = match taken {
            Ok(_) => FIRST_STORAGE.0.get().cast::<Storage>(),
            Err(_) => sys::map(size_of::<Storage>()).ok()?.cast::<Storage>(),
        };
        // SAFETY: exclusively ours: by FIRST_TAKEN, or as a fresh page-aligned mapping of that
        // size. All zeros is a valid Storage.
        Some(unsafe { &mut *place })
    }
}

/// Builds a slice in its place, never on the stack.
fn understand(
    file: Result<File, sys::Errno>,
    path: &'static CStr,
    place: &'static mut Storage,
) -> &'static Loaded {
    let found = find(file, path, &mut place.text, &mut place.slice);
    if found.is_none() {
        refuse(&mut place.slice);
    }
    let Storage {
        laid,
        slice,
        listed,
        ..
    } = place;
    lay_out(found, path, laid, slice, listed)
}

/// Lays out a slice that was read from `found`, or else refuses.
fn lay_out(
    found: Option<&'static CStr>,
    path: &'static CStr,
    laid: &'static mut LaidOut,
    slice: &'static mut MaybeUninit<Slice>,
    listed: &'static mut [MaybeUninit<DeviceSlice>],
) -> &'static Loaded {
    let refuses = found.is_none();
    let path = found.unwrap_or(path);
    // SAFETY: `parse` or `refuse` has initialised it.
    let slice: &'static Slice = unsafe { slice.assume_init_mut() };
    let limits = slice.limits_something();
    log::name_slice(&slice.name);
    let line = [
        Str("libgpuslice.so is loaded, with the slice of "),
        Raw(path.to_bytes()),
    ];
    if limits && !refuses {
        log::say(Level::Info, &line, None);
    }
    let mounted = match refuses {
        true => Mounted::Unreadable,
        false if core::ptr::eq(path, paths::MOUNTED_SLICE) => Mounted::InRoot,
        false if core::ptr::eq(path, paths::MOUNTED_IN_DEV) => Mounted::InDev,
        false => Mounted::No,
    };
    let listed = list(slice, listed);
    let loaded_slice = (*laid
        .loaded_slice
        .write(LoadedSlice::new(slice, listed, mounted)))
    .publish();
    laid.loaded.write(Loaded {
        slice: limits.then_some(loaded_slice),
        unsliced: !limits,
        host: Some(loaded_slice),
    })
}

/// The budgets of the listed devices, in the slice's order.
fn list<'a>(slice: &Slice, places: &'a mut [MaybeUninit<DeviceSlice>]) -> &'a [DeviceSlice] {
    let budgets = slice
        .devices()
        .filter_map(|listed| slice.device(listed.uuid));
    let mut count = 0usize;
    for (place, budget) in places.iter_mut().zip(budgets) {
        place.write(budget);
        count = count.saturating_add(1);
    }
    let written = places.get(..count).unwrap_or_default();
    // SAFETY: the loop has initialised the first `count`.
    unsafe { written.assume_init_ref() }
}
