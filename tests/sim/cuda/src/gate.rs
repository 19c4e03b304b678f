//! The check that every call passes first, for faults that apply to any call, and the answer of
//! functions that the sources do not define.
//! Touches: the fault list.

use crate::abi::{Answer, CUresult, NOT_SUPPORTED, UNKNOWN};
use gpuslice_sim_machine::Verdict;

/// Generated: functions that the sources do not define, and the table of all names.
mod generated {
    /// One exported name, as cuGetProcAddress knows it.
    pub(crate) struct Row {
        pub(crate) name: &'static str,
        pub(crate) base: &'static str,
        pub(crate) version: i32,
        pub(crate) per_thread: bool,
        pub(crate) exported: unsafe extern "C" fn(),
        pub(crate) private: unsafe extern "C" fn(),
    }
    include!(concat!(env!("OUT_DIR"), "/stubs.rs"));
}

pub(crate) use generated::{Row, TABLE};

/// Applies the faults: a slow call waits, and a lost GPU answers no call any more.
#[inline]
pub(crate) fn enter(name: &str) -> Answer {
    match crate::driver::faults() {
        Some(faults) if faults.enter(name) == Verdict::Lost => Err(UNKNOWN),
        _ => Ok(()),
    }
}

/// The answer of every function that the sources do not define.
pub(crate) extern "C" fn unsupported(stub: u32) -> CUresult {
    let name = generated::STUBS.get(stub as usize).copied().unwrap_or("");
    enter(name).err().unwrap_or(NOT_SUPPORTED)
}
