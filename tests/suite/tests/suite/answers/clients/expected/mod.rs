//! The answers that every client must receive, in bytes: on the bare machine, and in a slice.
//! Touches: nothing. Worked out from the scenarios by hand, never printed by the product.

mod gb10;
mod h200;
mod h200_mig;
mod n1x;
mod orin;
mod rtx3090;
mod several;
mod thor;

pub use gb10::GB10;
pub use h200::H200;
pub use h200_mig::H200_MIG;
pub use n1x::N1X;
pub use orin::ORIN;
pub use rtx3090::RTX3090;
pub use several::{rtx3090_and_h200, two_h200};
pub use thor::THOR;

/// A machine, and the answers on it.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// The budget of each device in the slice, in bytes.
    pub slice: u64,
    /// The newest CUDA that its driver knows.
    pub cuda: u32,
    /// The device that shares the host's memory.
    pub integrated: Option<&'static str>,
    /// The MIG instance that CUDA sees, and the card it is on, which CUDA 11 names instead.
    pub mig: Option<(&'static str, &'static str)>,
    /// Without a slice and without the preload.
    pub bare: Answers,
    /// In the slice, without a ledger: all used memory counts as the slice's.
    pub sliced: Answers,
    /// In the slice, with the ledger of `gpuslice run`, where that makes a difference.
    pub counted: Option<Answers>,
}

/// The answers of one machine, by the kinds of clients (`gpuslice_suite::clients::Says`).
pub struct Answers {
    pub cuda: &'static str,
    pub nvml: &'static str,
    pub threads: &'static str,
    pub both: &'static str,
    pub nvitop: &'static str,
    pub gpustat: &'static str,
}
