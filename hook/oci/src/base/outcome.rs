//! The stage of a hook, and its outcome: failures and messages.
//! Touches: nothing.

use gpuslice_host::events::Event;
use gpuslice_host::machine::policy::OnError;

/// The namespaces that the hook runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The runtime's, which are the host's: `createRuntime`, `prestart`.
    Runtime,
    /// The container's, before its root is mounted: `createContainer`.
    Container,
}

/// Why a container does not start, or has no slice.
#[derive(Debug)]
pub(crate) enum StageFailure {
    /// The policy does not allow the container, or other slices hold the memory. The container does
    /// not start.
    Refused(anyhow::Error),
    /// Something went wrong. The policy decides whether the container starts.
    Failed(anyhow::Error, OnError),
}

/// The messages to report, one line each.
pub(crate) type Messages = Vec<String>;

/// The messages about a container, whether it starts or not.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// For the runtime.
    pub(crate) lines: Messages,
    /// For the host's log as well: the limits that are not in force although the container starts.
    pub(crate) logged: Messages,
    /// For the event file and the host's log: the container's start, or that it has no slice.
    pub(crate) events: Vec<Event>,
}
