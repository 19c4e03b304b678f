//! The slice's `/proc/meminfo`, in the place of the host's.
//! Touches: the descriptor that a program has just opened; the host's meminfo and the ledger.
//! Law: only in a slice of unified memory that presents it as such, where the device says that it
//! is integrated: never the one without the other. Where it cannot be made, the host's stays.

use gpuslice_config::meminfo::slice;
use gpuslice_config::source;
use gpuslice_config::view::MemoryView;

use crate::log::Piece::Str;
use crate::sys::{File, Stat};
use crate::{answer, count, device, runtime};

/// What this process is shown of the memory that its device shares with the host. None: nothing
/// but the host's own.
#[cold]
#[inline(never)]
pub(crate) fn shown() -> Option<MemoryView> {
    let runtime = runtime::slice().filter(|runtime| !runtime.presents_discrete())?;
    let device = device::unified(runtime)?;
    answer::of_host(runtime, &device, None)
}

/// Puts the slice's text in the place of the host's, if that is what was opened.
#[cold]
#[inline(never)]
pub(crate) fn stand_in(descriptor: i32) {
    if runtime::slice().is_none() || !is_the_hosts(descriptor) {
        return;
    }
    let Some(view) = shown() else {
        return;
    };
    let mut buffer = [0; slice::LENGTH];
    let text = slice::write(&view, &mut buffer);
    let made = File::of_text(c"meminfo", text).and_then(|file| file.replace(descriptor));
    if made.is_err() {
        count::MEMINFO_SHOWN.say("meminfo", &[Str("cannot be shown; the host's stays")]);
    }
}

/// Whether it is `/proc/meminfo`, by whatever path it was opened.
fn is_the_hosts(descriptor: i32) -> bool {
    let opened = Stat::of_program(descriptor);
    let hosts = Stat::at(source::PROC_MEMINFO);
    matches!((opened, hosts), (Ok(opened), Ok(hosts)) if opened.identity == hosts.identity)
}
