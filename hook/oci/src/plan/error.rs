//! The reasons for which a container cannot have the slice that it requests.
//! Touches: nothing.

use crate::request::annotations::{self, AnnotationError};
use crate::request::dialects::DialectError;
use gpuslice_config::slice::SliceError;
use gpuslice_config::words::units::Bytes;
use gpuslice_host::engine::hook_arguments::SizeError;

/// Why a container cannot have the slice that it requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An annotation is wrong.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// A request in another system's words is wrong.
    #[error(transparent)]
    Dialect(#[from] DialectError),
    /// The sizes of hooks and annotations differ.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The policy requires every container to request a size.
    #[error(
        "this host's policy refuses containers that do not say how much GPU memory they need \
         (annotation {}memory, for example 8GiB)",
        annotations::PREFIX
    )]
    Unannotated,
    /// The request exceeds the policy's maximum.
    #[error(
        "{asked} is more than this host's policy allows a container to have of a GPU ({maximum})"
    )]
    Maximum {
        /// The requested size.
        asked: Bytes,
        /// The maximum.
        maximum: Bytes,
    },
    /// The host has no such GPU.
    #[error("there is no GPU {0} (this host has {1}; see gpuslice devices)")]
    NoSuchDevice(String, String),
    /// The GPU exists, but the policy does not slice it.
    #[error("this host's policy gives no slices of GPU {0}")]
    NotForSlices(String),
    /// The request names GPUs of which the container is given none.
    #[error(
        "the request names GPU {named}, but the container is given {given}: name one of these, or \
         limit all of them ({}memory)",
        annotations::PREFIX
    )]
    NotGiven {
        /// The names.
        named: String,
        /// The GPUs that the container is given.
        given: String,
    },
    /// The container has GPUs that its request does not name, and the policy gives no default.
    #[error(
        "the request gives no size for {gpus}, and this host's policy lets no container have a GPU \
         without one (annotation {}memory.GPU, or {}memory for all)",
        annotations::PREFIX,
        annotations::PREFIX
    )]
    Unnamed {
        /// The GPUs.
        gpus: String,
    },
    /// The host has no GPU.
    #[error("this host has no GPU")]
    NoDevices,
    /// The policy slices none of the container's GPUs.
    #[error(
        "this host's policy slices none of the container's GPUs (this host has {0}; see devices in \
         config.toml)"
    )]
    NoneForSlices(String),
    /// One GPU is requested with two sizes.
    #[error(
        "{uuid} is asked for twice: {}memory.{} says {}, {}memory.{} says {}",
        annotations::PREFIX, one.0, one.1, annotations::PREFIX, other.0, other.1
    )]
    Twice {
        /// The GPU.
        uuid: String,
        /// One key, and its size.
        one: (String, Bytes),
        /// The other key, and its size.
        other: (String, Bytes),
    },
    /// The driver cannot enforce the limit, and the container or the policy asks for that.
    #[error("the driver cannot enforce the limit of this container: {0}")]
    Fence(String),
    /// The container asks for the driver, and the policy for the library.
    #[error(
        "{}fence: driver is not allowed: this host's policy has fence = \"preload\"",
        annotations::PREFIX
    )]
    NoDriverFence,
    /// A pod's slice is requested outside a pod.
    #[error("{}share: pod requires a container of a pod", annotations::PREFIX)]
    NoPod,
    /// The container's id is reserved.
    #[error(
        "container id {0:?} is reserved for gpuslice's own slices and runs (start the container with \
         another id)"
    )]
    Reserved(String),
    /// The slice file would be invalid.
    #[error("the slice file would not be valid: {0}")]
    Slice(SliceError),
}
