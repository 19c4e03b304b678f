//! A slice, laid out for answering: budgets, places, the ledger.
//! Touches: the host's meminfo, at every answer that needs it.

use core::ffi::CStr;

use gpuslice_config::device::{DeviceKind, DeviceUuid};
use gpuslice_config::ledger::{self, Ledger};
use gpuslice_config::meminfo::{self, HostMemory};
use gpuslice_config::policy::Thresholds;
use gpuslice_config::slice::{
    self, DeviceSlice, Managed, ModelFiles, PageCache, PresentAs, Pressure, Slice,
};
use gpuslice_config::source;

use crate::log::Piece::Str;
use crate::log::counters;
pub(crate) use crate::slice::load::{is_known_to_be_unsliced, slice, unsliced};
use crate::slice::slice_ledger::SliceLedger;
use crate::sys::{File, Stat};

/// Whether the hook has mounted a slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mounted {
    Yes,
    No,
    /// There is one, from wherever, and nobody can read it.
    Unreadable,
}

/// A slice, laid out for answering.
pub(crate) struct Runtime {
    slice: &'static Slice,
    /// Whether the slice is one that cannot be read: nothing is given.
    refuses: bool,
    /// The budgets of the listed devices, in the slice's order.
    listed: &'static [DeviceSlice],
    /// The budget of every other device.
    others: Option<DeviceSlice>,
    meminfo: Option<&'static CStr>,
    promises: Option<&'static CStr>,
    promise: Option<&'static CStr>,
    cgroup: Option<&'static CStr>,
    pressure: Option<&'static CStr>,
    /// Where the slice's processes say what they hold.
    ledger: SliceLedger,
}

/// Which budget of the runtime a device has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget(pub(crate) u8);

/// The budget of devices that are not listed.
const OTHERS: Budget = Budget(u8::MAX - 1);

impl Runtime {
    /// Opens what the slice names.
    #[inline(always)]
    pub(crate) fn of(
        slice: &'static Slice,
        listed: &'static [DeviceSlice],
        mounted: Mounted,
    ) -> Runtime {
        let refuses = mounted == Mounted::Unreadable;
        let mounted = mounted == Mounted::Yes;
        let others = slice.memory.map(|memory| DeviceSlice {
            memory,
            headroom: slice.headroom,
            total: slice.total,
            integrated: None,
        });
        let cgroup = match slice.cgroup {
            None if mounted => own_cgroup(),
            _ => c_path(slice.cgroup.as_ref()),
        };
        let ledger = match refuses {
            true => SliceLedger::closed(),
            false => SliceLedger::of(slice, mounted),
        };
        Runtime {
            slice,
            refuses,
            listed,
            others,
            meminfo: c_path(slice.meminfo.as_ref()),
            promises: place(slice.promises.as_ref(), mounted, source::MOUNTED_PROMISES),
            promise: place(slice.promise.as_ref(), mounted, source::MOUNTED_PROMISE),
            cgroup,
            pressure: c_path(slice.thresholds.file.as_ref()),
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

    /// Whether the slice cannot be read, so that nothing is given and all else is left alone.
    pub(crate) fn refuses(&self) -> bool {
        self.refuses
    }

    /// Whether the host's memory is shown as the slice's.
    pub(crate) fn shows_meminfo(&self) -> bool {
        !self.refuses && !self.presents_discrete()
    }

    /// Whether libc may answer otherwise here than without us: of memory that a device shares, and of
    /// files that are models.
    pub(crate) fn changes_libc(&self) -> bool {
        let mut devices = self.slice.devices();
        let mut may_share =
            || self.others.is_some() || devices.any(|one| one.integrated != Some(false));
        self.slice.page_cache != PageCache::Keep || self.shows_meminfo() && may_share()
    }

    /// Where the slice's processes say what they hold.
    #[inline(always)]
    pub(crate) fn ledger(&self) -> Option<&'static Ledger> {
        self.ledger.get()
    }

    /// What could not be used may be usable again.
    pub(crate) fn ledger_again(&self) {
        self.ledger.look_again();
    }

    /// It lies where it stays.
    pub(crate) fn is_placed(&'static self) -> &'static Runtime {
        self.ledger.is_placed();
        self
    }

    /// Whether an allocation over the limit is refused.
    pub(crate) fn enforces(&self) -> bool {
        self.slice.enforce
    }

    /// Whether managed memory is charged.
    pub(crate) fn counts_managed(&self) -> bool {
        self.slice.managed == Managed::Count
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
        let listed = self.ledger()?.device(&self.identity(bytes, budget));
        listed.or_else(|| self.enforces().then_some(ledger::Device::UNLISTED))
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
        self.pressure.unwrap_or(source::PRESSURE)
    }

    /// The folder of all slices' promises.
    pub(crate) fn promises(&self) -> Option<&CStr> {
        self.promises
    }

    /// The file of this slice's own.
    #[inline]
    pub(crate) fn promise(&self) -> Option<&CStr> {
        self.promise
    }

    /// The folder of the cgroup that is this slice's alone.
    pub(crate) fn cgroup(&self) -> Option<&CStr> {
        self.cgroup
    }

    /// The host's memory at this moment.
    pub(crate) fn host(&self) -> Option<HostMemory> {
        let file = match self.meminfo {
            Some(path) => File::open(path),
            None => {
                File::open(source::MOUNTED_MEMINFO).or_else(|_| File::open(source::PROC_MEMINFO))
            }
        };
        let mut head = [0u8; meminfo::HEAD];
        let read = file.and_then(|file| file.read(&mut head).map(meminfo::parse));
        let Ok(Some(memory)) = read else {
            counters::MEMINFO.say(
                "meminfo",
                &[Str(
                    "cannot be read: FREE is the driver's, and NVML reports no memory",
                )],
            );
            return None;
        };
        Some(memory)
    }
}

/// A path of the slice, as C writes it.
#[inline]
fn c_path(path: Option<&'static slice::Text<256>>) -> Option<&'static CStr> {
    path?.as_c_str().filter(|path| !path.is_empty())
}

/// The place that a slice names; else, for a mounted slice, the one where the hook puts it, if it
/// has.
fn place(
    path: Option<&'static slice::Text<256>>,
    mounted: bool,
    usual: &'static CStr,
) -> Option<&'static CStr> {
    match path {
        None if mounted && Stat::at(usual).is_ok() => Some(usual),
        path => c_path(path),
    }
}

/// The memory cgroup of a container, as the container sees it; nothing where what it sees is the
/// whole machine's.
fn own_cgroup() -> Option<&'static CStr> {
    let there = |path: &CStr| Stat::at(path).is_ok();
    if there(c"/sys/fs/cgroup/memory.current") {
        // The machine's own group has no such file.
        return Some(c"/sys/fs/cgroup");
    }
    let v1 = there(c"/sys/fs/cgroup/memory/memory.usage_in_bytes");
    // Only the machine's own group has this file.
    let own = v1 && !there(c"/sys/fs/cgroup/memory/release_agent");
    own.then_some(c"/sys/fs/cgroup/memory")
}
