//! Queries of memory, and the three ways in which machines do not answer them.
//! Touches: the machine's numbers.

use crate::abi::*;
use crate::devices::{Device, device};
use gpuslice_sim_machine::NvmlMemory;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One answer before it is put into a struct. total = used + free + reserved.
#[derive(Clone, Copy)]
struct Memory {
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// The vendor's nvmlMemory_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryV1 {
    total: u64,
    free: u64,
    used: u64,
}

/// The vendor's nvmlMemory_v2_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

const VERSION_2: u32 = 0x0200_0028;

thread_local! {
    static LOOKING_ITSELF_UP: Cell<bool> = const { Cell::new(false) };
}

fn memory(device: Device) -> Answer<Memory> {
    let gpu = device.gpu();
    match gpu.nvml_memory {
        NvmlMemory::NotSupported => return Err(NOT_SUPPORTED),
        NvmlMemory::Zero => {
            return Ok(Memory {
                total: 0,
                reserved: 0,
                free: 0,
                used: 0,
            });
        }
        NvmlMemory::CarveOut => {
            let used = gpu.nvml_total - gpu.nvml_free;
            return Ok(Memory {
                total: gpu.nvml_total,
                reserved: 0,
                free: gpu.nvml_free,
                used,
            });
        }
        NvmlMemory::Works => {}
    }
    let machine = device.machine;
    let (total, cuda_total) = match device.instance {
        Some(domain) => (machine.nvml_total(domain), machine.cuda_total(domain)),
        None => (gpu.nvml_total, gpu.cuda_total),
    };
    // For a GPU with instances, the sum over all of them.
    let used: u64 = device
        .domains()
        .map(|domain| {
            let now = machine.query(domain);
            now.total - now.free
        })
        .sum();
    Ok(Memory {
        total,
        reserved: total - cuda_total,
        free: cuda_total.saturating_sub(used),
        used,
    })
}

/// Version 2 for a process whose cgroup has a limit of the driver's own: no more than that limit.
fn within_limit(device: Device, now: Memory) -> Memory {
    let Some((hard, used)) = device.machine.limit_shown(device.index) else {
        return now;
    };
    let total = hard.min(now.total - now.reserved);
    let free = now.free.min(hard.saturating_sub(used)).min(total);
    Memory {
        total,
        reserved: 0,
        free,
        used: total - free,
    }
}

/// Version 1 has no field for reserved memory, which counts as used.
fn version_1(device: Device) -> Answer<MemoryV1> {
    let now = memory(device)?;
    Ok(MemoryV1 {
        total: now.total,
        free: now.free,
        used: now.used + now.reserved,
    })
}

nvml! {
    fn nvmlDeviceGetMemoryInfo(handle: nvmlDevice_t, out: Out<MemoryV1>) {
        let device = device(handle)?;
        if device.machine.faults.self_dlsym() && !LOOKING_ITSELF_UP.with(|it| it.replace(true)) {
            let answer = ask_oneself(handle);
            LOOKING_ITSELF_UP.with(|it| it.set(false));
            return out.set(answer?);
        }
        out.set(version_1(device)?)
    }

    fn nvmlDeviceGetMemoryInfo_v2(handle: nvmlDevice_t, out: Out<MemoryV2>) {
        let device = device(handle)?;
        if out.cast::<u32>().get()? != VERSION_2 {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        let Memory { total, reserved, free, used } = within_limit(device, memory(device)?);
        out.set(MemoryV2 { version: VERSION_2, total, reserved, free, used })
    }

    fn nvmlDeviceGetConfComputeProtectedMemoryUsage(handle: nvmlDevice_t, out: Out<MemoryV1>) {
        let device = device(handle)?;
        if !matches!(device.gpu().nvml_memory, NvmlMemory::Works) {
            return Err(NOT_SUPPORTED);
        }
        // Confidential computing is off, so no memory is protected.
        out.set(MemoryV1 { total: 0, free: 0, used: 0 })
    }

    fn nvmlDeviceGetConfComputeMemSizeInfo(handle: nvmlDevice_t, out: Out<[u64; 2]>) {
        let device = device(handle)?;
        let kib = memory(device)?.total / 1024;
        out.set([0, kib])
    }

    fn nvmlDeviceGetBAR1MemoryInfo(handle: nvmlDevice_t, out: Out<MemoryV1>) {
        let device = device(handle)?;
        let gpu = device.gpu();
        if gpu.bar1 == 0 || gpu.nvml_minimal {
            return Err(NOT_SUPPORTED);
        }
        // An instance has its share of the window.
        let total = device.mig().map_or(gpu.bar1, |mig| gpu.bar1 / 8 * u64::from(mig.slices));
        let used = 4 << 20;
        out.set(MemoryV1 { total, free: total - used, used })
    }
}

static ANCHOR: AtomicUsize = AtomicUsize::new(0);

/// Queries as the driver of one platform does: it finds its own function by dlsym and calls that.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the driver that looks itself up; the shim is the other library"
)]
fn ask_oneself(handle: nvmlDevice_t) -> Answer<MemoryV1> {
    ANCHOR.store(handle, Relaxed);
    // SAFETY: Dl_info is plain data for which all zeroes is a valid value.
    let mut here: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the anchor lies in this library and `here` outlives the call.
    if unsafe { libc::dladdr((&raw const ANCHOR).cast(), &raw mut here) } == 0 {
        return Err(NOT_FOUND);
    }
    // SAFETY: dli_fname is the loader's string for this loaded library.
    let library = unsafe { libc::dlopen(here.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return Err(NOT_FOUND);
    }
    // SAFETY: a live handle and a C string.
    let found = unsafe { libc::dlsym(library, c"nvmlDeviceGetMemoryInfo".as_ptr()) };
    if found.is_null() {
        return Err(NOT_FOUND);
    }
    // SAFETY: that name has the vendor's signature, here or interposed.
    let call: extern "C" fn(nvmlDevice_t, *mut MemoryV1) -> nvmlReturn_t =
        unsafe { std::mem::transmute(found) };
    let mut answer = MemoryV1 {
        total: 0,
        free: 0,
        used: 0,
    };
    match call(handle, &raw mut answer) {
        0 => Ok(answer),
        code => Err(code),
    }
}
