//! Measures the memory that a context takes, which no call reports: the difference before and
//! after.
//! Touches: NVML, which it loads if nobody has; the host's meminfo on unified memory.
//!
//! What NVML says of this process alone is exact, whatever the neighbours do. In a container NVML
//! may know it by another number: then it is the one process that was not there before. Where
//! NVML lists nothing, it is how much less is free; only one process of the slice measures at a
//! time, and the first result serves all of them. What a neighbour allocates or frees in that
//! moment is in the difference too: a size that no context has is not believed. Without NVML the
//! driver says what is in use once the context is there.

use core::ptr::null_mut;

use gpuslice_config::device::{CudaOrdinal, DeviceUuid};
use gpuslice_config::units::Bytes;

use crate::answer::device;
use crate::real::abi::{
    CUcontext, NVML_MEMORY_V2, SUCCESS, nvmlDevice_t, nvmlMemory_v2_t, nvmlProcessInfo_t,
};
use crate::real::copies::{self, Slot};
use crate::real::functions;
use crate::slice::runtime::Runtime;
use crate::sys;

/// As many processes on one device as are looked at.
const PROCESSES: usize = 64;

/// What contexts take: from a Jetson's to more than the 520 MiB of an H200, the largest known.
const SIZES: core::ops::RangeInclusive<u64> = (16 << 20)..=(768 << 20);
/// What one is taken for whose size is not believed: most known ones have 254 or 256 MiB, an Orin
/// has less by 76 MiB.
const USUAL: u64 = 256 << 20;
/// How often what is free is read. The most of it counts, so that an allocation of a neighbour's
/// that comes and goes is in none of the two, most times.
const READINGS: usize = 4;

/// What has come since a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grown {
    /// As NVML says of a process, or by a difference of what is free that a context may have.
    By(u64),
    /// What is free says this, which no context takes.
    Unlikely {
        /// The difference; 0 where more is free than before.
        difference: u64,
        /// What to take it for.
        usual: u64,
    },
}

/// A moment.
pub(crate) struct Sample {
    processes: [Option<(u32, u64)>; PROCESSES],
    free: Option<u64>,
}

/// NVML's view of the device.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    nvml: Option<(Slot, nvmlDevice_t)>,
}

impl Scale {
    /// Gets ready to measure a device.
    pub(crate) fn of(runtime: &Runtime, slot: Slot, ordinal: CudaOrdinal) -> Scale {
        let identity = device::identity(runtime, slot, ordinal);
        Scale {
            nvml: identity.and_then(open),
        }
    }

    /// What is there now. `host`: what the host says is available, on unified memory.
    pub(crate) fn sample(&self, host: impl Fn() -> Option<u64>) -> Sample {
        let mut processes = [None; PROCESSES];
        if let Some((nvml, device)) = self.nvml {
            list(nvml, device, &mut processes);
        }
        let nvml = || self.nvml.and_then(|(nvml, device)| free(nvml, device));
        let readings = (0..READINGS).filter_map(|_| host().or_else(nvml));
        Sample {
            processes,
            free: readings.max(),
        }
    }

    /// Done.
    pub(crate) fn close(self) {
        if let Some((nvml, _)) = self.nvml
            && let Some(shutdown) = functions::nvmlShutdown::real(nvml)
        {
            // SAFETY: takes nothing; balances the nvmlInit of `open`.
            unsafe { shutdown() };
        }
    }
}

/// What a context takes that is there, where nothing has said how much was free before: what is in
/// use beside what the slice's processes hold. A neighbour's memory is in that too.
pub(crate) fn afterwards(slot: Slot, context: Option<u64>, held: Bytes) -> Grown {
    let usual = |difference| Grown::Unlikely {
        difference,
        usual: USUAL,
    };
    let context = context.map(|context| context as CUcontext);
    let in_use = context.and_then(|context| device::within(slot, context, || in_use(slot)));
    let Some(in_use) = in_use.flatten() else {
        return usual(0);
    };
    let difference = in_use.minus(held).get();
    match SIZES.contains(&difference) {
        true => Grown::By(difference),
        false => usual(difference),
    }
}

/// What the driver says is in use of the current device.
fn in_use(slot: Slot) -> Option<Bytes> {
    let (mut free, mut total) = (0usize, 0usize);
    let ask = functions::cuMemGetInfo_v2::real(slot)?;
    // SAFETY: cuMemGetInfo_v2's contract.
    let code = unsafe { ask(&raw mut free, &raw mut total) };
    (code == SUCCESS).then(|| Bytes::new(total as u64).minus(Bytes::new(free as u64)))
}

fn open(uuid: DeviceUuid) -> Option<(Slot, nvmlDevice_t)> {
    let nvml = copies::any_nvml()?;
    let init = functions::nvmlInit_v2::real(nvml)?;
    let find = functions::nvmlDeviceGetHandleByUUID::real(nvml)?;
    // SAFETY: takes nothing.
    if unsafe { init() } != SUCCESS {
        return None;
    }
    let mut text = [0u8; 64];
    let mut places = text.iter_mut();
    uuid.write_ascii(&mut |byte| {
        if let Some(place) = places.next() {
            *place = byte;
        }
    });
    let mut device = null_mut();
    // SAFETY: nvmlDeviceGetHandleByUUID's contract: a uuid is shorter than the text, which
    // therefore ends in NUL.
    let code = unsafe { find(text.as_ptr().cast(), &raw mut device) };
    if code != SUCCESS {
        Scale {
            nvml: Some((nvml, device)),
        }
        .close();
        return None;
    }
    Some((nvml, device))
}

fn list(nvml: Slot, device: nvmlDevice_t, into: &mut [Option<(u32, u64)>; PROCESSES]) {
    let nobody = nvmlProcessInfo_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    let mut listed = [nobody; PROCESSES];
    const ROOM: u32 = 64;
    let mut count = ROOM;
    let Some(ask) = functions::nvmlDeviceGetComputeRunningProcesses_v3::real(nvml) else {
        return;
    };
    // SAFETY: the function's contract: `count` says how much room there is.
    if unsafe { ask(device, &raw mut count, listed.as_mut_ptr()) } != SUCCESS {
        return;
    }
    /// `NVML_VALUE_NOT_AVAILABLE`.
    const NOT_AVAILABLE: u64 = u64::MAX;
    let known = listed.iter().take(count as usize);
    let known = known.filter(|process| process.usedGpuMemory != NOT_AVAILABLE);
    for (place, process) in into.iter_mut().zip(known) {
        *place = Some((process.pid, process.usedGpuMemory));
    }
}

fn free(nvml: Slot, device: nvmlDevice_t) -> Option<u64> {
    let ask = functions::nvmlDeviceGetMemoryInfo_v2::real(nvml)?;
    let mut memory = nvmlMemory_v2_t {
        version: NVML_MEMORY_V2,
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: nvmlDeviceGetMemoryInfo_v2's contract.
    (unsafe { ask(device, &raw mut memory) } == SUCCESS).then_some(memory.free)
}

impl Sample {
    fn of(&self, pid: u32) -> Option<u64> {
        let mut listed = self.processes.iter().flatten();
        listed
            .find(|(other, _)| *other == pid)
            .map(|(_, used)| *used)
    }

    /// What has come since. None: nothing says it.
    pub(crate) fn until(&self, later: &Sample) -> Option<Grown> {
        let pid = u32::try_from(sys::pid()).unwrap_or(0);
        let is_new = |(pid, used): &&(u32, u64)| self.of(*pid).is_none() && *used != 0;
        let mut fresh = later.processes.iter().flatten().filter(is_new);
        if let Some((_, used)) = fresh.clone().find(|(new, _)| *new == pid) {
            return Some(Grown::By(*used));
        }
        if let (Some((_, used)), None) = (fresh.next(), fresh.next()) {
            return Some(Grown::By(*used));
        }
        // Inside a container another process may be listed by our number: that one has not grown by
        // a context.
        let own = later.of(pid).zip(self.of(pid));
        let grown = own.map_or(0, |(now, then)| now.saturating_sub(then));
        if SIZES.contains(&grown) {
            return Some(Grown::By(grown));
        }
        let difference = self.free?.saturating_sub(later.free?);
        Some(match SIZES.contains(&difference) {
            true => Grown::By(difference),
            false => Grown::Unlikely {
                difference,
                usual: USUAL,
            },
        })
    }
}
