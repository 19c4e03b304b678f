//! The commands, each in a file or folder of its own.
//! Touches: everything that the modules below touch.

pub(crate) mod cache;
pub(crate) mod cdi;
pub(crate) mod check;
pub mod daemon;
pub(crate) mod devices;
pub mod docs;
pub(crate) mod doctor;
pub(crate) mod driver_limit;
pub(crate) mod engines;
pub(crate) mod env;
pub(crate) mod events;
pub(crate) mod gc;
pub(crate) mod headroom;
pub(crate) mod history;
pub mod metrics;
pub(crate) mod plan;
pub(crate) mod plot;
pub(crate) mod report;
pub(crate) mod resize;
pub(crate) mod run;
pub(crate) mod status;
pub(crate) mod top;
