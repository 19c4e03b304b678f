//! The check that every call passes first: the library is initialised, and the GPU is still there.
//! Also the answer of functions that the sources do not define.
//! Touches: the environment (`GPUSLICE_SIM*`) at the first initialisation, stderr when the scenario
//! is wrong.

use crate::abi::*;
use gpuslice_sim_machine::{Machine, Verdict};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

mod generated {
    include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
}

static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();
static INITIALISED: AtomicI64 = AtomicI64::new(0);

/// nvmlInit, whose calls are counted.
pub(crate) fn initialise() -> Answer {
    let machine = MACHINE.get_or_init(Machine::of_this_process);
    if machine.is_none() {
        return Err(DRIVER_NOT_LOADED);
    }
    INITIALISED.fetch_add(1, Ordering::AcqRel);
    Ok(())
}

/// nvmlShutdown.
pub(crate) fn shut_down() -> Answer {
    let before = INITIALISED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
        (count > 0).then(|| count - 1)
    });
    before.map(|_| ()).map_err(|_| UNINITIALIZED)
}

/// The machine, between nvmlInit and nvmlShutdown.
#[inline]
pub(crate) fn machine() -> Answer<&'static Machine> {
    if INITIALISED.load(Ordering::Acquire) <= 0 {
        return Err(UNINITIALIZED);
    }
    MACHINE.get().and_then(Option::as_ref).ok_or(UNINITIALIZED)
}

/// Applies the faults: a slow call waits, and a lost GPU answers no call any more.
#[inline]
pub(crate) fn enter(name: &str) -> Answer {
    match MACHINE.get() {
        Some(Some(machine))
            if machine.faults.enter(name) == Verdict::Lost && !name.starts_with("nvmlSystem") =>
        {
            Err(GPU_IS_LOST)
        }
        _ => Ok(()),
    }
}

/// The answer of every function that the sources do not define.
pub(crate) extern "C" fn unsupported(stub: u32) -> nvmlReturn_t {
    let name = generated::STUBS.get(stub as usize).copied().unwrap_or("");
    match enter(name).and_then(|()| machine()) {
        Err(UNINITIALIZED) | Ok(_) => NOT_SUPPORTED,
        Err(code) => code,
    }
}
