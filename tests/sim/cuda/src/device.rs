//! Devices: their number, their identity, and their capabilities.
//! Touches: the scenario.

use crate::abi::*;
use crate::driver::driver;

fn uuid(device: CUdevice, with_mig: bool) -> Answer<[u8; 16]> {
    let driver = driver()?;
    Ok(match driver.mig(device)? {
        Some(mig) if with_mig => mig.uuid_bytes(),
        _ => driver.gpu(device)?.uuid_bytes(),
    })
}

cuda! {
    fn cuDeviceGetCount(count: Out<i32>) {
        count.set(i32::try_from(driver()?.devices.len()).unwrap_or(0))
    }

    fn cuDeviceGet(out: Out<CUdevice>, ordinal: i32) {
        driver()?.device(ordinal)?;
        out.set(ordinal)
    }

    fn cuDeviceGetName(text: Out<u8>, len: i32, device: CUdevice) {
        let driver = driver()?;
        let gpu = driver.gpu(device)?;
        match driver.mig(device)? {
            Some(mig) => set_text(text, len, &format!("{} MIG {}", gpu.name, mig.profile)),
            None => set_text(text, len, &gpu.name),
        }
    }

    fn cuDeviceGetUuid(out: Out<[u8; 16]>, device: CUdevice) {
        out.set(uuid(device, false)?)
    }

    fn cuDeviceGetUuid_v2(out: Out<[u8; 16]>, device: CUdevice) {
        out.set(uuid(device, true)?)
    }

    fn cuDeviceGetAttribute(out: Out<i32>, attribute: i32, device: CUdevice) {
        let driver = driver()?;
        let value = crate::attributes::value(driver, driver.gpu(device)?, driver.mig(device)?, device, attribute);
        out.set(value.ok_or(INVALID_VALUE)?)
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: CUdevice) {
        let compute = driver()?.gpu(device)?.compute;
        major.set(compute[0])?;
        minor.set(compute[1])
    }

    fn cuDeviceGetPCIBusId(text: Out<u8>, len: i32, device: CUdevice) {
        // CUDA prints four digits of the domain, NVML eight.
        let pci = &driver()?.gpu(device)?.pci;
        set_text(text, len, pci.get(4..).unwrap_or(pci))
    }

    fn cuDeviceGetByPCIBusId(out: Out<CUdevice>, id: Text) {
        let driver = driver()?;
        let id = id.get()?.to_ascii_uppercase();
        let same = |device: &CUdevice| {
            driver.gpu(*device).is_ok_and(|gpu| {
                let pci = gpu.pci.to_ascii_uppercase();
                pci.ends_with(&id) || id.ends_with(&pci) || pci.trim_end_matches(".0").ends_with(&id)
            })
        };
        let count = i32::try_from(driver.devices.len()).unwrap_or(0);
        out.set((0..count).find(same).ok_or(INVALID_DEVICE)?)
    }

    fn cuDeviceCanAccessPeer(out: Out<i32>, device: CUdevice, peer: CUdevice) {
        let driver = driver()?;
        driver.device(device)?;
        driver.device(peer)?;
        out.set(i32::from(device != peer))
    }

    fn cuDeviceGetP2PAttribute(out: Out<i32>, _attribute: i32, device: CUdevice, peer: CUdevice) {
        let driver = driver()?;
        driver.device(device)?;
        driver.device(peer)?;
        out.set(0)
    }

    fn cuCtxEnablePeerAccess(_context: Handle, _flags: u32) {
        driver().map(|_| ())
    }

    fn cuCtxDisablePeerAccess(_context: Handle) {
        driver().map(|_| ())
    }

    fn cuDeviceGetExecAffinitySupport(out: Out<i32>, _kind: i32, device: CUdevice) {
        driver()?.device(device)?;
        out.set(0)
    }
}
