//! The kubelet's calls: registration, claims and the health of devices, on two sockets.
//! Touches: the sockets; all else through [`crate::claims`].

mod authority;
pub mod health;
pub mod messages;
pub mod plugin;
pub mod registration;
pub mod server;
