//! The identity of a device: names, ids, PCI.
//! Touches: the scenario.

use crate::abi::*;
use crate::devices::{device, full_gpu};

/// The vendor's nvmlPciInfo_t, versions 2 and 3.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PciInfo {
    legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    ids: u32,
    subsystem: u32,
    id: [u8; 32],
}

/// The same in version 1, which lacks the later fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PciInfoV1 {
    legacy: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    ids: u32,
    subsystem: u32,
    reserved: [u32; 4],
}

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from;
    }
    out
}

/// A serial number, different for each card.
pub(crate) fn serial(index: usize) -> String {
    format!("13254213{index:05}")
}

fn pci(handle: nvmlDevice_t) -> Answer<PciInfo> {
    let gpu = device(handle)?.gpu();
    let hex = |range: std::ops::Range<usize>| {
        gpu.pci
            .get(range)
            .and_then(|hex| u32::from_str_radix(hex, 16).ok())
            .unwrap_or(0)
    };
    Ok(PciInfo {
        legacy: bytes(gpu.pci.get(4..).unwrap_or_default()),
        domain: hex(0..8),
        bus: hex(9..11),
        device: hex(12..14),
        ids: gpu.pci_id,
        subsystem: 0x1000_10DE,
        id: bytes(&gpu.pci),
    })
}

nvml! {
    fn nvmlDeviceGetName(handle: nvmlDevice_t, text: Out<u8>, len: u32) {
        let device = device(handle)?;
        match device.mig() {
            Some(mig) => set_string(text, len, &format!("{} MIG {}", device.gpu().name, mig.profile)),
            None => set_string(text, len, &device.gpu().name),
        }
    }

    fn nvmlDeviceGetUUID(handle: nvmlDevice_t, text: Out<u8>, len: u32) {
        set_string(text, len, device(handle)?.uuid())
    }

    fn nvmlDeviceGetIndex(handle: nvmlDevice_t, out: Out<u32>) {
        let device = device(handle)?;
        let first = device.machine.domains.iter().position(|it| it.gpu == device.index).unwrap_or(0);
        let index = device.instance.map_or(device.index, |domain| domain - first);
        out.set(u32::try_from(index).unwrap_or(0))
    }

    fn nvmlDeviceGetMinorNumber(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(u32::try_from(device(handle)?.index).unwrap_or(0))
    }

    fn nvmlDeviceGetSerial(handle: nvmlDevice_t, text: Out<u8>, len: u32) {
        // Consumer cards have no serial number.
        if !full_gpu(handle)?.ecc {
            return Err(NOT_SUPPORTED);
        }
        set_string(text, len, &serial(device(handle)?.index))
    }

    fn nvmlDeviceGetBoardId(handle: nvmlDevice_t, out: Out<u32>) {
        full_gpu(handle)?;
        out.set(pci(handle)?.bus << 8)
    }

    fn nvmlDeviceGetMultiGpuBoard(handle: nvmlDevice_t, out: Out<u32>) {
        full_gpu(handle)?;
        out.set(0)
    }

    fn nvmlDeviceGetPciInfo(handle: nvmlDevice_t, out: Out<PciInfoV1>) {
        let PciInfo { legacy, domain, bus, device, ids, subsystem, .. } = pci(handle)?;
        out.set(PciInfoV1 { legacy, domain, bus, device, ids, subsystem, reserved: [0; 4] })
    }

    fn nvmlDeviceGetPciInfo_v2(handle: nvmlDevice_t, out: Out<PciInfo>) {
        out.set(pci(handle)?)
    }

    fn nvmlDeviceGetPciInfo_v3(handle: nvmlDevice_t, out: Out<PciInfo>) {
        out.set(pci(handle)?)
    }

    fn nvmlDeviceGetBrand(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(device(handle)?.gpu().brand)
    }

    fn nvmlDeviceGetArchitecture(handle: nvmlDevice_t, out: Out<u32>) {
        out.set(device(handle)?.gpu().arch)
    }

    fn nvmlDeviceGetCudaComputeCapability(handle: nvmlDevice_t, major: Out<i32>, minor: Out<i32>) {
        let compute = device(handle)?.gpu().compute;
        major.set(compute[0])?;
        minor.set(compute[1])
    }

    fn nvmlDeviceGetNumGpuCores(handle: nvmlDevice_t, out: Out<u32>) {
        let gpu = full_gpu(handle)?;
        out.set(u32::try_from(gpu.multiprocessors).unwrap_or(0) * 128)
    }

    fn nvmlDeviceGetVbiosVersion(handle: nvmlDevice_t, text: Out<u8>, len: u32) {
        full_gpu(handle)?;
        set_string(text, len, "96.00.00.00.01")
    }
}
