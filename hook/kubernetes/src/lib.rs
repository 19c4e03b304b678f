//! The DRA driver `gpuslice.io`: a ResourceClaim of GPU memory becomes a slice of a container.
//! Touches: the kubelet's plugin folders, the CDI folder, the API server.
//!
//! From a claim to a slice:
//! 1. [`publish`] reports the node's GPUs, each with its memory as a consumable capacity, and the
//!    scheduler allocates parts of it to claims.
//! 2. [`kubelet`] asks to prepare a claim. The claim is read from the API server ([`api`]).
//! 3. [`claims`] checks the allocation and writes it as a CDI file, with the GPU's device nodes and
//!    with `gpuslice-hook` at createRuntime and poststop.
//! 4. The kubelet passes the CDI device on to the engine, which runs the hook. The hook makes the
//!    slice and enforces it.
//! 5. [`ready`] stops 1 and 2 where 4 would not happen.
//! 6. [`report`] writes what the slice then does into the claim's status and the pod's events.

pub mod api;
pub mod base;
pub mod claims;
pub mod kubelet;
pub mod nri;
pub mod publish;
pub mod ready;
pub mod report;
pub mod serve;
