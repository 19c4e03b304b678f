//! A claim becomes a CDI file.
//! Touches: the CDI folder; the API server, devices.json and the host's /dev, by reading them.
//! Law: nothing is remembered. A claim is prepared from the API server's answer and the host's files
//! alone, so a restart and a reboot need nothing else.

pub mod allocation;
pub mod cdi;
pub mod gpu;
pub mod options;
pub mod prepare;
pub mod prepared;
