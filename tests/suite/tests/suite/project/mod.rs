//! The project itself: its sources, its build, its documents and its kit for a real GPU.
//! Touches: the sources as text, the built library.

mod chart;
mod cluster;
mod examples;
mod exports;
mod floors;
mod gpu_kit;
mod layout;
mod readme;
mod vendor_abi;
mod vendor_opencl;
