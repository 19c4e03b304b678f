//! Measures the memory that a context takes as the difference between two samples; no call reports
//! it.
//! Touches: NVML, which it loads if the process has not; the host's meminfo on unified memory.
//!
//! NVML's figure for this process alone is exact, whatever neighbours do. In a container NVML may
//! list this process under another pid: then it is the only process that is new in the later
//! sample. Where NVML lists no process, the size is the drop in free memory. That drop includes
//! whatever a neighbour allocates or frees meanwhile, so an implausible size is not believed. Only
//! one process of the slice measures at a time, and its result serves all of them. Without NVML,
//! the size is derived from the memory that the driver reports as in use once the context exists.

use core::ptr::null_mut;

use gpuslice_config::ledger;
use gpuslice_config::words::device::{CudaOrdinal, DeviceUuid};
use gpuslice_config::words::units::Bytes;

use crate::answer::{device, driver_memory};
use crate::log::Piece::{Size, Str};
use crate::log::counters;
use crate::real::abi::{CUcontext, SUCCESS, nvmlDevice_t, nvmlProcessInfo_t};
use crate::real::copies::{self, CopyId};
use crate::real::functions;
use crate::slice::loaded_slice::LoadedSlice;
use crate::sys;

/// The maximum number of processes per device that are examined.
const PROCESSES: usize = 64;

/// The plausible sizes of a context: from a Jetson's to above the 520 MiB of an H200, the largest
/// known.
const SIZES: core::ops::RangeInclusive<u64> = (16 << 20)..=(768 << 20);
/// The size assumed for a context whose measured size is implausible. Most known contexts take 254
/// or 256 MiB; an Orin's takes 76 MiB less.
pub(crate) const USUAL: u64 = 256 << 20;
/// The number of readings of free memory. The highest counts, so that a neighbour's short-lived
/// allocation usually appears in neither sample.
const READINGS: usize = 4;

/// The growth between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextGrowth {
    /// The growth that NVML reports for a process, or a drop in free memory of a plausible size.
    By(u64),
    /// The drop in free memory is not a plausible size of a context.
    Unlikely {
        /// The drop; 0 if more memory is free than before.
        difference: u64,
        /// The size to assume instead.
        usual: u64,
    },
}

impl ContextGrowth {
    /// The size to record; logs an implausible one.
    pub(crate) fn believed(self) -> Bytes {
        let size = match self {
            ContextGrowth::By(size) => size,
            ContextGrowth::Unlikely { difference, usual } => {
                let line = [
                    Str("memory in use grew by "),
                    Size(Bytes::new(difference)),
                    Str(
                        " when a context was created, which is not plausible (another program may have allocated); the context counts as ",
                    ),
                    Size(Bytes::new(usual)),
                ];
                counters::CONTEXT.warn(&line);
                usual
            }
        };
        ledger::rounded(size)
    }
}

/// A sample of the device's processes and free memory.
pub(crate) struct Sample {
    processes: [Option<(u32, u64)>; PROCESSES],
    free: Option<u64>,
}

/// A handle to NVML's view of the device.
#[derive(Clone, Copy)]
pub(crate) struct Meter {
    nvml: Option<(CopyId, nvmlDevice_t)>,
}

impl Meter {
    /// Prepares to measure a device.
    pub(crate) fn new(slice: &LoadedSlice, copy: CopyId, ordinal: CudaOrdinal) -> Meter {
        let identity = device::identity(slice, copy, ordinal);
        Meter {
            nvml: identity.and_then(open),
        }
    }

    /// Takes a sample. `host` returns the memory that the host has available, on unified memory.
    pub(crate) fn sample(&self, host: impl Fn() -> Option<u64>) -> Sample {
        let mut processes = [None; PROCESSES];
        if let Some((nvml, device)) = self.nvml {
            list(nvml, device, &mut processes);
        }
        let nvml = || {
            self.nvml
                .and_then(|(nvml, device)| driver_memory::nvml(nvml, device))
        };
        let readings =
            (0..READINGS).filter_map(|_| host().or_else(|| nvml().map(|memory| memory.free)));
        Sample {
            processes,
            free: readings.max(),
        }
    }

    /// Releases NVML.
    pub(crate) fn close(self) {
        if let Some((nvml, _)) = self.nvml
            && let Some(shutdown) = functions::nvmlShutdown::real(nvml)
        {
            // SAFETY: takes no arguments; balances the nvmlInit of `open`.
            unsafe { shutdown() };
        }
    }
}

/// The size of an existing context for which there is no earlier sample of free memory: the
/// device's memory in use less what the slice's processes hold. A neighbour's memory is included.
pub(crate) fn afterwards(copy: CopyId, context: Option<u64>, held: Bytes) -> ContextGrowth {
    let usual = |difference| ContextGrowth::Unlikely {
        difference,
        usual: USUAL,
    };
    let context = context.map(|context| context as CUcontext);
    let memory =
        context.and_then(|context| device::within(copy, context, || driver_memory::current(copy)));
    let Some(memory) = memory.flatten() else {
        return usual(0);
    };
    let difference = memory.total.minus(memory.free).minus(held).get();
    match SIZES.contains(&difference) {
        true => ContextGrowth::By(difference),
        false => usual(difference),
    }
}

fn open(uuid: DeviceUuid) -> Option<(CopyId, nvmlDevice_t)> {
    let nvml = copies::any_nvml()?;
    let init = functions::nvmlInit_v2::real(nvml)?;
    let find = functions::nvmlDeviceGetHandleByUUID::real(nvml)?;
    // SAFETY: takes no arguments.
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
    // SAFETY: nvmlDeviceGetHandleByUUID's contract: a uuid is shorter than `text`, so that `text`
    // ends in NUL.
    let code = unsafe { find(text.as_ptr().cast(), &raw mut device) };
    if code != SUCCESS {
        Meter {
            nvml: Some((nvml, device)),
        }
        .close();
        return None;
    }
    Some((nvml, device))
}

fn list(nvml: CopyId, device: nvmlDevice_t, into: &mut [Option<(u32, u64)>; PROCESSES]) {
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
    // SAFETY: the function's contract: `count` is the number of entries that `listed` has room for.
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

impl Sample {
    fn used_by(&self, pid: u32) -> Option<u64> {
        let mut listed = self.processes.iter().flatten();
        listed
            .find(|(other, _)| *other == pid)
            .map(|(_, used)| *used)
    }

    /// The growth from this sample to a later one. `held`: the memory that the process held before.
    /// None: neither source reports it.
    pub(crate) fn until(&self, later: &Sample, held: Bytes) -> Option<ContextGrowth> {
        let pid = u32::try_from(sys::pid()).unwrap_or(0);
        // NVML lists processes with a context only. A process that has memory of Vulkan or of
        // cuMemCreate already is new in the list, with all of it.
        let new = later.processes.iter().flatten();
        let new = new.filter(|(pid, _)| self.used_by(*pid).is_none());
        let mut fresh = new
            .map(|(pid, used)| (*pid, used.saturating_sub(held.get())))
            .filter(|(_, used)| SIZES.contains(used));
        if let Some((_, used)) = fresh.clone().find(|(new, _)| *new == pid) {
            return Some(ContextGrowth::By(used));
        }
        if let (Some((_, used)), None) = (fresh.next(), fresh.next()) {
            return Some(ContextGrowth::By(used));
        }
        // Inside a container another process may be listed under our pid: its growth is not a
        // context's.
        let own = later.used_by(pid).zip(self.used_by(pid));
        let grown = own.map_or(0, |(now, then)| now.saturating_sub(then));
        if SIZES.contains(&grown) {
            return Some(ContextGrowth::By(grown));
        }
        let difference = self.free?.saturating_sub(later.free?);
        Some(match SIZES.contains(&difference) {
            true => ContextGrowth::By(difference),
            false => ContextGrowth::Unlikely {
                difference,
                usual: USUAL,
            },
        })
    }
}
