//! The devices, and what they report of themselves.
//! Touches: the simulated machine; the environment (`GPUSLICE_SIM*`) at the first call, stderr when
//! the scenario is wrong.

use crate::abi::*;
use crate::table;
use gpuslice_sim_machine::{Machine, Mig};
use std::ffi::c_void;
use std::sync::OnceLock;

/// A device: one memory of the machine.
#[repr(C)]
pub(crate) struct Device {
    dispatch: usize,
    pub(crate) domain: usize,
}

/// The machine. None: the scenario or a fault is invalid.
pub(crate) fn machine() -> Option<&'static Machine> {
    static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();
    let opened = MACHINE.get_or_init(Machine::of_this_process);
    opened.as_ref()
}

/// The devices: a card with MIG instances shows its first one.
fn devices() -> &'static [Device] {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let Some(machine) = machine() else {
            return Vec::new();
        };
        let first = |gpu| machine.domains.iter().position(|domain| domain.gpu == gpu);
        let domains = (0..machine.scenario.gpu.len()).filter_map(first);
        domains
            .map(|domain| Device {
                dispatch: table::dispatch(),
                domain,
            })
            .collect()
    })
}

/// The handles of all devices.
pub(crate) fn all() -> Vec<usize> {
    let handle = |device: &Device| (&raw const *device) as usize;
    devices().iter().map(handle).collect()
}

fn mig(machine: &'static Machine, domain: usize) -> Option<&'static Mig> {
    let place = machine.domains[domain];
    Some(&machine.scenario.gpu[place.gpu].mig[place.mig?])
}

/// The answer to a query. None: there is no such fact.
fn fact(device: &Device, name: u32) -> Option<Vec<u8>> {
    let machine = machine()?;
    let gpu = machine.gpu(device.domain);
    let instance = mig(machine, device.domain);
    let total = machine.cuda_total(device.domain);
    let word = |value: u64| Some(value.to_ne_bytes().to_vec());
    let number = |value: u32| Some(value.to_ne_bytes().to_vec());
    let hex = |range: std::ops::Range<usize>| {
        let hex = gpu.pci.get(range).unwrap_or("0");
        u32::from_str_radix(hex, 16).unwrap_or(0)
    };
    match name {
        // CL_DEVICE_TYPE_GPU.
        0x1000 => word(4),
        0x1001 => number(0x10DE),
        0x1002 => number(gpu.multiprocessors.unsigned_abs()),
        0x1003 => number(3),
        0x1004 => word(1024),
        0x1005 => Some(
            [1024u64, 1024, 64]
                .iter()
                .flat_map(|n| n.to_ne_bytes())
                .collect(),
        ),
        0x100C => number(gpu.clocks[0]),
        0x100D => number(64),
        // CL_DEVICE_MAX_MEM_ALLOC_SIZE: a quarter of the memory.
        0x1010 => word(total / 4),
        0x1016 | 0x1027 | 0x1028 => number(1),
        0x101F => word(total),
        0x1035 | 0x4006 => number(u32::from(gpu.integrated)),
        0x102B => Some(match instance {
            Some(mig) => text(&format!("{} MIG {}", gpu.name, mig.profile)),
            None => text(&gpu.name),
        }),
        0x102C => Some(text("NVIDIA Corporation")),
        0x102D => Some(text(&machine.scenario.driver)),
        0x102E => Some(text("FULL_PROFILE")),
        0x102F => Some(text("OpenCL 3.0 CUDA")),
        0x1030 => Some(text(
            "cl_khr_device_uuid cl_nv_device_attribute_query cl_nv_create_buffer",
        )),
        0x1031 => Some(handles(std::iter::once(table::platform()))),
        0x103D => Some(text("OpenCL C 1.2")),
        // Coarse-grained shared virtual memory.
        0x1053 => word(1),
        0x105E => number(3 << 22),
        0x106A => Some(match instance {
            Some(mig) => mig.uuid_bytes().to_vec(),
            None => gpu.uuid_bytes().to_vec(),
        }),
        0x4000 => number(gpu.compute[0].unsigned_abs()),
        0x4001 => number(gpu.compute[1].unsigned_abs()),
        0x4008 => number(hex(9..11)),
        0x4009 => number(hex(12..14) << 3),
        0x400A => number(hex(0..8)),
        _ => None,
    }
}

entries! {
    2 fn clGetDeviceIDs(_platform: usize, kinds: u64, room: u32, devices: *mut usize, count: *mut u32) -> i32 {
        // CL_DEVICE_TYPE_DEFAULT and CL_DEVICE_TYPE_GPU; CL_DEVICE_TYPE_ALL has all bits.
        let all = if kinds & 5 == 0 { Vec::new() } else { all() };
        if all.is_empty() {
            set(count, 0);
            return DEVICE_NOT_FOUND;
        }
        if !devices.is_null() {
            for (n, device) in all.iter().enumerate().take(room as usize) {
                set(devices.wrapping_add(n), *device);
            }
        }
        set(count, u32::try_from(all.len()).unwrap_or(0));
        SUCCESS
    }

    3 fn clGetDeviceInfo(device: usize, name: u32, size: usize, value: *mut c_void, size_ret: *mut usize) -> i32 {
        match object::<Device>(device).and_then(|device| fact(device, name)) {
            Some(bytes) => reply(&bytes, size, value, size_ret),
            None => INVALID_VALUE,
        }
    }

    94 fn clRetainDevice(_device: usize) -> i32 {
        SUCCESS
    }

    95 fn clReleaseDevice(_device: usize) -> i32 {
        SUCCESS
    }
}
