//! The place of a container in Kubernetes.
//! Touches: nothing.

use serde::{Deserialize, Serialize};

/// A container's place in Kubernetes, as its engine recorded it. A part that is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// The namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid.
    pub uid: String,
    /// The container's name in the pod.
    pub container: String,
}
