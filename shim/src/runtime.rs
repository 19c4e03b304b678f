//! What this process was told: its slice, or none.
//! Touches: the slice file, the environment, once; the host's meminfo, at every answer that
//! needs it.
//! Law: built at the first intercepted call; blocks nobody, survives fork, may run twice.

use core::ffi::CStr;
use core::fmt::Write;

use gpuslice_config::device::{DeviceKind, DeviceUuid};
use gpuslice_config::ledger::{self, Ledger, LedgerError, Open};
use gpuslice_config::meminfo::{self, HostMemory};
use gpuslice_config::policy::Thresholds;
use gpuslice_config::slice::{
    self, DeviceSlice, MAX_DEVICES, MAX_FILE, ModelFiles, PageCache, PresentAs, Pressure, Slice,
};
use gpuslice_config::source;
use once_cell::race::OnceRef;

use crate::count;
use crate::log::{self, Level, Piece::Raw, Piece::Str};
use crate::sys::{self, File, Stat};

/// A slice, laid out for answering.
pub(crate) struct Runtime {
    slice: Slice,
    /// The budgets of the listed devices, in the slice's order.
    listed: [Option<DeviceSlice>; MAX_DEVICES],
    /// The budget of every other device.
    others: Option<DeviceSlice>,
    meminfo: [u8; 257],
    promises: [u8; 257],
    promise: [u8; 257],
    cgroup: [u8; 257],
    pressure: [u8; 257],
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
    let usual = || keep(Runtime::of(Slice::default(), false));
    told.host
        .or_else(|| HOST.get_or_try_init(|| usual().ok_or(())).ok())
}

fn build() -> Option<&'static Told> {
    let mounted = match File::open(source::MOUNTED_SLICE) {
        Err(sys::ENOENT | sys::ENOTDIR) => {
            File::open(source::MOUNTED_IN_DEV).map(|file| (file, source::MOUNTED_IN_DEV))
        }
        opened => opened.map(|file| (file, source::MOUNTED_SLICE)),
    };
    let opened = match mounted {
        Err(sys::ENOENT | sys::ENOTDIR) => {
            let Some(path) = log::environment(source::CONFIG).filter(|path| !path.is_empty())
            else {
                log::say(Level::Debug, "slice", &[Str("loaded, no slice")], None);
                return Some(&UNSLICED);
            };
            File::open(path).map(|file| (file, path))
        }
        // What the hook has mounted wins, even when it cannot be used.
        opened => opened,
    };
    let unusable = |path: &CStr, why: &[u8]| {
        count::SLICE.say(
            "slice",
            &[
                Raw(path.to_bytes()),
                Str(": "),
                Raw(why),
                Str("; the driver's answers stand"),
            ],
        );
    };
    let path = log::environment(source::CONFIG).unwrap_or(source::MOUNTED_SLICE);
    let understood = |path: &CStr, text: &[u8]| match slice::parse(text) {
        Err(error) => {
            let mut why = log::Text::<256>::new();
            let _ = write!(why, "{error}");
            unusable(path, why.as_bytes());
            None
        }
        Ok(slice) => {
            let mounted = core::ptr::eq(path, source::MOUNTED_SLICE);
            Runtime::lay_out(slice, mounted)
        }
    };
    let Ok((file, path)) = opened else {
        if let Some(text) = log::environment(source::SLICE).filter(|text| !text.is_empty()) {
            return understood(source::SLICE, text.to_bytes());
        }
        unusable(path, b"cannot be opened");
        return None;
    };
    match file.length() {
        Ok(length) if length <= MAX_FILE => {}
        Ok(_) => {
            unusable(path, b"larger than a slice file can be");
            return None;
        }
        Err(_) => {
            unusable(path, b"not a regular file");
            return None;
        }
    }
    const TEXT: usize = MAX_FILE + 1;
    let place = sys::map(TEXT).ok()?;
    // SAFETY: fresh memory of this length, ours until it is unmapped below.
    let buffer = unsafe { core::slice::from_raw_parts_mut(place, TEXT) };
    let told = match file.read(buffer) {
        Err(_) => {
            unusable(path, b"cannot be read");
            None
        }
        Ok(text) => understood(path, text),
    };
    // SAFETY: what was parsed holds no reference to the text.
    unsafe { sys::unmap(place, TEXT) };
    if let Some(runtime) = told.and_then(|told| told.runtime) {
        let name = runtime.slice.name.as_str();
        let line = [
            Str("loaded, "),
            Raw(path.to_bytes()),
            Str(" named "),
            Str(name),
        ];
        log::say(Level::Info, "slice", &line, None);
    }
    told
}

impl Runtime {
    fn lay_out(slice: Slice, mounted: bool) -> Option<&'static Told> {
        let limits = slice.limits_something();
        let runtime = keep(Runtime::of(slice, mounted))?;
        keep(Told {
            runtime: limits.then_some(runtime),
            unsliced: !limits,
            host: Some(runtime),
        })
    }

    fn of(slice: Slice, mounted: bool) -> Runtime {
        let mut listed = [None; MAX_DEVICES];
        for (budget, device) in listed.iter_mut().zip(slice.devices()) {
            *budget = slice.device(device.uuid);
        }
        let meminfo = c_path(slice.meminfo.as_ref());
        let promises = place(slice.promises.as_ref(), mounted, source::MOUNTED_PROMISES);
        let promise = place(slice.promise.as_ref(), mounted, source::MOUNTED_PROMISE);
        let cgroup = match slice.cgroup {
            None if mounted => own_cgroup(),
            _ => c_path(slice.cgroup.as_ref()),
        };
        let pressure = c_path(slice.thresholds.file.as_ref());
        let ledger = open_ledger(&slice, mounted);
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
            meminfo,
            promises,
            promise,
            cgroup,
            pressure,
            ledger,
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

    /// The budget of a device that the slice does not name.
    pub(crate) fn unlisted(&self) -> Option<Budget> {
        self.others.is_some().then_some(OTHERS)
    }

    /// A budget's numbers.
    #[inline]
    pub(crate) fn numbers(&self, budget: Budget) -> Option<&DeviceSlice> {
        match self.listed.get(usize::from(budget.0)) {
            Some(listed) => listed.as_ref(),
            None => self.others.as_ref(),
        }
    }

    /// The first device that is known to share the host's memory.
    pub(crate) fn integrated(&self) -> Option<(Budget, DeviceUuid)> {
        let mut devices = (0u8..).zip(self.slice.devices());
        let (place, listed) = devices.find(|(_, listed)| listed.integrated == Some(true))?;
        Some((Budget(place), listed.uuid))
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

    /// What becomes of model files' pages.
    pub(crate) fn page_cache(&self) -> PageCache {
        self.slice.page_cache
    }

    /// Whether the users of a model's file tell each other what they need of it.
    pub(crate) fn shares_page_cache(&self) -> bool {
        self.slice.page_cache_share
    }

    /// Which files are a model's.
    #[inline]
    pub(crate) fn model_files(&self) -> &ModelFiles {
        &self.slice.model_files
    }

    /// The host's reserve, where the slice says it.
    pub(crate) fn reserve(&self) -> Option<gpuslice_config::units::Bytes> {
        self.slice.reserve
    }

    /// How much host memory is not charged, where the slice says it.
    pub(crate) fn host_allowance(&self) -> Option<gpuslice_config::units::Bytes> {
        self.slice.host_allowance
    }

    /// From where on the host counts as pressed.
    #[inline]
    pub(crate) fn thresholds(&self) -> &Thresholds {
        &self.slice.thresholds
    }

    /// Whether allocators are asked for their caches.
    #[inline]
    pub(crate) fn releases(&self) -> bool {
        self.slice.pressure == Pressure::Release
    }

    /// Where the machine says how much it waits for memory.
    pub(crate) fn pressure_file(&self) -> &CStr {
        named(&self.pressure).unwrap_or(source::PRESSURE)
    }

    /// The folder of all slices' promises.
    pub(crate) fn promises(&self) -> Option<&CStr> {
        named(&self.promises)
    }

    /// The file of this slice's own.
    #[inline]
    pub(crate) fn promise(&self) -> Option<&CStr> {
        named(&self.promise)
    }

    /// The folder of the cgroup that is this slice's alone.
    pub(crate) fn cgroup(&self) -> Option<&CStr> {
        named(&self.cgroup)
    }

    /// The host's memory at this moment.
    pub(crate) fn host(&self) -> Option<HostMemory> {
        let file = match named(&self.meminfo) {
            Some(path) => File::open(path),
            None => {
                File::open(source::MOUNTED_MEMINFO).or_else(|_| File::open(source::PROC_MEMINFO))
            }
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

/// A path, if there is one.
#[inline]
fn named(path: &[u8; 257]) -> Option<&CStr> {
    let path = CStr::from_bytes_until_nul(path).ok()?;
    (!path.is_empty()).then_some(path)
}

/// The place that a slice names; else, for a mounted slice, the one where the hook puts it, if it
/// has.
fn place(path: Option<&slice::Text<256>>, mounted: bool, usual: &CStr) -> [u8; 257] {
    match path {
        None if mounted && Stat::at(usual).is_ok() => keep_path(usual.to_bytes()),
        path => c_path(path),
    }
}

/// The memory cgroup of a container, as the container sees it; nothing where what it sees is the
/// whole machine's.
fn own_cgroup() -> [u8; 257] {
    let there = |path: &CStr| Stat::at(path).is_ok();
    if there(c"/sys/fs/cgroup/memory.current") {
        // The machine's own group has no such file.
        return keep_path(b"/sys/fs/cgroup");
    }
    let v1 = there(c"/sys/fs/cgroup/memory/memory.usage_in_bytes");
    // Only the machine's own group has this file.
    match v1 && !there(c"/sys/fs/cgroup/memory/release_agent") {
        true => keep_path(b"/sys/fs/cgroup/memory"),
        false => keep_path(b""),
    }
}

fn keep_path(path: &[u8]) -> [u8; 257] {
    let mut text = [0; 257];
    let room = text.iter_mut().take(256);
    room.zip(path).for_each(|(to, from)| *to = *from);
    text
}

/// A path that ends in NUL.
fn c_path(path: Option<&slice::Text<256>>) -> [u8; 257] {
    keep_path(path.map_or(&[], |path| path.as_str().as_bytes()))
}

/// Opens the slice's ledger. One that nobody has named need not be there.
fn open_ledger(slice: &Slice, mounted: bool) -> Option<Ledger> {
    let named = c_path(slice.ledger.as_ref());
    let path = match CStr::from_bytes_until_nul(&named) {
        Ok(path) if !path.is_empty() => path,
        _ if mounted => source::MOUNTED_LEDGER,
        _ => return None,
    };
    let why = match Ledger::open(path, Open::Existing) {
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

/// Keeps a value for the rest of the process, without malloc.
fn keep<T>(value: T) -> Option<&'static T> {
    let place = sys::map(size_of::<T>()).ok()?.cast::<T>();
    // SAFETY: a fresh mapping of this size, aligned to a page, that nobody else knows.
    unsafe { place.write(value) };
    // SAFETY: just written, never written again, never unmapped.
    Some(unsafe { &*place })
}
