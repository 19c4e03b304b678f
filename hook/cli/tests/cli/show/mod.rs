//! Commands that only report: `status`, `report`, `check`, `devices`.
//! Touches: slices of their own, on simulated machines.

mod check;
mod cost;
mod devices;
mod overview;
mod report;
mod status;
mod status_damaged;
mod status_ended;
mod users;
