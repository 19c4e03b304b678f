//! The slice's `/proc/meminfo`, in the place of the host's.
//! Touches: the descriptor that a program has just opened; the host's meminfo and the ledger.
//! Law: only in a slice of unified memory that presents it as such, where the device says that it
//! is integrated: never the one without the other. Where it cannot be made, the host's stays, and
//! so it does in a process that has put itself under seccomp.

use core::ffi::c_void;

use gpuslice_config::meminfo::slice;
use gpuslice_config::source;
use gpuslice_config::view::MemoryView;

use crate::log::Piece::Str;
use crate::sys::{File, Stat};
use crate::{answer, count, device, runtime, sandbox, stack};

/// What this process is shown of the memory that its device shares with the host. None: nothing
/// but the host's own.
#[cold]
#[inline(never)]
pub(crate) fn shown() -> Option<MemoryView> {
    if sandbox::is_on() {
        return None;
    }
    let mut view: Option<MemoryView> = None;
    roomy(look, (&raw mut view).cast());
    view
}

extern "C" fn look(place: *mut c_void) -> u8 {
    // SAFETY: `shown` has given its own variable, and waits.
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
    let runtime = runtime::slice().filter(|runtime| !runtime.presents_discrete())?;
    let device = device::unified(runtime)?;
    answer::of_host(runtime, &device, None)
}

/// Puts the slice's text in the place of the host's, if that is what was opened.
#[cold]
#[inline(never)]
pub(crate) fn stand_in(descriptor: i32) {
    if sandbox::is_on() {
        return;
    }
    let mut descriptor = descriptor;
    roomy(replace, (&raw mut descriptor).cast());
}

extern "C" fn replace(descriptor: *mut c_void) -> u8 {
    // SAFETY: `stand_in` has given its own variable, and waits.
    let descriptor = unsafe { descriptor.cast::<i32>().read() };
    if runtime::slice().is_none() || !is_the_hosts(descriptor) {
        return 0;
    }
    let Some(view) = view() else {
        return 0;
    };
    let mut buffer = [0; slice::LENGTH];
    let text = slice::write(&view, &mut buffer);
    let made = File::of_text(c"meminfo", text).and_then(|file| file.replace(descriptor));
    if made.is_err() {
        count::MEMINFO_SHOWN.say("meminfo", &[Str("cannot be shown; the host's stays")]);
    }
    0
}

/// Whether it is `/proc/meminfo`, by whatever path it was opened.
fn is_the_hosts(descriptor: i32) -> bool {
    let opened = Stat::of_program(descriptor);
    let hosts = Stat::at(source::PROC_MEMINFO);
    matches!((opened, hosts), (Ok(opened), Ok(hosts)) if opened.identity == hosts.identity)
}
