//! The driver inside this process: opened at first use, initialised by cuInit, and not initialised
//! in fork children.
//! Touches: the environment (`GPUSLICE_SIM*`, `CUDA_VISIBLE_DEVICES`), stderr when the scenario is
//! wrong.

use crate::abi::{Answer, CUdevice, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_INITIALIZED};
use crate::context::Context;
use crate::state::State;
use gpuslice_sim_machine::{Faults, Gpu, Machine, Mig};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// One device as CUDA numbers it.
pub(crate) struct Device {
    pub(crate) domain: usize,
    pub(crate) primary: &'static Context,
}

/// The driver's state in this process.
pub(crate) struct Driver {
    pub(crate) machine: &'static Machine,
    pub(crate) devices: Vec<Device>,
    state: Mutex<State>,
}

static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();
static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());
static OPENED: AtomicBool = AtomicBool::new(false);

/// The machine, whether or not cuInit was called.
pub(crate) fn machine() -> Answer<&'static Machine> {
    let machine = MACHINE.get_or_init(Machine::of_this_process);
    OPENED.store(true, Ordering::Release);
    machine.as_ref().ok_or(INVALID_VALUE)
}

/// The faults, opening the machine if this is the first call.
#[inline]
pub(crate) fn faults() -> Option<&'static Faults> {
    if !OPENED.load(Ordering::Acquire) {
        machine().ok()?;
    }
    MACHINE.get()?.as_ref().map(|machine| &machine.faults)
}

/// The initialised driver; NOT_INITIALIZED before cuInit and in fork children.
#[inline]
pub(crate) fn driver() -> Answer<&'static Driver> {
    let driver = DRIVER.load(Ordering::Acquire);
    if driver.is_null() {
        return Err(NOT_INITIALIZED);
    }
    // SAFETY: set once by `initialise` from a leaked box and never freed.
    let driver = unsafe { &*driver };
    if driver.machine.own_process() {
        Ok(driver)
    } else {
        Err(NOT_INITIALIZED)
    }
}

/// cuInit.
pub(crate) fn initialise() -> Answer {
    if !DRIVER.load(Ordering::Acquire).is_null() {
        return driver().map(|_| ());
    }
    let machine = machine()?;
    machine.adopt();
    let visible = visible(
        machine,
        std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(),
    );
    if visible.is_empty() {
        return Err(NO_DEVICE);
    }
    let devices = visible
        .into_iter()
        .enumerate()
        .map(|(ordinal, domain)| Device {
            domain,
            primary: Context::primary(ordinal, domain),
        })
        .collect();
    let fresh = Box::into_raw(Box::new(Driver {
        machine,
        devices,
        state: Mutex::default(),
    }));
    if DRIVER
        .compare_exchange(
            std::ptr::null_mut(),
            fresh,
            Ordering::AcqRel,
            Ordering::Acquire,
        )
        .is_err()
    {
        // SAFETY: this box was not published.
        drop(unsafe { Box::from_raw(fresh) });
    }
    Ok(())
}

impl Driver {
    pub(crate) fn device(&self, device: CUdevice) -> Answer<&Device> {
        usize::try_from(device)
            .ok()
            .and_then(|i| self.devices.get(i))
            .ok_or(INVALID_DEVICE)
    }

    pub(crate) fn gpu(&self, device: CUdevice) -> Answer<&'static Gpu> {
        Ok(self.machine.gpu(self.device(device)?.domain))
    }

    pub(crate) fn mig(&self, device: CUdevice) -> Answer<Option<&'static Mig>> {
        let domain = self.machine.domains[self.device(device)?.domain];
        Ok(domain
            .mig
            .map(|mig| &self.machine.scenario.gpu[domain.gpu].mig[mig]))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

/// The memories that CUDA enumerates. As documented, the list ends at the first entry that names no
/// device, and a machine with MIG instances shows one of them at a time.
fn visible(machine: &Machine, wanted: Option<&str>) -> Vec<usize> {
    let gpus = &machine.scenario.gpu;
    let first_of = |gpu: usize| machine.domains.iter().position(|it| it.gpu == gpu);
    let mut found: Vec<usize> = match wanted {
        None => (0..gpus.len()).filter_map(first_of).collect(),
        Some(list) => list
            .split(',')
            .map(str::trim)
            .map_while(|entry| match entry.parse::<usize>() {
                Ok(index) => first_of(index).filter(|_| index < gpus.len()),
                Err(_) if entry.starts_with("GPU-") => {
                    first_of(gpus.iter().position(|gpu| gpu.uuid.starts_with(entry))?)
                }
                Err(_) if entry.starts_with("MIG-") => machine.domains.iter().position(|it| {
                    it.mig
                        .is_some_and(|mig| gpus[it.gpu].mig[mig].uuid.starts_with(entry))
                }),
                Err(_) => None,
            })
            .collect(),
    };
    if let Some(mig) = found
        .iter()
        .copied()
        .find(|domain| machine.domains[*domain].mig.is_some())
    {
        found = vec![mig];
    }
    let mut seen = Vec::new();
    found.retain(|domain| {
        !seen.contains(domain) && {
            seen.push(*domain);
            true
        }
    });
    found
}
