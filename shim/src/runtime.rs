//! What this process was told: its slice, or none.
//! Touches: the slice file, the environment, once; the host's meminfo, at every answer that
//! needs it.
//! Law: built at the first intercepted call; blocks nobody, survives fork, may run twice.

use core::ffi::CStr;
use core::fmt::Write;
use core::mem::MaybeUninit;

use gpuslice_config::device::{DeviceKind, DeviceUuid};
use gpuslice_config::ledger::{self, Ledger, LedgerError, Open};
use gpuslice_config::meminfo::{self, HostMemory};
use gpuslice_config::slice::{self, DeviceSlice, MAX_DEVICES, MAX_FILE, PresentAs, Slice};
use gpuslice_config::source;
use once_cell::race::OnceRef;

use crate::log::{self, Level, Piece::Raw, Piece::Str};
use crate::sys::{self, File};
use crate::{count, private};

/// A slice, laid out for answering.
pub(crate) struct Runtime {
    slice: &'static Slice,
    /// The budgets of the listed devices, in the slice's order.
    listed: &'static [DeviceSlice],
    /// The budget of every other device.
    others: Option<DeviceSlice>,
    meminfo: [u8; 257],
    /// Where the slice's processes say what they hold.
    ledger: Option<Ledger>,
}

/// Which budget of the runtime a device has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget(pub(crate) u8);

/// The budget of devices that are not listed.
const OTHERS: Budget = Budget(u8::MAX - 1);

/// That the environment was asked, and what it had to say.
struct Told {
    runtime: Option<&'static Runtime>,
}

static NOTHING: Told = Told { runtime: None };

static TOLD: OnceRef<'static, Told> = OnceRef::new();

/// What this process was told. None: nothing, the driver's answers stand.
#[inline]
pub(crate) fn slice() -> Option<&'static Runtime> {
    match TOLD.get() {
        Some(told) => told.runtime,
        None => first(),
    }
}

#[cold]
#[inline(never)]
fn first() -> Option<&'static Runtime> {
    TOLD.get_or_init(|| build().unwrap_or(&NOTHING)).runtime
}

/// What is mapped for a slice, and stays: the pages of it that are used are all that it costs.
#[repr(C)]
struct Place {
    told: MaybeUninit<Told>,
    runtime: MaybeUninit<Runtime>,
    slice: MaybeUninit<Slice>,
    listed: [MaybeUninit<DeviceSlice>; MAX_DEVICES],
    text: [u8; MAX_FILE],
}

fn build() -> Option<&'static Told> {
    let (file, path) = match open() {
        Opened::Nothing => return None,
        Opened::File(file, path) => (Some(file), path),
        Opened::Failed(path) => (None, path),
    };
    let place = sys::map(size_of::<Place>()).ok()?;
    // SAFETY: fresh memory of that size, aligned to a page, that nobody else knows; zeros are a
    // Place.
    let whole = unsafe { &mut *place.cast::<Place>() };
    let told = understand(file, path, whole);
    if told.is_none() {
        // SAFETY: nobody else has seen the mapping, and nothing of it is used any more.
        unsafe { sys::unmap(place, size_of::<Place>()) };
    }
    told
}

/// Where a process is told of a slice.
enum Opened {
    Nothing,
    File(File, &'static CStr),
    Failed(&'static CStr),
}

fn open() -> Opened {
    match File::open(source::MOUNTED_SLICE) {
        // What the hook has mounted wins, even when it cannot be used.
        Ok(file) => return Opened::File(file, source::MOUNTED_SLICE),
        Err(sys::ENOENT | sys::ENOTDIR) => {}
        Err(_) => return Opened::Failed(source::MOUNTED_SLICE),
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

/// Lays a slice out in its place, without ever having it on the stack.
fn understand(
    file: Option<File>,
    path: &'static CStr,
    place: &'static mut Place,
) -> Option<&'static Told> {
    let (text, path) = match file {
        Some(file) => (read(&file, path, &mut place.text)?, path),
        None => {
            let text = log::environment(source::SLICE).filter(|text| !text.is_empty());
            let Some(text) = text else {
                unusable(path, b"cannot be opened");
                return None;
            };
            (text.to_bytes(), source::SLICE)
        }
    };
    let slice = begin(&mut place.slice);
    if let Err(error) = slice::parse_into(text, slice) {
        tell(path, &error);
        return None;
    }
    if !slice.limits_something() {
        return None;
    }
    let name = slice.name.as_str();
    let line = [
        Str("loaded, "),
        Raw(path.to_bytes()),
        Str(" named "),
        Str(name),
    ];
    log::say(Level::Info, "slice", &line, None);
    let mounted = core::ptr::eq(path, source::MOUNTED_SLICE);
    let listed = list(slice, &mut place.listed);
    let runtime = place.runtime.write(Runtime::of(slice, listed, mounted));
    Some(place.told.write(Told {
        runtime: Some(runtime),
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

impl Runtime {
    #[inline(always)]
    fn of(slice: &'static Slice, listed: &'static [DeviceSlice], mounted: bool) -> Runtime {
        let others = slice.memory.map(|memory| DeviceSlice {
            memory,
            headroom: slice.headroom,
            total: slice.total,
            integrated: None,
        });
        Runtime {
            slice,
            listed,
            others,
            meminfo: c_path(slice.meminfo.as_ref()),
            ledger: open_ledger(slice, mounted),
        }
    }

    /// The budget of the device with this uuid. CUDA does not say what kind it is.
    pub(crate) fn budget(&self, bytes: [u8; 16], kind: Option<DeviceKind>) -> Option<Budget> {
        let same =
            |uuid: DeviceUuid| uuid.bytes == bytes && kind.is_none_or(|kind| kind == uuid.kind);
        match self.slice.devices().position(|listed| same(listed.uuid)) {
            Some(place) => u8::try_from(place).ok().map(Budget),
            None => self.unlisted(),
        }
    }

    /// Whether it is the same which device is meant.
    pub(crate) fn treats_all_alike(&self) -> bool {
        self.slice.devices().next().is_none()
    }

    /// Whether it names an instance that MIG has cut.
    pub(crate) fn names_instances(&self) -> bool {
        let mut listed = self.slice.devices();
        listed.any(|listed| listed.uuid.kind == DeviceKind::Mig)
    }

    /// The budget of a device that the slice does not name.
    pub(crate) fn unlisted(&self) -> Option<Budget> {
        self.others.is_some().then_some(OTHERS)
    }

    /// A budget's numbers.
    #[inline]
    pub(crate) fn numbers(&self, budget: Budget) -> Option<&DeviceSlice> {
        if budget == OTHERS {
            return self.others.as_ref();
        }
        self.listed.get(usize::from(budget.0))
    }

    /// Whether a device of unified memory claims not to be integrated.
    pub(crate) fn presents_discrete(&self) -> bool {
        self.slice.present_as == PresentAs::Discrete
    }

    /// Where the slice's processes say what they hold.
    #[inline]
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// Whether an allocation over the limit is refused.
    pub(crate) fn enforces(&self) -> bool {
        self.slice.enforce
    }

    /// The whole uuid of a device with this budget. CUDA does not say what kind a device is, so
    /// the slice's word holds, and a device that it does not name is called a GPU.
    pub(crate) fn identity(&self, bytes: [u8; 16], budget: Budget) -> DeviceUuid {
        let listed = self.slice.devices().nth(usize::from(budget.0));
        let kind = listed.map_or(DeviceKind::Gpu, |listed| listed.uuid.kind);
        DeviceUuid { kind, bytes }
    }

    /// What the ledger calls a device.
    pub(crate) fn listed(&self, bytes: [u8; 16], budget: Budget) -> Option<ledger::Device> {
        self.ledger()?.device(&self.identity(bytes, budget))
    }

    /// The host's reserve, where the slice says it.
    pub(crate) fn reserve(&self) -> Option<gpuslice_config::units::Bytes> {
        self.slice.reserve
    }

    /// The host's memory at this moment.
    pub(crate) fn host(&self) -> Option<HostMemory> {
        let file = match CStr::from_bytes_until_nul(&self.meminfo) {
            Ok(path) if !path.is_empty() => File::open(path),
            _ => File::open(source::MOUNTED_MEMINFO).or_else(|_| File::open(source::PROC_MEMINFO)),
        };
        let mut head = [0u8; meminfo::HEAD];
        let read = file.and_then(|file| file.read(&mut head).map(meminfo::parse));
        let Ok(Some(memory)) = read else {
            count::MEMINFO.say(
                "meminfo",
                &[Str(
                    "cannot be read: FREE is what the driver calls free, NVML is not answered",
                )],
            );
            return None;
        };
        Some(memory)
    }
}

/// A path that ends in NUL.
fn c_path(path: Option<&slice::Text<256>>) -> [u8; 257] {
    let mut text = [0; 257];
    if let Some(path) = path {
        let from = path.as_str().bytes();
        text.iter_mut().zip(from).for_each(|(to, from)| *to = from);
    }
    text
}

/// Opens the slice's ledger. One that nobody has named need not be there.
fn open_ledger(slice: &Slice, mounted: bool) -> Option<Ledger> {
    let named = c_path(slice.ledger.as_ref());
    let path = match CStr::from_bytes_until_nul(&named) {
        Ok(path) if !path.is_empty() => path,
        _ if mounted => source::MOUNTED_LEDGER,
        _ => return None,
    };
    // The page is wiped in a forked child.
    let private = &private::page()?.ledger;
    let why = match Ledger::open_with(path, Open::Existing, private) {
        Ok(ledger) => return Some(ledger),
        Err(LedgerError::Open(ledger::Errno(2 | 20))) if slice.ledger.is_none() => return None,
        Err(why) => why,
    };
    let mut text = log::Text::<256>::new();
    let _ = write!(text, "{why}");
    let line = [
        Raw(path.to_bytes()),
        Str(": "),
        Raw(text.as_bytes()),
        Str("; nothing is counted and nothing enforced"),
    ];
    count::LEDGER.say("ledger", &line);
    None
}
