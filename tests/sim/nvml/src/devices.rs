//! Device handles: GPUs and MIG instances.
//! Touches: the scenario.

use crate::abi::*;
use crate::gate::machine;
use gpuslice_sim_machine::{Gpu, Machine, Mig};

const GPUS: nvmlDevice_t = 0x6e76_0000;
const MIGS: nvmlDevice_t = 0x6e76_8000;
const STRIDE: nvmlDevice_t = 16;

/// The device that a handle means.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    pub(crate) machine: &'static Machine,
    /// Its GPU's number.
    pub(crate) index: usize,
    /// The memory of a MIG instance, if the device is one.
    pub(crate) instance: Option<usize>,
}

pub(crate) fn gpu_handle(index: usize) -> nvmlDevice_t {
    GPUS + index * STRIDE
}

pub(crate) fn mig_handle(domain: usize) -> nvmlDevice_t {
    MIGS + domain * STRIDE
}

/// The device of a handle; INVALID_ARGUMENT for anything else.
pub(crate) fn device(handle: nvmlDevice_t) -> Answer<Device> {
    let machine = machine()?;
    let number = |base: nvmlDevice_t| {
        let offset = handle.checked_sub(base)?;
        offset.is_multiple_of(STRIDE).then_some(offset / STRIDE)
    };
    if let Some(domain) = number(MIGS).filter(|domain| *domain < machine.domains.len()) {
        return Ok(Device {
            machine,
            index: machine.domains[domain].gpu,
            instance: Some(domain),
        });
    }
    match number(GPUS).filter(|index| *index < machine.scenario.gpu.len()) {
        Some(index) => Ok(Device {
            machine,
            index,
            instance: None,
        }),
        None => Err(INVALID_ARGUMENT),
    }
}

/// A whole GPU with a full NVML: neither a MIG instance nor a Jetson.
pub(crate) fn full_gpu(handle: nvmlDevice_t) -> Answer<&'static Gpu> {
    let device = device(handle)?;
    let gpu = device.gpu();
    if device.instance.is_some() || gpu.nvml_minimal {
        Err(NOT_SUPPORTED)
    } else {
        Ok(gpu)
    }
}

impl Device {
    pub(crate) fn gpu(self) -> &'static Gpu {
        &self.machine.scenario.gpu[self.index]
    }

    pub(crate) fn mig(self) -> Option<&'static Mig> {
        let mig = self.machine.domains[self.instance?].mig?;
        self.gpu().mig.get(mig)
    }

    pub(crate) fn uuid(self) -> &'static str {
        self.mig().map_or(&self.gpu().uuid, |mig| &mig.uuid)
    }

    /// The memories behind the handle: its own, or those of all instances.
    pub(crate) fn domains(self) -> impl Iterator<Item = usize> {
        let machine = self.machine;
        let matches = move |domain: &usize| match self.instance {
            Some(own) => own == *domain,
            None => machine.domains[*domain].gpu == self.index,
        };
        (0..machine.domains.len()).filter(matches)
    }
}

fn by_index(index: u32, out: Out<nvmlDevice_t>) -> Answer {
    let index = index as usize;
    if index >= machine()?.scenario.gpu.len() {
        return Err(INVALID_ARGUMENT);
    }
    out.set(gpu_handle(index))
}

fn by_pci(id: Text, out: Out<nvmlDevice_t>) -> Answer {
    // Both spellings of the domain are accepted: 0000:01:00.0 and 00000000:01:00.0.
    let short = |id: &str| id.to_ascii_uppercase().trim_start_matches('0').to_owned();
    let wanted = short(id.get()?);
    let found = machine()?
        .scenario
        .gpu
        .iter()
        .position(|gpu| short(&gpu.pci) == wanted);
    out.set(gpu_handle(found.ok_or(NOT_FOUND)?))
}

nvml! {
    fn nvmlDeviceGetCount(count: Out<u32>) {
        count.set(u32::try_from(machine()?.scenario.gpu.len()).unwrap_or(0))
    }

    fn nvmlDeviceGetCount_v2(count: Out<u32>) {
        count.set(u32::try_from(machine()?.scenario.gpu.len()).unwrap_or(0))
    }

    fn nvmlDeviceGetHandleByIndex(index: u32, out: Out<nvmlDevice_t>) {
        by_index(index, out)
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: u32, out: Out<nvmlDevice_t>) {
        by_index(index, out)
    }

    fn nvmlDeviceGetHandleByUUID(uuid: Text, out: Out<nvmlDevice_t>) {
        let machine = machine()?;
        let uuid = uuid.get()?;
        if let Some(index) = machine.scenario.gpu.iter().position(|gpu| gpu.uuid == uuid) {
            return out.set(gpu_handle(index));
        }
        let mig = machine.domains.iter().position(|it| {
            it.mig.is_some_and(|mig| machine.scenario.gpu[it.gpu].mig[mig].uuid == uuid)
        });
        out.set(mig_handle(mig.ok_or(NOT_FOUND)?))
    }

    fn nvmlDeviceGetHandleByPciBusId(id: Text, out: Out<nvmlDevice_t>) {
        by_pci(id, out)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(id: Text, out: Out<nvmlDevice_t>) {
        by_pci(id, out)
    }

    fn nvmlDeviceGetHandleBySerial(serial: Text, out: Out<nvmlDevice_t>) {
        let wanted = serial.get()?;
        let count = machine()?.scenario.gpu.len();
        let found = (0..count).find(|index| crate::identity::serial(*index) == wanted);
        out.set(gpu_handle(found.ok_or(NOT_FOUND)?))
    }
}
