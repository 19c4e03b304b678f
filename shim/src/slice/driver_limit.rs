//! Finds out whether the driver holds the slice's limits for this process.
//! Touches: /proc/self/cgroup, once, where the slice file names a cgroup; the log.
//! Law: a process outside that cgroup is not limited by the driver, so the library limits it.

use gpuslice_config::slice::{Slice, Text, is_within, version_2};

use crate::log::{self, Level, Piece::Str};
use crate::sys::{File, Stat};

/// The bytes that are read of `/proc/self/cgroup`. The line of version 2 is the last one.
const LIST: usize = 4096;

/// The inode of the machine's first cgroup namespace (the kernel's `PROC_CGROUP_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFB;

/// The listed devices whose limit the driver holds, one bit each. `limited`: the cgroup for which it
/// holds them. `mounted`: the hook has mounted the slice into a container, at either path.
#[cold]
#[inline(never)]
pub(super) fn devices_held(slice: &Slice, limited: &Text<256>, mounted: bool) -> u64 {
    if !slice.enforce {
        return 0;
    }
    let is_in = is_in(limited.as_bytes(), mounted);
    let line = match is_in {
        true => "the driver enforces the limit of this process's cgroup: memory is only counted",
        false => {
            "the driver's limit applies to another cgroup: the library enforces this process's limit"
        }
    };
    log::say(Level::Info, &[Str(line)], None);
    if !is_in {
        return 0;
    }
    let devices = (0u32..).zip(slice.devices());
    let held = devices.filter(|(_, listed)| listed.driver_limit.is_some());
    held.fold(0, |bits, (place, _)| {
        bits | 1u64.checked_shl(place).unwrap_or(0)
    })
}

fn is_in(limited: &[u8], mounted: bool) -> bool {
    let mut list = [0u8; LIST];
    let file = File::open(c"/proc/self/cgroup");
    let Ok(text) = file.and_then(|file| file.read(&mut list)) else {
        return false;
    };
    version_2(text).is_some_and(|own| is_within(own, limited, mounted && has_namespace()))
}

/// Whether this process has a cgroup namespace, which is a container's own.
fn has_namespace() -> bool {
    let namespace = Stat::at(c"/proc/self/ns/cgroup");
    namespace.is_ok_and(|found| {
        let (_, inode) = found.identity;
        inode != FIRST_NAMESPACE
    })
}
