//! gpuslice's host side: starts programs in a slice of GPU memory and shows what is there.
//! Touches: files, processes, and (in a child of its own) the driver.
pub mod budget;
pub mod check;
pub mod child_signal;
pub mod cli;
pub mod devices;
pub mod devices_file;
pub mod environment;
pub mod exit;
pub mod headroom;
pub mod inventory;
pub mod learned;
pub mod pages;
mod plan;
pub mod preload;
pub mod private_dir;
pub mod registry;
pub mod replace;
pub mod run;
pub mod sim;
pub mod sim_host;
pub mod slice_file;
pub mod slice_ledger;
pub mod slice_options;
pub mod standard_streams;
pub mod status;
pub mod text;
pub mod tidy_up;
