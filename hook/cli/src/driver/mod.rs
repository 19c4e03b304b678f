//! The GPUs of this machine: queries the driver in a child process, or a simulated driver.
//! Touches: the driver, in a child; the preload library and the list of GPUs, as files.

pub mod ask;
pub mod cuda;
pub mod devices_file;
pub mod inventory;
pub(crate) mod limits;
pub mod nvml;
pub mod preload;
pub mod probe;
pub mod processes;
pub mod sim;
pub mod sim_host;
