//! The processes on a device and the memory of each: the lists in their three layouts.
//! Touches: the machine's table of processes.

use crate::abi::*;
use crate::devices::{Device, device};
use gpuslice_sim_machine::ProcessUse;

/// The vendor's nvmlProcessInfo_v1_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InfoV1 {
    pid: u32,
    used: u64,
}

/// The vendor's nvmlProcessInfo_v2_t, also used by version 3.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InfoV2 {
    pid: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// The vendor's nvmlProcessDetail_v1_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Detail {
    pid: u32,
    used: u64,
    gpu_instance: u32,
    compute_instance: u32,
    protected: u64,
}

/// The vendor's nvmlProcessDetailList_v1_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DetailList {
    version: u32,
    mode: u32,
    count: u32,
    array: usize,
}

/// The vendor's nvmlProcessUtilizationSample_t.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pid: u32,
    time: u64,
    sm: u32,
    memory: u32,
    encoder: u32,
    decoder: u32,
}

const DETAIL_VERSION_1: u32 = 0x0100_0018;
const NO_INSTANCE: u32 = u32::MAX;
/// How much larger this process's id is outside its pid namespace, with the fault `other-pid`.
const OUTSIDE: u32 = 1 << 22;

fn processes(device: Device) -> Answer<Vec<InfoV2>> {
    if device.gpu().nvml_minimal {
        return Err(NOT_SUPPORTED);
    }
    let machine = device.machine;
    let info = |it: ProcessUse| {
        let mig = machine.domains[it.domain]
            .mig
            .map(|mig| &device.gpu().mig[mig]);
        InfoV2 {
            pid: it.pid,
            used: it.used,
            gpu_instance: mig.map_or(NO_INSTANCE, |mig| mig.gpu_instance),
            compute_instance: mig.map_or(NO_INSTANCE, |mig| mig.compute_instance),
        }
    };
    let mut all: Vec<InfoV2> = device
        .domains()
        .flat_map(|domain| machine.processes(domain))
        .map(info)
        .collect();
    if machine.faults.other_pid() {
        let own = std::process::id();
        for it in &mut all {
            if it.pid == own {
                it.pid += OUTSIDE;
            }
        }
        all.push(InfoV2 {
            pid: own,
            used: 300 << 20,
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
        });
    }
    Ok(all)
}

/// The vendor's protocol: a caller with too small a count gets the right one and INSUFFICIENT_SIZE.
fn list<T>(count: Out<u32>, out: Out<T>, all: Vec<T>) -> Answer {
    let room = count.get()?;
    let needed = u32::try_from(all.len()).unwrap_or(u32::MAX);
    count.set(needed)?;
    if room < needed {
        return Err(INSUFFICIENT_SIZE);
    }
    all.into_iter()
        .enumerate()
        .try_for_each(|(i, it)| out.at(i).set(it))
}

fn old(it: &InfoV2) -> InfoV1 {
    InfoV1 {
        pid: it.pid,
        used: it.used,
    }
}

fn nobody(handle: nvmlDevice_t, count: Out<u32>) -> Answer {
    if device(handle)?.gpu().nvml_minimal {
        return Err(NOT_SUPPORTED);
    }
    count.get()?;
    count.set(0)
}

nvml! {
    fn nvmlDeviceGetComputeRunningProcesses(handle: nvmlDevice_t, count: Out<u32>, out: Out<InfoV1>) {
        list(count, out, processes(device(handle)?)?.iter().map(old).collect())
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(handle: nvmlDevice_t, count: Out<u32>, out: Out<InfoV2>) {
        list(count, out, processes(device(handle)?)?)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: nvmlDevice_t, count: Out<u32>, out: Out<InfoV2>) {
        list(count, out, processes(device(handle)?)?)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(handle: nvmlDevice_t, count: Out<u32>, _out: Out<InfoV1>) {
        nobody(handle, count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(handle: nvmlDevice_t, count: Out<u32>, _out: Out<InfoV2>) {
        nobody(handle, count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(handle: nvmlDevice_t, count: Out<u32>, _out: Out<InfoV2>) {
        nobody(handle, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(handle: nvmlDevice_t, count: Out<u32>, _out: Out<InfoV1>) {
        nobody(handle, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(handle: nvmlDevice_t, count: Out<u32>, _out: Out<InfoV2>) {
        nobody(handle, count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(handle: nvmlDevice_t, count: Out<u32>, _out: Out<InfoV2>) {
        nobody(handle, count)
    }

    fn nvmlDeviceGetRunningProcessDetailList(handle: nvmlDevice_t, list: Out<DetailList>) {
        let device = device(handle)?;
        let mut asked = list.get()?;
        if asked.version != DETAIL_VERSION_1 {
            return Err(ARGUMENT_VERSION_MISMATCH);
        }
        // Mode 0 is compute. No process draws or uses MPS here.
        let all = if asked.mode == 0 { processes(device)? } else { Vec::new() };
        let room = asked.count as usize;
        asked.count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        list.set(asked)?;
        if room < all.len() {
            return Err(INSUFFICIENT_SIZE);
        }
        let out = Out::<Detail>::from_address(asked.array);
        all.iter().enumerate().try_for_each(|(i, it)| {
            out.at(i).set(Detail {
                pid: it.pid,
                used: it.used,
                gpu_instance: it.gpu_instance,
                compute_instance: it.compute_instance,
                protected: 0,
            })
        })
    }

    fn nvmlDeviceGetProcessUtilization(handle: nvmlDevice_t, out: Out<Sample>, count: Out<u32>, _since: u64) {
        let sample =
            |it: &InfoV2| Sample { pid: it.pid, time: 1, sm: 0, memory: 0, encoder: 0, decoder: 0 };
        list(count, out, processes(device(handle)?)?.iter().map(sample).collect())
    }
}
