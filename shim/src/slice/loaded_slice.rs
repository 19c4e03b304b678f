//! A loaded slice, ready to answer: budgets, paths, the ledger.
//! Touches: the host's meminfo, at every answer that needs it.

use core::ffi::CStr;

use gpuslice_config::host::meminfo::{self, HostMemory};
use gpuslice_config::ledger::{self, Ledger};
use gpuslice_config::slice::thresholds::Thresholds;
use gpuslice_config::slice::{
    self, DeviceSlice, Managed, ModelFiles, PageCache, PresentAs, Pressure, Slice,
};
use gpuslice_config::words::device::{DeviceKind, DeviceUuid};
use gpuslice_config::words::paths;

use crate::slice::driver_limit;
use crate::slice::slice_ledger::SliceLedger;
use crate::sys::{self, Errno, File, Stat};

/// Whether the hook has mounted the slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mounted {
    /// At the usual path. Files that the slice does not name are beside it.
    InRoot,
    /// In /dev, because the container's root is read-only. The slice names all files.
    InDev,
    No,
    /// A slice is configured, whether mounted or not, and cannot be read.
    Unreadable,
}

/// A loaded slice, ready to answer.
pub(crate) struct LoadedSlice {
    slice: &'static Slice,
    /// Whether the slice cannot be read, so that all device memory is refused.
    refuses: bool,
    /// The budgets of the listed devices, in the slice's order.
    listed: &'static [DeviceSlice],
    /// The budget of every other device.
    others: Option<DeviceSlice>,
    meminfo: Option<&'static CStr>,
    promises: Option<&'static CStr>,
    promise: Option<&'static CStr>,
    cgroup: Option<&'static CStr>,
    /// The listed devices whose limit the driver holds for this process, one bit each.
    driver_holds: u64,
    pressure: Option<&'static CStr>,
    /// The ledger in which the slice's processes record what they hold.
    ledger: SliceLedger,
}

/// The number of a device's budget in the slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget(pub(crate) u8);

/// The budget of devices that are not listed.
const OTHERS: Budget = Budget(u8::MAX - 1);

impl LoadedSlice {
    /// Opens the files that the slice names.
    #[inline(always)]
    pub(crate) fn new(
        slice: &'static Slice,
        listed: &'static [DeviceSlice],
        mounted: Mounted,
    ) -> LoadedSlice {
        let refuses = mounted == Mounted::Unreadable;
        let in_container = matches!(mounted, Mounted::InRoot | Mounted::InDev);
        let in_root = mounted == Mounted::InRoot;
        let others = slice.memory.map(|memory| DeviceSlice {
            memory,
            headroom: slice.headroom,
            total: slice.total,
            maximum: slice.maximum,
            integrated: None,
        });
        let cgroup = match slice.cgroup {
            None if in_container => own_cgroup(),
            _ => c_path(slice.cgroup.as_ref()),
        };
        let ledger = match refuses {
            true => SliceLedger::closed(),
            false => SliceLedger::open(slice, in_root),
        };
        LoadedSlice {
            slice,
            refuses,
            listed,
            others,
            meminfo: c_path(slice.meminfo.as_ref()),
            promises: place(slice.promises.as_ref(), in_root, paths::MOUNTED_PROMISES),
            promise: place(slice.promise.as_ref(), in_root, paths::MOUNTED_PROMISE),
            cgroup,
            driver_holds: match slice.driver_cgroup.as_ref() {
                Some(limited) => driver_limit::devices_held(slice, limited, in_container),
                None => 0,
            },
            pressure: c_path(slice.thresholds.file.as_ref()),
            ledger,
        }
    }

    /// The budget of the device with this uuid. CUDA does not report the kind of a device.
    pub(crate) fn budget(&self, bytes: [u8; 16], kind: Option<DeviceKind>) -> Option<Budget> {
        let same =
            |uuid: DeviceUuid| uuid.bytes == bytes && kind.is_none_or(|kind| kind == uuid.kind);
        match self.slice.devices().position(|listed| same(listed.uuid)) {
            Some(place) => u8::try_from(place).ok().map(Budget),
            None => self.unlisted(),
        }
    }

    /// Whether every device has one and the same budget, because the slice lists none.
    pub(crate) fn treats_all_alike(&self) -> bool {
        self.slice.devices().next().is_none()
    }

    /// Whether it lists a MIG instance.
    pub(crate) fn names_instances(&self) -> bool {
        let mut listed = self.slice.devices();
        listed.any(|listed| listed.uuid.kind == DeviceKind::Mig)
    }

    /// The budget of a device that the slice does not list.
    pub(crate) fn unlisted(&self) -> Option<Budget> {
        self.others.is_some().then_some(OTHERS)
    }

    /// The values of a budget.
    #[inline]
    pub(crate) fn numbers(&self, budget: Budget) -> Option<&DeviceSlice> {
        if budget == OTHERS {
            return self.others.as_ref();
        }
        self.listed.get(usize::from(budget.0))
    }

    /// The first device that the slice lists as sharing the host's memory.
    pub(crate) fn integrated(&self) -> Option<(Budget, DeviceUuid)> {
        let mut devices = (0u8..).zip(self.slice.devices());
        let (place, listed) = devices.find(|(_, listed)| listed.integrated == Some(true))?;
        Some((Budget(place), listed.uuid))
    }

    /// The first device that the slice lists.
    pub(crate) fn first(&self) -> Option<(Budget, DeviceUuid)> {
        let listed = self.slice.devices().next()?;
        Some((Budget(0), listed.uuid))
    }

    /// The only device that the slice lists.
    pub(crate) fn only(&self) -> Option<DeviceUuid> {
        let mut listed = self.slice.devices();
        let only = listed.next()?.uuid;
        listed.next().is_none().then_some(only)
    }

    /// Whether a device of unified memory must be reported as not integrated.
    pub(crate) fn presents_discrete(&self) -> bool {
        self.slice.present_as == PresentAs::Discrete
    }

    /// Whether the slice cannot be read: device memory is refused, and nothing else is changed.
    pub(crate) fn refuses(&self) -> bool {
        self.refuses
    }

    /// Whether `/proc/meminfo` shows the slice's memory.
    pub(crate) fn shows_meminfo(&self) -> bool {
        !self.refuses && !self.presents_discrete()
    }

    /// Whether any libc answer may be changed: for memory that a device shares with the host, or
    /// for model files.
    pub(crate) fn changes_libc(&self) -> bool {
        let mut devices = self.slice.devices();
        let mut may_share =
            || self.others.is_some() || devices.any(|one| one.integrated != Some(false));
        self.slice.page_cache != PageCache::Keep || self.shows_meminfo() && may_share()
    }

    /// The ledger in which the slice's processes record what they hold.
    #[inline(always)]
    pub(crate) fn ledger(&self) -> Option<&'static Ledger> {
        self.ledger.get()
    }

    /// Tries to open an unusable ledger again.
    pub(crate) fn ledger_again(&self) {
        self.ledger.look_again();
    }

    /// Marks the slice as being in its final place, which publishes the ledger.
    pub(crate) fn publish(&'static self) -> &'static LoadedSlice {
        self.ledger.publish();
        self
    }

    /// Whether an allocation over the limit is refused.
    pub(crate) fn enforces(&self) -> bool {
        self.slice.enforce
    }

    /// Whether the driver enforces the limit of a device for this process.
    pub(crate) fn is_held_by_driver(&self, budget: Budget) -> bool {
        let bit = 1u64.checked_shl(u32::from(budget.0)).unwrap_or(0);
        self.driver_holds & bit != 0
    }

    /// Whether managed memory is charged.
    pub(crate) fn counts_managed(&self) -> bool {
        self.slice.managed == Managed::Count
    }

    /// The device's uuid with its kind (GPU or MIG instance). CUDA reports only the 16 bytes, so the
    /// kind comes from the slice's entry; a device without an entry is taken for a GPU.
    pub(crate) fn identity(&self, bytes: [u8; 16], budget: Budget) -> DeviceUuid {
        let listed = self.slice.devices().nth(usize::from(budget.0));
        let kind = listed.map_or(DeviceKind::Gpu, |listed| listed.uuid.kind);
        DeviceUuid { kind, bytes }
    }

    /// A device's number in the ledger.
    pub(crate) fn listed(&self, bytes: [u8; 16], budget: Budget) -> Option<ledger::Device> {
        let listed = self.ledger()?.device(&self.identity(bytes, budget));
        listed.or_else(|| self.enforces().then_some(ledger::Device::UNLISTED))
    }

    /// The slice's policy for the page cache of model files.
    pub(crate) fn page_cache(&self) -> PageCache {
        self.slice.page_cache
    }

    /// Whether processes that use a model file share what they still need of it.
    pub(crate) fn shares_page_cache(&self) -> bool {
        self.slice.page_cache_share
    }

    /// The rules that identify model files.
    #[inline]
    pub(crate) fn model_files(&self) -> &ModelFiles {
        &self.slice.model_files
    }

    /// The host's reserve, if the slice sets it.
    pub(crate) fn reserve(&self) -> Option<gpuslice_config::words::units::Bytes> {
        self.slice.reserve
    }

    /// The amount of host memory that is not charged, if the slice sets it.
    pub(crate) fn host_allowance(&self) -> Option<gpuslice_config::words::units::Bytes> {
        self.slice.host_allowance
    }

    /// The thresholds at which the host counts as under pressure.
    #[inline]
    pub(crate) fn thresholds(&self) -> &Thresholds {
        &self.slice.thresholds
    }

    /// Whether allocators are asked to free their caches.
    #[inline]
    pub(crate) fn releases(&self) -> bool {
        self.slice.pressure == Pressure::Release
    }

    /// The file in which the machine reports its memory pressure.
    pub(crate) fn pressure_file(&self) -> &CStr {
        self.pressure.unwrap_or(paths::PRESSURE)
    }

    /// The folder of all slices' promises.
    pub(crate) fn promises(&self) -> Option<&CStr> {
        self.promises
    }

    /// The file of this slice's own promise.
    #[inline]
    pub(crate) fn promise(&self) -> Option<&CStr> {
        self.promise
    }

    /// The folder of the cgroup that belongs to this slice alone.
    pub(crate) fn cgroup(&self) -> Option<&CStr> {
        self.cgroup
    }

    /// The host's memory now.
    ///
    /// # Errors
    /// When its meminfo cannot be read; `EINVAL` if it is not one.
    pub(crate) fn host(&self) -> Result<HostMemory, Errno> {
        let file = match self.meminfo {
            Some(path) => File::open(path),
            // Under the usual path, the slice's own meminfo may be mounted.
            None => match File::open(paths::MOUNTED_MEMINFO) {
                Err(why) if !why.is_passing() => File::open(paths::PROC_MEMINFO),
                opened => opened,
            },
        };
        let mut head = [0u8; meminfo::HEAD];
        let text = file?.read(&mut head)?;
        meminfo::parse(text).ok_or(sys::EINVAL)
    }
}

/// A path of the slice as a C string.
#[inline]
fn c_path(path: Option<&'static slice::Text<256>>) -> Option<&'static CStr> {
    path?.as_c_str().filter(|path| !path.is_empty())
}

/// The path that the slice names. Otherwise, for a slice mounted at the usual path, the hook's usual
/// path, if it exists.
fn place(
    path: Option<&'static slice::Text<256>>,
    in_root: bool,
    usual: &'static CStr,
) -> Option<&'static CStr> {
    match path {
        None if in_root && Stat::at(usual).is_ok() => Some(usual),
        path => c_path(path),
    }
}

/// The memory cgroup of a container, as the container sees it. None: the visible cgroup is the
/// whole machine's.
fn own_cgroup() -> Option<&'static CStr> {
    let there = |path: &CStr| Stat::at(path).is_ok();
    if there(c"/sys/fs/cgroup/memory.current") {
        // The machine's root cgroup has no such file.
        return Some(c"/sys/fs/cgroup");
    }
    let v1 = there(c"/sys/fs/cgroup/memory/memory.usage_in_bytes");
    // Only the machine's root cgroup has this file.
    let own = v1 && !there(c"/sys/fs/cgroup/memory/release_agent");
    own.then_some(c"/sys/fs/cgroup/memory")
}
