//! What this process was told: its slice, or none.
//! Touches: the slice file, the environment, once.
//! Law: built at the first intercepted call; blocks nobody, survives fork, may run twice. What is
//! built is written where it stays, and never lies on the stack of the thread that asked first.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::fmt::Write;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use gpuslice_config::slice::{self, DeviceSlice, MAX_DEVICES, MAX_FILE, Slice};
use gpuslice_config::source;
use once_cell::race::OnceRef;

use crate::count;
use crate::log::{self, Level, Piece::Raw, Piece::Str};
use crate::runtime::Runtime;
use crate::sys::{self, File};

/// That the environment was asked, and what it had to say.
struct Told {
    runtime: Option<&'static Runtime>,
    /// There is no slice, and nobody has tried to make one.
    unsliced: bool,
    /// What is said of the host all the same.
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

/// What this process was told. None: nothing, the driver's answers stand.
#[inline]
pub(crate) fn slice() -> Option<&'static Runtime> {
    match TOLD.get() {
        Some(told) => told.runtime,
        None => first(),
    }
}

/// Whether it was told already that there is no slice: nothing that it opens matters then.
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
    TOLD.get_or_init(|| build().unwrap_or(&NOTHING))
}

/// What is known of the host where there is no slice. None: there is one, or one that cannot be
/// used, and then the driver's answers stand.
pub(crate) fn unsliced() -> Option<&'static Runtime> {
    static HOST: OnceRef<'static, Runtime> = OnceRef::new();
    let told = Some(told()).filter(|told| told.unsliced)?;
    let usual = || {
        let place = Place::map().ok_or(())?;
        let slice = begin(&mut place.slice);
        Ok::<_, ()>((*place.runtime.write(Runtime::of(slice, &[], false))).is_placed())
    };
    told.host.or_else(|| HOST.get_or_try_init(usual).ok())
}

/// Where a slice is laid out, and stays: the pages of it that are used are all that it costs.
#[repr(C)]
struct Place {
    told: MaybeUninit<Told>,
    runtime: MaybeUninit<Runtime>,
    slice: MaybeUninit<Slice>,
    text: [u8; MAX_FILE],
    listed: [MaybeUninit<DeviceSlice>; MAX_DEVICES],
}

/// Where the first slice of a process is laid out: a mapping of its own would cost more.
struct FirstPlace(UnsafeCell<MaybeUninit<Place>>);

// SAFETY: it belongs to the one who has moved FIRST_TAKEN to true.
unsafe impl Sync for FirstPlace {}

static FIRST_PLACE: FirstPlace = FirstPlace(UnsafeCell::new(MaybeUninit::zeroed()));

#[unsafe(link_section = ".data")]
static FIRST_TAKEN: AtomicBool = AtomicBool::new(false);

fn build() -> Option<&'static Told> {
    let (file, path) = match open() {
        Opened::Nothing => return Some(&UNSLICED),
        Opened::File(file, path) => (Some(file), path),
        Opened::Failed(path) => (None, path),
    };
    let place = Place::map()?;
    let at = core::ptr::from_mut(place).cast::<u8>();
    let told = understand(file, path, place);
    if told.is_none() && at != FIRST_PLACE.0.get().cast() {
        // SAFETY: nobody else has seen the mapping, and nothing of it is used any more.
        unsafe { sys::unmap(at, size_of::<Place>()) };
    }
    told
}

impl Place {
    fn map() -> Option<&'static mut Place> {
        let (relaxed, acquire) = (Ordering::Relaxed, Ordering::Acquire);
        let taken = FIRST_TAKEN.compare_exchange(false, true, acquire, relaxed);
        let place = match taken {
            Ok(_) => FIRST_PLACE.0.get().cast::<Place>(),
            Err(_) => sys::map(size_of::<Place>()).ok()?.cast::<Place>(),
        };
        // SAFETY: ours by FIRST_TAKEN, or fresh memory of that size, aligned to a page, that nobody else knows; zeros are
        // a Place.
        Some(unsafe { &mut *place })
    }
}

/// Where a process is told of a slice.
enum Opened {
    Nothing,
    File(File, &'static CStr),
    Failed(&'static CStr),
}

fn open() -> Opened {
    for mounted in [source::MOUNTED_SLICE, source::MOUNTED_IN_DEV] {
        match File::open(mounted) {
            // What the hook has mounted wins, even when it cannot be used.
            Ok(file) => return Opened::File(file, mounted),
            Err(sys::ENOENT | sys::ENOTDIR) => {}
            Err(_) => return Opened::Failed(mounted),
        }
    }
    let Some(path) = log::environment(source::CONFIG).filter(|path| !path.is_empty()) else {
        log::say(Level::Debug, "slice", &[Str("loaded, no slice")], None);
        return Opened::Nothing;
    };
    File::open(path).map_or(Opened::Failed(path), |file| Opened::File(file, path))
}

#[cold]
#[inline(never)]
fn unusable(path: &CStr, why: &[u8]) {
    let line = [
        Raw(path.to_bytes()),
        Str(": "),
        Raw(why),
        Str("; the driver's answers stand"),
    ];
    count::SLICE.say("slice", &line);
}

/// Reads the slice file into its place.
fn read<'a>(file: &File, path: &CStr, text: &'a mut [u8; MAX_FILE]) -> Option<&'a [u8]> {
    let length = match file.length() {
        Ok(length) if length <= MAX_FILE => length,
        Ok(_) => {
            unusable(path, b"larger than a slice file can be");
            return None;
        }
        Err(_) => {
            unusable(path, b"not a regular file");
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

/// Parses a slice into its place, and logs why that is not possible.
fn parse(text: &[u8], path: &CStr, place: &mut MaybeUninit<Slice>) -> bool {
    let parsed = slice::parse_into(text, begin(place));
    if let Err(error) = &parsed {
        tell(path, error);
    }
    parsed.is_ok()
}

/// The slice as it was when the run began: the environment carries it beside the file's name. An image
/// sets a container's environment, so that it is no substitute for a damaged file that the hook mounted.
#[cold]
#[inline(never)]
fn from_environment(path: &CStr, is_damaged: bool, place: &mut MaybeUninit<Slice>) -> bool {
    let is_mounted = [source::MOUNTED_SLICE, source::MOUNTED_IN_DEV].contains(&path);
    let text = log::environment(source::SLICE).filter(|text| !text.is_empty());
    match text.filter(|_| !(is_damaged && is_mounted)) {
        Some(text) => parse(text.to_bytes(), source::SLICE, place),
        None if is_damaged => false,
        None => {
            unusable(path, b"cannot be opened");
            false
        }
    }
}

/// Lays a slice out in its place, without ever having it on the stack.
fn understand(
    file: Option<File>,
    path: &'static CStr,
    place: &'static mut Place,
) -> Option<&'static Told> {
    let is_damaged = file.is_some();
    let text = file.and_then(|file| read(&file, path, &mut place.text));
    let path = if text.is_some_and(|text| parse(text, path, &mut place.slice)) {
        path
    } else if from_environment(path, is_damaged, &mut place.slice) {
        source::SLICE
    } else {
        return None;
    };
    // SAFETY: `parse` has written it.
    let slice = unsafe { place.slice.assume_init_mut() };
    let limits = slice.limits_something();
    let name = slice.name.as_str();
    let line = [
        Str("loaded, "),
        Raw(path.to_bytes()),
        Str(" named "),
        Str(name),
    ];
    if limits {
        log::say(Level::Info, "slice", &line, None);
    }
    let mounted = core::ptr::eq(path, source::MOUNTED_SLICE);
    let listed = list(slice, &mut place.listed);
    let runtime = (*place.runtime.write(Runtime::of(slice, listed, mounted))).is_placed();
    Some(place.told.write(Told {
        runtime: limits.then_some(runtime),
        unsliced: !limits,
        host: Some(runtime),
    }))
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
    // SAFETY: the first `count` have just been written.
    unsafe { written.assume_init_ref() }
}
