//! MIG: the instances of a GPU, by handle.
//! Touches: the scenario.

use crate::abi::*;
use crate::devices::{Device, device, gpu_handle, mig_handle};
use gpuslice_sim_machine::Mig;

/// The vendor's nvmlDeviceAttributes_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    multiprocessors: u32,
    copy_engines: u32,
    decoders: u32,
    encoders: u32,
    jpeg: u32,
    ofa: u32,
    gpu_slices: u32,
    compute_slices: u32,
    memory_mib: u64,
}

/// H100 and later have up to seven instances.
const MOST: u32 = 7;

fn instance(handle: nvmlDevice_t) -> Answer<&'static Mig> {
    device(handle)?.mig().ok_or(INVALID_ARGUMENT)
}

fn parent(handle: nvmlDevice_t) -> Answer<Device> {
    let device = device(handle)?;
    if device.instance.is_some() {
        Err(INVALID_ARGUMENT)
    } else {
        Ok(device)
    }
}

fn attributes(handle: nvmlDevice_t, out: Out<Attributes>) -> Answer {
    let device = device(handle)?;
    let mig = device.mig().ok_or(NOT_SUPPORTED)?;
    out.set(Attributes {
        multiprocessors: u32::try_from(mig.multiprocessors).unwrap_or(0),
        copy_engines: mig.slices,
        decoders: mig.slices,
        encoders: 0,
        jpeg: mig.slices,
        ofa: 0,
        gpu_slices: mig.slices,
        compute_slices: mig.slices,
        memory_mib: mig.nvml_total >> 20,
    })
}

nvml! {
    fn nvmlDeviceGetMigMode(handle: nvmlDevice_t, current: Out<u32>, pending: Out<u32>) {
        let gpu = parent(handle)?.gpu();
        // Only data centre cards support the mode at all.
        if gpu.mig.is_empty() && (!gpu.ecc || gpu.compute[0] < 8) {
            return Err(NOT_SUPPORTED);
        }
        let mode = u32::from(!gpu.mig.is_empty());
        current.set(mode)?;
        pending.set(mode)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(handle: nvmlDevice_t, out: Out<u32>) {
        let gpu = parent(handle)?.gpu();
        out.set(if gpu.ecc && gpu.compute[0] >= 8 { MOST } else { 0 })
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(handle: nvmlDevice_t, index: u32, out: Out<nvmlDevice_t>) {
        let parent = parent(handle)?;
        if parent.gpu().mig.is_empty() {
            return Err(NOT_SUPPORTED);
        }
        out.set(mig_handle(parent.domains().nth(index as usize).ok_or(NOT_FOUND)?))
    }

    fn nvmlDeviceIsMigDeviceHandle(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(u32::from(device(handle)?.instance.is_some()))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle: nvmlDevice_t, out: Out<nvmlDevice_t>) {
        instance(handle)?;
        out.set(gpu_handle(device(handle)?.index))
    }

    fn nvmlDeviceGetGpuInstanceId(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(instance(handle)?.gpu_instance)
    }

    fn nvmlDeviceGetComputeInstanceId(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(instance(handle)?.compute_instance)
    }

    fn nvmlDeviceGetAttributes(handle: nvmlDevice_t, out: Out<Attributes>) {
        attributes(handle, out)
    }

    fn nvmlDeviceGetAttributes_v2(handle: nvmlDevice_t, out: Out<Attributes>) {
        attributes(handle, out)
    }
}
