//! The node's ResourceSlices: a device for each GPU and each MIG instance.
//! Touches: the API server; devices.json, the policy, the guard's state, the CDI folder and the host's
//! memory, by reading them.

pub mod devices;
pub mod keep;
pub mod pressure;
pub mod reconcile;
pub mod slices;
pub mod taints;
