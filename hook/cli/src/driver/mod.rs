//! The GPUs of this machine: queries the driver in a child process, or a simulated driver.
//! Touches: the driver, in a child; the preload library and the list of GPUs, as files.

pub(crate) mod ask;
pub(crate) mod cuda;
pub(crate) mod devices_file;
pub(crate) mod inventory;
pub(crate) mod keeper;
pub(crate) mod limit_probe;
pub(crate) mod limits;
pub(crate) mod memory_watch;
pub(crate) mod nvml;
pub(crate) mod preload;
pub(crate) mod probe;
pub(crate) mod processes;
pub(crate) mod sim;
pub(crate) mod sim_host;
