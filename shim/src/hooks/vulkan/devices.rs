//! The devices of this process that the slice limits: the cards of each, and its real functions.
//! Touches: its own table.
//! Law: a record is written before its handle is published, and Vulkan forbids that a device is
//! used while it is destroyed.

use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::account::vulkan::Owner;
use crate::account::{self, Account};
use crate::answer::device::Device;
use crate::answer::vulkan::{self, Identity};
use crate::real::vulkan::real;
use crate::real::vulkan_abi::VkDevice;
use crate::slice;

/// The largest number of cards in a group, which is Vulkan's.
pub(crate) const MOST_MEMBERS: usize = 32;

/// One card of a device.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    pub(crate) identity: Identity,
    /// None: the slice could not be read when the device was made.
    pub(crate) entry: Option<Device<'static>>,
}

impl Member {
    /// The account that pays for memory on this card.
    #[inline(never)]
    pub(crate) fn account(&self) -> Option<Account> {
        let entry = self.entry.or_else(|| {
            let slice = slice::current()?;
            vulkan::device(slice, self.identity)
        });
        account::of_device(entry?)
    }
}

/// The real functions of a device. A driver may have others for each device.
#[derive(Clone, Copy, Default)]
pub(crate) struct Functions {
    pub(crate) destroy: Option<real::vkDestroyDevice>,
    pub(crate) allocate: Option<real::vkAllocateMemory>,
    pub(crate) free: Option<real::vkFreeMemory>,
    pub(crate) descriptor: Option<real::vkGetMemoryFdKHR>,
}

/// What is known of a device.
#[derive(Clone, Copy)]
pub(crate) struct Body {
    pub(crate) functions: Functions,
    /// The account that pays for all memory of the device. None: the device has several cards, or its
    /// account may change.
    pub(crate) payer: Option<Account>,
    /// The memory types that are charged, one bit each.
    pub(crate) charged: u32,
    /// The cards; None for those that the slice does not limit.
    pub(crate) members: [Option<Member>; MOST_MEMBERS],
    pub(crate) count: u8,
}

/// A record. The handle is [`FREE`], [`TAKEN`], or a device.
struct Record {
    handle: AtomicUsize,
    body: UnsafeCell<MaybeUninit<Body>>,
}

/// The number of records that were ever taken; most processes have one device.
static EVER: AtomicUsize = AtomicUsize::new(0);

const FREE: usize = 0;
const TAKEN: usize = 1;

// SAFETY: a body is written only by the thread that has taken the record, before the handle is
// published; afterwards it is only read.
unsafe impl Sync for Record {}

impl Record {
    /// The data of the device of a record that is, or was, published.
    #[inline(always)]
    fn body(&'static self) -> Option<&'static Body> {
        let body = self.body.get().cast::<Body>();
        // SAFETY: the handle was published, so the body is written. It is written again only when
        // the device is gone, and nobody uses the device then.
        unsafe { body.as_ref() }
    }
}

static RECORDS: [Record; Owner::MOST] = [const {
    Record {
        handle: AtomicUsize::new(FREE),
        body: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; Owner::MOST];

/// A record that was taken for a device, or belongs to one.
#[derive(Clone, Copy)]
pub(crate) struct Place(u8);

impl Place {
    fn record(self) -> Option<&'static Record> {
        RECORDS.get(usize::from(self.0))
    }

    /// The owner of memory on a member of the device.
    pub(crate) fn owner(self, member: u8) -> Owner {
        Owner {
            device: self.0,
            member,
        }
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// Publishes a device.
    pub(crate) fn publish(self, device: VkDevice, body: Body) {
        if let Some(record) = self.record() {
            // SAFETY: this thread has taken the record, and no other reads it yet.
            unsafe { record.body.get().write(MaybeUninit::new(body)) };
            record.handle.store(device as usize, Ordering::Release);
        }
    }

    /// Removes the handle, so that another device may have it. The record stays taken.
    pub(crate) fn withdraw(self) {
        if let Some(record) = self.record() {
            record.handle.store(TAKEN, Ordering::Release);
        }
    }

    /// Frees the record.
    pub(crate) fn free(self) {
        if let Some(record) = self.record() {
            record.handle.store(FREE, Ordering::Release);
        }
    }
}

/// Takes a record. None: the process has too many devices.
#[inline(never)]
pub(crate) fn take() -> Option<Place> {
    let free = |record: &Record| {
        let handle = &record.handle;
        handle
            .compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    // The bound is not a constant for the compiler, which would repeat the code for each record.
    let most = core::hint::black_box(Owner::MOST);
    let place = RECORDS.iter().take(most).position(free)?;
    EVER.fetch_max(place.saturating_add(1), Ordering::AcqRel);
    u8::try_from(place).ok().map(Place)
}

impl Body {
    /// The account that pays for the memory of a device of one card at this moment.
    #[cold]
    #[inline(never)]
    pub(crate) fn late_payer(&self) -> Option<Account> {
        self.members.first()?.as_ref()?.account()
    }
}

/// The record of a device. None: the slice does not limit it.
#[inline(always)]
pub(crate) fn find(device: VkDevice) -> Option<(Place, &'static Body)> {
    let first = RECORDS.first()?;
    // Most processes have one device.
    if first.handle.load(Ordering::Acquire) == device as usize && device as usize > TAKEN {
        return Some((Place(0), first.body()?));
    }
    find_any(device)
}

#[inline(never)]
fn find_any(device: VkDevice) -> Option<(Place, &'static Body)> {
    let device = device as usize;
    if device <= TAKEN {
        return None;
    }
    let same = |record: &Record| record.handle.load(Ordering::Acquire) == device;
    let ever = EVER.load(Ordering::Acquire);
    let place = RECORDS.iter().take(ever).position(same)?;
    let record = RECORDS.get(place)?;
    Some((Place(u8::try_from(place).ok()?), record.body()?))
}

/// A function pointer of the driver, by its type.
///
/// # Safety
/// `address` is null or a function of the type `F`, which is an optional function pointer.
pub(crate) unsafe fn function<F: Copy>(address: *mut c_void) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the caller guarantees the type; None is the null pointer.
    unsafe { core::mem::transmute_copy::<*mut c_void, F>(&address) }
}
