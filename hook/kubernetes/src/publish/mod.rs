//! The node's ResourceSlices
//! Touches:  a device for each GPU and each MIG instance.:the API server; devices.json and the policy, by reading them.
