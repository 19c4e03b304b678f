//! The kubelet's side
//! Touches:  registration, and claims to prepare.:the two sockets, through which the kubelet calls.
