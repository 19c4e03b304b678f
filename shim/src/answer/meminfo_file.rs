//! Substitutes the slice's `/proc/meminfo` for the host's.
//! Touches: the descriptor that a program has just opened; the host's meminfo and the ledger.
//! Law: the file is replaced only in a slice that presents unified memory as such, where the device
//! reports that it is integrated; neither happens without the other. If the substitute cannot be
//! created, the host's file stays. It also stays in a process that has put itself under seccomp.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, Ordering};

use gpuslice_config::answer::meminfo_text;
use gpuslice_config::answer::view::MemoryView;
use gpuslice_config::words::paths;

use crate::answer::{self, device};
use crate::log::counters;
use crate::slice;
use crate::sys::{self, stack};
use crate::sys::{File, Stat};

/// The view of the memory that the device shares with the host. None: the host's own file is shown.
#[cold]
#[inline(never)]
pub(crate) fn shown() -> Option<MemoryView> {
    if sys::filters::is_filtered() {
        return None;
    }
    let mut view: Option<MemoryView> = None;
    roomy(look, (&raw mut view).cast());
    view
}

extern "C" fn look(place: *mut c_void) -> u8 {
    // SAFETY: `shown` passes its own variable, and waits.
    unsafe { place.cast::<Option<MemoryView>>().write(view()) };
    0
}

/// A signal handler may have 8 KiB of stack; reading the slice and the host takes more.
fn roomy(function: extern "C" fn(*mut c_void) -> u8, argument: *mut c_void) {
    if stack::on_a_large_one(function, argument).is_none() {
        function(argument);
    }
}

fn view() -> Option<MemoryView> {
    let slice = slice::current().filter(|slice| slice.shows_meminfo())?;
    let device = device::unified(slice)?;
    answer::of_host(slice, &device, None)
}

/// Replaces a descriptor of `/proc/meminfo` by one of the slice's text.
#[cold]
#[inline(never)]
pub(crate) fn stand_in(descriptor: i32) {
    if sys::filters::is_filtered() {
        return;
    }
    let mut descriptor = descriptor;
    roomy(replace, (&raw mut descriptor).cast());
}

extern "C" fn replace(descriptor: *mut c_void) -> u8 {
    // SAFETY: `stand_in` passes its own variable, and waits.
    let descriptor = unsafe { descriptor.cast::<i32>().read() };
    if slice::current().is_none() || !is_the_hosts(descriptor) {
        return 0;
    }
    let Some(view) = view() else {
        return 0;
    };
    let mut buffer = [0; meminfo_text::LENGTH];
    let text = meminfo_text::write(&view, &mut buffer);
    let made = File::of_text(c"meminfo", text).and_then(|file| {
        let (device, _) = file.stat()?.identity;
        DEVICE.store(device, Ordering::Relaxed);
        file.replace(descriptor)
    });
    if made.is_err() {
        counters::MEMINFO_SHOWN
            .warn_text("the slice's meminfo cannot be shown: the program reads the host's");
    }
    0
}

/// Whether a descriptor refers to `/proc/meminfo`, whatever path the program opened it by.
fn is_the_hosts(descriptor: i32) -> bool {
    let opened = Stat::of(descriptor);
    let hosts = Stat::at(paths::PROC_MEMINFO);
    matches!((opened, hosts), (Ok(opened), Ok(hosts)) if opened.identity == hosts.identity)
}

/// The device number of all memory files, once a program holds one of ours.
static DEVICE: AtomicU64 = AtomicU64::new(0);

/// Whether a descriptor of this process may refer to a text of ours.
#[inline]
pub(crate) fn was_shown() -> bool {
    DEVICE.load(Ordering::Relaxed) != 0
}

/// Whether a descriptor refers to a text of ours. Tests the file itself, not the descriptor's
/// number: a program may have duplicated the descriptor, or hold several.
fn is_ours(descriptor: i32, device: u64) -> bool {
    device == DEVICE.load(Ordering::Relaxed) && sys::is_sealed_text(descriptor, b"MemTotal:")
}

/// Replaces the kernel's `struct stat` of a text of ours by that of `/proc/meminfo`.
///
/// # Safety
/// The kernel has just written a `struct stat` to `place`.
#[cold]
#[inline(never)]
pub(crate) unsafe fn told_of(descriptor: i32, place: *mut c_void) {
    // SAFETY: the caller guarantees a `struct stat` at `place`; `st_dev` is its first word on every
    // 64-bit machine.
    let device = unsafe { place.cast::<u64>().read_unaligned() };
    if is_ours(descriptor, device) {
        // SAFETY: the caller guarantees that `place` has room for a `struct stat`.
        unsafe { sys::stat_into(paths::PROC_MEMINFO, place) };
    }
}

/// Replaces the kernel's `struct statx` of a text of ours by that of `/proc/meminfo`.
///
/// # Safety
/// The kernel has just written a `struct statx` to `place`.
#[cold]
#[inline(never)]
pub(crate) unsafe fn told_more_of(descriptor: i32, flags: i32, mask: u32, place: *mut c_void) {
    if Stat::of(descriptor).is_ok_and(|stat| is_ours(descriptor, stat.identity.0)) {
        // SAFETY: the caller guarantees that `place` has room for a `struct statx`.
        unsafe { sys::statx_into(paths::PROC_MEMINFO, flags, mask, place) };
    }
}
