//! Loads this process's slice once, or finds that it has none.
//! Touches: the slice file, the environment, once.
//! Law: loaded at the first intercepted call. Blocks no thread, survives fork, may run twice.
//! Everything is written to its final place, and never lies on the stack of the calling thread.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::fmt::Write;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use gpuslice_config::slice::{self, DeviceSlice, MAX_DEVICES, MAX_FILE, Slice};
use gpuslice_config::words::paths;
use gpuslice_config::words::units::Bytes;
use once_cell::race::OnceRef;

use crate::log::Piece::{Raw, Str};
use crate::log::counters;
use crate::log::{self, Level};
use crate::slice::runtime::{Mounted, Runtime};
use crate::sys::{self, File, Stat};

/// The outcome of loading, for the rest of the process's life.
struct Told {
    runtime: Option<&'static Runtime>,
    /// There is no slice, and none was configured.
    unsliced: bool,
    /// The host's settings, which hold without limits too.
    host: Option<&'static Runtime>,
}

static NOTHING: Told = Told {
    runtime: None,
    unsliced: false,
    host: None,
};

static UNSLICED: Told = Told {
    unsliced: true,
    ..NOTHING
};

#[unsafe(link_section = ".data")]
static TOLD: OnceRef<'static, Told> = OnceRef::new();

/// The process's slice. None: there is none, and the driver's answers stand.
#[inline]
pub(crate) fn slice() -> Option<&'static Runtime> {
    match TOLD.get() {
        Some(told) => told.runtime,
        None => first(),
    }
}

/// Whether loading has already found that there is no slice: files that the program opens do not
/// matter then.
#[inline]
pub(crate) fn is_known_to_be_unsliced() -> bool {
    TOLD.get().is_some_and(|told| told.runtime.is_none())
}

#[cold]
#[inline(never)]
fn first() -> Option<&'static Runtime> {
    told().runtime
}

fn told() -> &'static Told {
    if let Some(told) = TOLD.get() {
        return told;
    }
    match build() {
        Built::Slice(told) => TOLD.get_or_init(|| told),
        Built::NoMemory => of_another_thread().unwrap_or(&NOTHING),
        Built::Later(path, why) => refused_for_now(path, why),
    }
}

/// The outcome of one attempt to load.
enum Built {
    /// The slice is loaded, or there is none.
    Slice(&'static Told),
    /// The kernel refuses memory for it.
    NoMemory,
    /// The process has no free descriptor to read its file.
    Later(&'static CStr, sys::Errno),
}

/// A slice that refuses all device memory until the slice file can be opened: the next call tries
/// again.
#[cold]
fn refused_for_now(path: &'static CStr, why: sys::Errno) -> &'static Told {
    static REFUSED: OnceRef<'static, Told> = OnceRef::new();
    let refused = || {
        let place = Place::map().ok_or(())?;
        Ok::<_, ()>(understand(Err(why), path, place))
    };
    REFUSED.get_or_try_init(refused).unwrap_or(&NOTHING)
}

/// Whether the error that prevented opening a file is temporary.
fn is_passing(why: sys::Errno) -> bool {
    matches!(why, sys::EMFILE | sys::ENFILE | sys::ENOMEM | sys::EINTR)
}

/// Waits for the slice that another thread is loading, where the kernel refuses memory for a second
/// place. None: that thread has not finished. The next call tries again, because "no slice" is not
/// stored.
#[cold]
fn of_another_thread() -> Option<&'static Told> {
    for _ in 0..WAITS {
        if let Some(told) = TOLD.get() {
            return Some(told);
        }
        sys::nap();
    }
    None
}

/// The number of waits: about a second in total.
const WAITS: u32 = 15_000;

/// The host's settings where there is no slice. None: there is a slice, even if it cannot be used.
pub(crate) fn unsliced() -> Option<&'static Runtime> {
    static HOST: OnceRef<'static, Runtime> = OnceRef::new();
    let told = Some(told()).filter(|told| told.unsliced)?;
    let usual = || {
        let place = Place::map().ok_or(())?;
        let slice = begin(&mut place.slice);
        Ok::<_, ()>((*place.runtime.write(Runtime::of(slice, &[], Mounted::No))).is_placed())
    };
    told.host.or_else(|| HOST.get_or_try_init(usual).ok())
}

/// The final place of a slice: only the pages that are used cost memory.
#[repr(C)]
struct Place {
    told: MaybeUninit<Told>,
    runtime: MaybeUninit<Runtime>,
    slice: MaybeUninit<Slice>,
    text: [u8; MAX_FILE],
    listed: [MaybeUninit<DeviceSlice>; MAX_DEVICES],
}

/// The place of a process's first slice, as a static: a mapping would cost more.
struct FirstPlace(UnsafeCell<MaybeUninit<Place>>);

// SAFETY: only the thread that has moved FIRST_TAKEN to true accesses it.
unsafe impl Sync for FirstPlace {}

static FIRST_PLACE: FirstPlace = FirstPlace(UnsafeCell::new(MaybeUninit::zeroed()));

#[unsafe(link_section = ".data")]
static FIRST_TAKEN: AtomicBool = AtomicBool::new(false);

fn build() -> Built {
    let (file, path) = match open() {
        Opened::Nothing => return Built::Slice(&UNSLICED),
        Opened::File(file, path) => (Ok(file), path),
        Opened::Failed(path, why) if is_passing(why) && in_environment(path).is_none() => {
            return Built::Later(path, why);
        }
        Opened::Failed(path, why) => (Err(why), path),
    };
    match Place::map() {
        Some(place) => Built::Slice(understand(file, path, place)),
        None => Built::NoMemory,
    }
}

impl Place {
    fn map() -> Option<&'static mut Place> {
        let (relaxed, acquire) = (Ordering::Relaxed, Ordering::Acquire);
        let taken = FIRST_TAKEN.compare_exchange(false, true, acquire, relaxed);
        let place = match taken {
            Ok(_) => FIRST_PLACE.0.get().cast::<Place>(),
            Err(_) => sys::map(size_of::<Place>()).ok()?.cast::<Place>(),
        };
        // SAFETY: exclusively ours: by FIRST_TAKEN, or as a fresh page-aligned mapping of that
        // size. All zeros is a valid Place.
        Some(unsafe { &mut *place })
    }
}

/// The result of looking for a slice file.
enum Opened {
    Nothing,
    File(File, &'static CStr),
    Failed(&'static CStr, sys::Errno),
}

fn open() -> Opened {
    for mounted in [paths::MOUNTED_SLICE, paths::MOUNTED_IN_DEV] {
        match File::open(mounted) {
            // A file that the hook has mounted wins, even when it cannot be used.
            Ok(file) => return Opened::File(file, mounted),
            Err(sys::ENOENT | sys::ENOTDIR) => {}
            // Without a free descriptor, `open` does not reveal whether the file exists.
            Err(why) if is_passing(why) && !is_there(mounted) => {}
            Err(why) => return Opened::Failed(mounted, why),
        }
    }
    let Some(path) = log::environment(paths::CONFIG).filter(|path| !path.is_empty()) else {
        if log::environment(paths::SLICE).is_some_and(|text| !text.is_empty()) {
            // The variable with the text is set: only the one that names the file was lost on the
            // way.
            return Opened::Failed(paths::CONFIG, sys::ENOENT);
        }
        log::say(Level::Debug, "slice", &[Str("loaded, no slice")], None);
        return Opened::Nothing;
    };
    match File::open(path) {
        Ok(file) => Opened::File(file, path),
        Err(why) => Opened::Failed(path, why),
    }
}

/// Whether the file exists. Uses no descriptor.
fn is_there(path: &CStr) -> bool {
    !matches!(Stat::at(path), Err(sys::ENOENT | sys::ENOTDIR))
}

/// Whether the hook has mounted the file.
fn is_mounted(path: &CStr) -> bool {
    [paths::MOUNTED_SLICE, paths::MOUNTED_IN_DEV].contains(&path)
}

/// The slice as of the start of the run, which the environment carries beside the file's name. An
/// image can set a container's environment, so this never replaces a file that the hook mounted.
fn in_environment(path: &CStr) -> Option<&'static CStr> {
    let text = log::environment(paths::SLICE).filter(|text| !text.is_empty());
    text.filter(|_| !is_mounted(path) && path != paths::SLICE)
}

/// The reason logged when a file cannot be opened for want of descriptors or memory.
const PASSING: &[u8] = b"cannot be opened for the moment (too many open files?)";

/// Logs why a slice cannot be read, and the consequence.
#[cold]
#[inline(never)]
fn unusable(path: &CStr, why: &[u8]) {
    let follows = if in_environment(path).is_some() {
        "; the slice as it was at the start stays in force"
    } else if why == PASSING {
        "; GPU memory is refused until it can be opened"
    } else if is_mounted(path) {
        "; GPU memory is refused (start the container again)"
    } else {
        "; GPU memory is refused (repair the file, or unset GPUSLICE_CONFIG)"
    };
    let line = [Raw(path.to_bytes()), Str(": "), Raw(why), Str(follows)];
    counters::SLICE.say("slice", &line);
}

/// Reads the slice file into its place.
fn read<'a>(file: &File, path: &CStr, text: &'a mut [u8; MAX_FILE]) -> Option<&'a [u8]> {
    let length = match file.length() {
        Ok(length) if length <= MAX_FILE => length,
        Ok(_) => {
            unusable(path, b"larger than a slice file can be");
            return None;
        }
        Err(sys::EINVAL) => {
            unusable(path, b"not a regular file");
            return None;
        }
        Err(why) => {
            let mut text = log::Text::<96>::new();
            let hint = match why {
                sys::EPERM | sys::ENOSYS => "; a seccomp filter may forbid it",
                _ => "",
            };
            let sys::Errno(number) = why;
            let _ = write!(
                text,
                "cannot be examined (fstat fails with errno {number}{hint})"
            );
            unusable(path, text.as_bytes());
            return None;
        }
    };
    match file.read(text.get_mut(..length).unwrap_or_default()) {
        Ok(text) => Some(text),
        Err(_) => {
            unusable(path, b"cannot be read");
            None
        }
    }
}

/// Parses a slice into its place; logs the error if that fails.
fn parse(text: &[u8], path: &CStr, place: &mut MaybeUninit<Slice>) -> bool {
    let parsed = slice::parse_into(text, begin(place));
    if let Err(error) = &parsed {
        tell(path, error);
    }
    parsed.is_ok()
}

/// Reads the slice from the file, or else from the environment. Returns the source.
#[cold]
#[inline(never)]
fn find(
    file: Result<File, sys::Errno>,
    path: &'static CStr,
    text: &mut [u8; MAX_FILE],
    place: &mut MaybeUninit<Slice>,
) -> Option<&'static CStr> {
    let text = match file {
        Ok(file) => read(&file, path, text),
        Err(why) => {
            unusable(
                path,
                match why {
                    _ if path == paths::CONFIG => b"is not set",
                    sys::ENOENT | sys::ENOTDIR => b"does not exist",
                    sys::EACCES => b"this user may not open it",
                    why if is_passing(why) => PASSING,
                    _ => b"cannot be opened",
                },
            );
            None
        }
    };
    if text.is_some_and(|text| parse(text, path, place)) {
        return Some(path);
    }
    let text = in_environment(path)?.to_bytes();
    parse(text, paths::SLICE, place).then_some(paths::SLICE)
}

/// A slice that grants no memory of any device and changes nothing else: one was configured, and
/// its limit is unknown.
#[cold]
#[inline(never)]
fn refuse(place: &mut MaybeUninit<Slice>) {
    let slice = begin(place);
    *slice = Slice::default();
    slice.memory = Some(Bytes::new(1 << 60));
}

/// Builds a slice in its place, never on the stack.
fn understand(
    file: Result<File, sys::Errno>,
    path: &'static CStr,
    place: &'static mut Place,
) -> &'static Told {
    let found = find(file, path, &mut place.text, &mut place.slice);
    if found.is_none() {
        refuse(&mut place.slice);
    }
    let refuses = found.is_none();
    let path = found.unwrap_or(path);
    // SAFETY: `parse` or `refuse` has initialised it.
    let slice = unsafe { place.slice.assume_init_mut() };
    let limits = slice.limits_something();
    let name = slice.name.as_str();
    let line = [
        Str("loaded, "),
        Raw(path.to_bytes()),
        Str(" named "),
        Str(name),
    ];
    if limits && !refuses {
        log::say(Level::Info, "slice", &line, None);
    }
    let mounted = match refuses {
        true => Mounted::Unreadable,
        false if core::ptr::eq(path, paths::MOUNTED_SLICE) => Mounted::Yes,
        false => Mounted::No,
    };
    let listed = list(slice, &mut place.listed);
    let runtime = (*place.runtime.write(Runtime::of(slice, listed, mounted))).is_placed();
    place.told.write(Told {
        runtime: limits.then_some(runtime),
        unsliced: !limits,
        host: Some(runtime),
    })
}

#[inline(never)]
fn begin(place: &mut MaybeUninit<Slice>) -> &mut Slice {
    place.write(Slice::default())
}

#[cold]
#[inline(never)]
fn tell(path: &CStr, error: &slice::SliceError) {
    let mut why = log::Text::<256>::new();
    let _ = write!(why, "{error}");
    unusable(path, why.as_bytes());
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
